"""The steps around a search that belong to no extension, see [`Step`]."""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from vanilla_transformer.pipeline_vanilla_transformer import (
    Segment,
    encode_segments,
    source_limits,
)
from vanilla_transformer.text.protection import find_masks

from .constraints import tokenize_kept
from .engine.phrase_constraints import ConstraintError, Phrases
from .forced_decoding import decoder_logits, pad, plan_scoring_batches
from .options import OptionError, TranslationOptions
from .protection.projection import proportional_links
from .protection.protected_search import ProtectedSearch
from .protection.stand_ins import StandIns
from .segments import Encode
from .sentences import Decode, Report, Sentence, ignore
from .translations import Translation, copy_sentence, join_pieces

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

_MOST_TOKENS = 4096  # in a batch of prefixes


def complete_alternatives(
    decode: Decode, model: "DecodedModel", tokenizer: PreTrainedTokenizerBase
) -> Decode:
    """Return the best translation after each of the most likely tokens after the prefix of each
    sentence.
    """

    def decode_alternatives(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        eos = options.eos_token_id
        if not isinstance(eos, list):
            eos = [eos]
        # Of special tokens, only EOS is an alternative.
        special = [token for token in tokenizer.all_special_ids if token not in eos]
        prefixes = [sentence.prefix or () for sentence in sentences]
        count = options.count
        sources = [sentence.tokens for sentence in sentences]
        tokens = next_tokens(model, sources, prefixes, count, special)
        longer = []
        for sentence, prefix, alternatives in zip(sentences, prefixes, tokens, strict=True):
            for token in alternatives:
                longer.append(sentence._replace(prefix=[*prefix, token]))
        completion_options = options.override(
            alternatives=None, target_prefix=options.target_prefix or "", num_return_sequences=1
        )
        rows = decode(longer, completion_options, report)
        best = [translation for (translation,) in rows]
        starts = range(0, len(best), count)
        return [best[start : start + count] for start in starts]

    return decode_alternatives


def follow_drafts(decode: Decode) -> Decode:
    """
    Return a decode that translates the sentences with a draft by greedy search, unless the request
    asks for beams, and the others as always.

    Constraints need beam search, so a sentence with phrases is one of the others.
    """

    def decode_drafts(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        beams = options.generate_kwargs.get("num_beams") or 1
        is_one_search = options.do_sample or max(beams, options.count) == 1
        drafted, others = dict[int, Sentence](), dict[int, Sentence]()
        for number, sentence in enumerate(sentences):
            if sentence.draft is not None and not sentence.phrases and is_one_search:
                drafted[number] = sentence
            else:
                others[number] = sentence._replace(draft=None)
        answers = dict[int, list[Translation]]()
        if others:
            without = options.model_copy(update={"draft": None, "draft_bias": 0.0})
            rows = decode([*others.values()], without, report)
            answers |= zip(others, rows, strict=True)
        if drafted:
            rows = decode([*drafted.values()], options.override(num_beams=1, draft=""), report)
            answers |= zip(drafted, rows, strict=True)
        return [answers[number] for number in range(len(sentences))]

    return decode_drafts


@torch.inference_mode()
def next_tokens(
    model: "DecodedModel",
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]],
    count: int,
    special: Sequence[int],
) -> list[list[int]]:
    """Return the most likely tokens after the prefix of each source, most likely first.

    Args:
        special: Tokens that no translation has. EOS is not among them.
    """
    start, device = model.generation_config.decoder_start_token_id, model.device
    entries = model.get_output_embeddings().weight.shape[0] - len({*special})
    if count > entries:
        requirement = f"`alternatives` must be at most {entries}, as many as there are tokens"
        raise OptionError(f"{requirement}, got {count}.")
    best: dict[int, list[int]] = {}
    sizes = []
    for source, prefix in zip(sources, prefixes, strict=True):
        sizes.append((len(source), len(prefix) + 1))
    for batch in plan_scoring_batches(sizes, _MOST_TOKENS):
        ids, seen = pad([sources[index] for index in batch])
        previous, written = pad([[start, *prefixes[index]] for index in batch])
        ids, seen = ids.to(device), seen.to(device)
        previous, written = previous.to(device), written.to(device)
        logits = decoder_logits(model, ids, seen, previous).float()
        rows = torch.arange(len(batch), device=device)
        last = logits[rows, written.sum(dim=1) - 1]  # (B, V)
        last[:, list(special)] = -torch.inf
        best |= zip(batch, last.topk(count)[1].tolist(), strict=True)
    return [best[index] for index in range(len(sizes))]


