"""From hypotheses to answers: their texts, and on request scores, tokens, alignments, confidence
and warnings.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from vanilla_transformer.text.inline_terms import AnnotatedText
from vanilla_transformer.text.languages import find_direction, find_languages
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .confidence import Calibration, measure_features
from .engine.search_state import Hypothesis
from .options import TranslationOptions
from .sentences import Sentence
from .token_texts import Token, locate_tokens, to_entries, token_texts
from .translations import Link, Translation, join_pieces
from .unit_links import align, token_spans

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


# Returns the warnings about a translation, given the source and the alignment, if there is one.
FindWarnings = Callable[[str, str, Sequence[Link]], list[str]]


def warning_finder(
    tokenizer: "PreTrainedTokenizerBase",
    config: "PreTrainedConfig | None",
    options: Mapping[str, Any],
) -> FindWarnings:
    """Return a function that finds the warnings about translations of a model, with what its
    tokenizer and its alignments tell, see [`find_warnings`].

    Args:
        options: Options of the request, of which the glossary and the language count.
    """
    limits, languages = WarningLimits.from_config(config), find_languages(tokenizer)
    language = options.get("src_lang")
    trained = find_direction(tokenizer) if languages is None else languages.complete(language)

    def is_spelled_out(source: str) -> bool:
        ids = tokenizer(source, add_special_tokens=False)["input_ids"]
        letters = [token.strip() for token in token_texts(tokenizer, ids, as_source=True)]
        return len(letters) > 1 and max(map(len, letters)) <= 1

    def find(source: str, text: str, links: Sequence[Link]) -> list[str]:
        aligned_end = max((link.target_end for link in links), default=0)
        unlinked = {*range(len(source))}
        for link in links:
            unlinked.difference_update(range(link.source_start, link.source_end))
        targets = [link.target_start for link in sorted(links)]
        # A last word may translate a word without a link or, as a German verb, change the order.
        if any(source[at].isalnum() for at in unlinked) or targets != sorted(targets):
            aligned_end = 0
        is_spelled = source.isupper() and is_spelled_out(source)
        known = (limits, options.get("glossary"), language or trained.source)
        return find_warnings(source, text, *known, is_spelled, aligned_end)

    return find


def needs_alignments(options: TranslationOptions, config: "PreTrainedConfig") -> bool:
    """Return whether alignments are computed, to be returned or for the confidence."""
    if not options.return_confidence:
        return options.return_alignments
    return Calibration.from_config(config).needs_alignments or options.return_alignments


def to_translations(
    sentences: Sequence[Sentence],
    hypotheses: Sequence[Sequence[Hypothesis]],
    postprocess: Callable[[list[list[int]]], list[str]],
    tokenizer: "PreTrainedTokenizerBase",
    options: TranslationOptions,
    config: "PreTrainedConfig",
) -> list[list[Translation]]:
    """Return the translations of each sentence.

    Args:
        sentences: One sentence or more; tokenizers decode an empty batch to one empty text.
        hypotheses: Hypotheses of each sentence, as many of each one.
        postprocess: Returns the text of each of some rows of tokens.
        config: The configuration of the model.
    """
    flat = list(chain.from_iterable(hypotheses))
    texts = postprocess([hypothesis.tokens for hypothesis in flat])
    count = len(hypotheses[0])
    if options.returned is None:
        translations = [Translation(text) for text in texts]
    else:
        aligns = needs_alignments(options, config)
        tokens = []
        for text, hypothesis in zip(texts, flat, strict=True):
            values = hypothesis.token_log_probabilities
            if aligns or options.return_tokens:
                tokens.append(locate_tokens(tokenizer, hypothesis.tokens, values, text))
            else:
                tokens.append([Token(0, value) for value in values])
        alignments: Sequence[Sequence[Link]] = [()] * len(flat)
        if aligns:
            alignments = _align(sentences, flat, texts, tokens, tokenizer)
        translations = []
        rows = zip(texts, flat, tokens, alignments, strict=True)
        for text, hypothesis, located, links in rows:
            score, log_probability = hypothesis.score, hypothesis.log_probability
            translation = Translation(text, score, log_probability, located, alignment=links)
            translations.append(translation)
    starts = range(0, len(translations), count)
    return [translations[start : start + count] for start in starts]


def _align(
    sentences: Sequence[Sentence],
    flat: Sequence[Hypothesis],
    texts: Sequence[str],
    tokens: Sequence[Sequence[Token]],
    tokenizer: "PreTrainedTokenizerBase",
) -> list[Sequence[Link]]:
    """Return the links of each hypothesis; there are as many of each sentence."""
    sources = []
    for sentence in sentences:
        plain = AnnotatedText(sentence.text, sentence.text, [])
        sources.append(sentence.annotation or plain)
    source_texts = [source.text for source in sources]
    source_tokens = [sentence.tokens for sentence in sentences]
    spans = token_spans(tokenizer, source_texts, source_tokens)
    count = len(flat) // len(sentences)
    links: list[Sequence[Link]] = []
    for index, hypothesis in enumerate(flat):
        source = sources[index // count]
        source_spans = [source.original(span) for span in spans[index // count]]
        links.append(align(source.plain, source_spans, texts[index], tokens[index], hypothesis))
    return links


def build_answer(
    text: str,
    sentences: Sequence[Sentence],
    translations: Sequence[Translation],
    options: TranslationOptions,
    config: "PreTrainedConfig",
    find: FindWarnings | None = None,
) -> dict[str, Any]:
    """
    Return the answer of a text, given the translation of each of its sentences, with the entries
    that are requested.

    The log-probability is the sum over the sentences, and the score is their mean: so n-best lists
    stay in order. Sentences without letters are certain and count in neither. Without others, as in
    a blank text, both are 0. The confidence and the warnings are about the text as a whole.

    Args:
        config: The configuration of the model.
        find: Finds the warnings, if they are requested, see [`warning_finder`].
    """
    source = "".join(sentence.text + sentence.separator for sentence in sentences)
    lengths = [len(sentence.text + sentence.separator) for sentence in sentences]
    starts = accumulate(lengths, initial=0)
    rows = zip(starts, sentences, translations, strict=False)
    pieces = [(start, sentence.text, translation) for start, sentence, translation in rows]
    joined = join_pieces(source, pieces, " ")
    answer: dict[str, Any] = {"translation_text": joined.text}
    if options.returned is None:
        return answer
    if options.return_scores:
        decoded = sum(bool(sentence.tokens) for sentence in sentences)
        total_score = sum(translation.score for translation in translations)
        answer["score"] = total_score / max(1, decoded)
        log_probability = sum(translation.log_probability for translation in translations)
        answer["log_probability"] = float(log_probability)
    similarities = list[float]()
    for sentence, translation in zip(sentences, translations, strict=True):
        if sentence.tokens:
            similarities.append(translation.similarity)
    similarity = min(similarities, default=0.0)
    if similarity:
        answer["memory"] = similarity
    if options.return_confidence and similarity == 1:
        answer["confidence"] = 1.0  # a person's translation
    elif options.return_confidence:
        values = [token.log_probability for token in joined.tokens]
        features = measure_features(source, joined.text, values, joined.alignment)
        answer["confidence"] = Calibration.from_config(config).predict(features)
    if find is not None:
        answer["warnings"] = find(source, joined.text, joined.alignment)
    if options.return_tokens:
        answer["tokens"] = to_entries(joined.tokens, joined.text)
    if options.return_alignments:
        before = len(text) - len(text.lstrip())
        answer["alignment"] = [link.shift(before, 0) for link in joined.alignment]
    return answer


def rename_text(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the pipeline with its translation as `text`, as the command line and HTTP
    show it.
    """
    entries = dict(answer)
    return {"text": entries.pop("translation_text"), **entries}
