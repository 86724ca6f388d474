"""
Translate the terms of a glossary as it says: softly, by inline terms, or by hard constraints.

- `"soft"`: Translations are written beside their terms, for models that were trained with
  `augment: {inline_terms: …}`. Such a model may inflect a translation, or ignore it.
- `"exact"`: Each translation appears as it is in the glossary, for every model: a sentence that
  lacks one is decoded again under the constraint that it has it. A constraint costs a sentence more
  than a term that the model chooses itself.
- `"hard"`: Each translation appears, and a model that was trained with inline terms may inflect it:
  a sentence that lacks one when it is decoded softly is decoded again exactly. For other models it
  is exact.

By default soft if the model was trained for it, and otherwise exact.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.decoding.constraints import close_word, tokenize_phrase
from vanilla_transformer.decoding.options import EXACT, HARD, SOFT, OptionError, TranslationOptions
from vanilla_transformer.decoding.segments import Encode
from vanilla_transformer.decoding.sentences import Decode, Report, Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text.inline_terms import TERM_TOKENS, Match, annotate, knows_inline_terms
from vanilla_transformer.text.protection import find_texts


def use_terms(decode: Decode, encode: Encode, tokenizer: PreTrainedTokenizerBase) -> Decode:
    """Return a decode whose translations have the terms of the glossary of a request.

    It raises an [`OptionError`] if the mode is soft and the model was not trained for it, or if its
    vocabulary cannot spell a translation.
    """

    def decode_terms(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        glossary, mode = options.glossary, term_mode(options, tokenizer)
        matches = [glossary.find(sentence.text) for sentence in sentences]
        if knows_inline_terms(tokenizer):
            sentences = _annotate(sentences, matches, encode, options, tokenizer)
        if mode == EXACT and options.num_beams == 1:  # which refuses constraints
            return decode(_constrained(sentences, matches, tokenizer), options, report)
        candidates = decode(sentences, options, report)
        if mode not in (EXACT, HARD):
            return candidates
        translations = []
        for n_best in candidates:
            translations.append([translation.text for translation in n_best])
        if mode == EXACT:
            lacking = _lacking_targets(matches, translations)
        else:
            sources = [sentence.text for sentence in sentences]
            lacking = lacking_terms(glossary, sources, translations)
        if not lacking:
            return candidates
        lacking_sentences = [sentences[number] for number in lacking]
        lacking_matches = [matches[number] for number in lacking]
        constrained = _constrained(lacking_sentences, lacking_matches, tokenizer)
        again = decode(constrained, options, lambda _: None)
        for number, n_best in zip(lacking, again, strict=True):
            candidates[number] = n_best
        return candidates

    return decode_terms


def term_mode(options: TranslationOptions, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the mode in which the model of a tokenizer translates terms."""
    is_trained = knows_inline_terms(tokenizer)
    if options.term_mode == SOFT and not is_trained:
        lacking = f"the vocabulary of this one has no {TERM_TOKENS[0]}"
        hint = "Give 'hard', or train with `augment: {inline_terms: 0.1}`."
        raise OptionError(
            f"`term_mode` 'soft' is for models trained with inline terms, but {lacking}. {hint}"
        )
    return options.term_mode or SOFT if is_trained else EXACT


def _lacking_targets(
    matches: Sequence[Sequence[Match]], translations: Sequence[Sequence[str]]
) -> list[int]:
    """Return the numbers of the sentences with a translation that lacks the target of a match, as a
    whole word.
    """
    numbers = []
    for number, (of_sentence, n_best) in enumerate(zip(matches, translations, strict=True)):
        counts = Counter(match.target for match in of_sentence)
        for text in n_best:
            places = find_texts(counts, text)
            if any(len(places[target]) < count for target, count in counts.items()):
                numbers.append(number)
                break
    return numbers


def lacking_terms(
    glossary: Glossary, texts: Sequence[str], translations: Sequence[Sequence[str]]
) -> list[int]:
    """Return the numbers of the texts with a translation that lacks a wanted one, whatever its
    ending.
    """
    numbers = []
    for number, (text, n_best) in enumerate(zip(texts, translations, strict=True)):
        if any(glossary.is_ignored(text, translation) for translation in n_best):
            numbers.append(number)
    return numbers


def _annotate(
    sentences: Sequence[Sentence],
    matches: Sequence[Sequence[Match]],
    encode: Encode,
    options: TranslationOptions,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Sentence]:
    """Return the sentences with the wanted translations, which must be plain text, written beside
    their terms.
    """
    targets = sorted({match.target for match in chain.from_iterable(matches)})
    _check_plain(targets, tokenizer)
    annotations = []
    for sentence, of_sentence in zip(sentences, matches, strict=True):
        annotation = annotate(sentence.text, of_sentence) if of_sentence else None
        annotations.append(annotation)
    texts = [annotation.text for annotation in annotations if annotation is not None]
    token_rows = iter(encode(texts, options))
    annotated = []
    for sentence, annotation in zip(sentences, annotations, strict=True):
        if annotation is not None:
            sentence = sentence._replace(tokens=next(token_rows), annotation=annotation)
        annotated.append(sentence)
    return annotated


def _check_plain(targets: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that a vocabulary can spell translations of terms, and that they have no marks."""
    if not targets:
        return
    unknown = getattr(tokenizer, "unk_token_id", None)
    for target, ids in zip(targets, tokenizer(targets)["input_ids"], strict=True):
        marks = [token for token in TERM_TOKENS if token in target]
        if marks:
            problem = f"has the mark {marks[0]}"
        elif unknown in ids:
            problem = "has characters that the model's vocabulary lacks"
        else:
            continue
        raise OptionError(
            f"A translation of the glossary must be plain text, but {target!r} {problem}."
        )


def _constrained(
    sentences: Sequence[Sentence],
    matches: Sequence[Sequence[Match]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Sentence]:
    """Return the sentences with the wanted translations of their terms among their constraints."""
    constrained = []
    for sentence, of_sentence in zip(sentences, matches, strict=True):
        phrases = list(sentence.phrases)
        for match in of_sentence:
            phrases.append(close_word(match.target, tokenize_phrase(tokenizer, match.target)))
        constrained.append(sentence._replace(phrases=phrases))
    return constrained