def translate_parts(decode: Decode, encode: Encode, config: PreTrainedConfig) -> Decode:
    """
    Return a decode that also takes sentences without tokens, of any length: the parts of one that
    is too long are translated and joined, see [`encode_segments`].

    Args:
        encode: Returns the token ids of sources.
        config: Configuration of the model, which has its limits.
    """

    def decode_parts(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        lines = []
        for sentence in sentences:
            if not sentence.tokens:
                lines.append([Segment(sentence.text, "", ())])
        if not lines:
            return decode(sentences, options, report)
        longest, most = source_limits(config)
        if options.split_sentences or options.sentence_splitter is not None:
            longest = most
        encoded = encode_segments(lines, lambda texts: encode(texts, options), longest, most)
        segments_of_lines = iter(encoded)
        rows_of_parts = []
        for sentence in sentences:
            parts = [sentence]
            if not sentence.tokens:
                segments = next(segments_of_lines)
                parts = [sentence._replace(**segment._asdict()) for segment in segments]
            if sentence.phrases and len(parts) > 1:
                raise ConstraintError("A sentence with constraints must not be too long.")
            rows_of_parts.append(parts)
        flat = [part for part in chain.from_iterable(rows_of_parts) if part.tokens]
        rows = iter(decode(flat, options, report))
        answers = []
        for sentence, parts in zip(sentences, rows_of_parts, strict=True):
            translated = []
            for part in parts:
                copied = [copy_sentence(part.text)] * options.count
                translated.append(next(rows) if part.tokens else copied)
            if sentence.tokens:
                answers.append(translated[0])
            else:
                answers.append(_join(sentence.text, parts, translated))
        return answers

    return decode_parts


def _join(
    text: str, parts: Sequence[Sentence], rows: Sequence[Sequence[Translation]]
) -> list[Translation]:
    """Return the translations of a text, given the ones of its parts. Without an alignment, words
    are in the order of the text.
    """
    lengths = [len(part.text + part.separator) for part in parts]
    starts = list(accumulate(lengths, initial=0))
    texts = [part.text for part in parts]
    joined = []
    for translations in zip(*rows, strict=True):
        answer = translations[0]
        if len(parts) > 1:
            pieces = list(zip(starts, texts, translations, strict=False))
            answer = join_pieces(text, pieces, " ")
        links = answer.alignment or proportional_links(len(text), answer.text)
        joined.append(answer._replace(alignment=links))
    return joined


def keep_protected(
    decode: Decode,
    tokenizer: PreTrainedTokenizerBase,
    uses_masks: bool = True,
    stand_ins: Callable[[], StandIns] | None = None,
    can_constrain: bool = True,
    aligns: bool = False,
) -> Decode:
    """
    Return a decode whose translations keep what must survive, see [`ProtectedSearch`].

    Args:
        tokenizer: The tokenizer of the model, with the masks that it knows.
        uses_masks: Whether whatever reads the sentences knows the masks.
        stand_ins: Returns the words that the model copies.
        can_constrain: Whether an engine decodes the model.
        aligns: Whether it also aligns words.
    """

    def decode_protected(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        is_beam_search = can_constrain and not options.do_sample and options.mbr is None

        def constrain(lost: Sequence[Sentence]) -> list[list[Translation] | None]:
            phrases = list[Phrases]()
            for sentence in lost:
                try:
                    phrases.append(tokenize_kept(tokenizer, sentence))
                except ConstraintError:  # there are no tokens for one of them
                    phrases.append([])
            constrained = []
            for sentence, kept_phrases in zip(lost, phrases, strict=True):
                if kept_phrases:
                    both = [*sentence.phrases, *kept_phrases]
                    constrained.append(sentence._replace(phrases=both))
            if not constrained:
                return [None] * len(lost)
            beams = options.with_beams()
            found_rows = split_on_error(lambda part: decode(part, beams, ignore), constrained)
            rows = iter(found_rows)
            return [next(rows) if kept_phrases else None for kept_phrases in phrases]

        masks = find_masks(tokenizer)
        # Tokens that a model reads as marks, such as `<term>` and the tags of sources, and not as
        # text
        marks = {*getattr(tokenizer, "get_added_vocab", dict)()} - {*masks}
        shown = masks if uses_masks else ()
        constrained_decode = constrain if is_beam_search else None
        words = None if masks else stand_ins
        search = ProtectedSearch(decode, options, shown, marks, words, constrained_decode, aligns)
        return search(sentences, report)

    return decode_protected


def split_on_error(
    search: Callable[[Sequence[Any]], Sequence[Any]], items: Sequence[Any]
) -> list[Any]:
    """Return the results of a search, one for each item: None for an item that it refuses, alone or
    among others.
    """
    try:
        return [*search(items)]
    except OptionError:  # one of them has too many phrases, or the engine does not follow an option
        if len(items) < 2:
            return [None] * len(items)
        middle = len(items) // 2
        first_results = split_on_error(search, items[:middle])
        return first_results + split_on_error(search, items[middle:])
