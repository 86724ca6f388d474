# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`pipeline("translation")`, which transformers 5 removed: raw text in, translated text out."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import regex
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.configuration_utils import PreTrainedConfig
from transformers.pipelines import Pipeline
from transformers.utils import logging

from .compatibility_vanilla_transformer import CompatibleGenerationMixin, UserError, check_release

_BATCHES_PER_WINDOW = 64  # how far ahead a stream is read, to batch sentences of similar length
_LONGEST_SENTENCE = 512  # tokens; without a limit, each token would take longer than the one before
_WITHOUT_EFFECT = ("truncation", "return_text")  # of the pipelines of transformers 4
_LONG_WORK = 256  # sentences from which a terminal shows a progress bar
_SPACE = re.compile(r"\s")
# The line breaks of `str.splitlines`, with the white space around them.
_LINE_GAP = re.compile(
    r"(?<!\s)[^\S\n\v\f\r\x1c-\x1e\x85\u2028\u2029]*+[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*+"
)
# Marks that end a sentence by themselves: Chinese and Japanese, Indic, Ethiopic, Burmese, Khmer,
# Tibetan. A full-width period may also be in a number or an address, and the Khmer mark in "and so
# on".
_END = r"(?:[。！？｡︒︕︖﹒﹖﹗।॥።፧፨။៕།༎༏༐༑༔]|．(?![\p{N}\p{Latin}])|។(?!ល។))"
# Marks that end one before white space: all others of Unicode but commas, and Armenian ones within
# words; and a Greek question mark, which is a semicolon in NFC.
_END_BEFORE_SPACE = (
    rf"(?:(?!{_END})[\p{{Sentence_Terminal}}…\u037E--[՜՞၊꧈᭞។]]|"
    r""";(?<=\p{Greek}[\p{M}"'”’»)\]]{0,8};))"""
)
# No sentence ends after a number up to 99, which may be an ordinal, as in German, or the number of
# an item.
_ORDINAL = r"(?<![\w.,:/'’-])[1-9]\d?\."
_WHITE = r"[\s\x1c-\x1f]"  # as of `str.isspace`
# The white space after these marks (and closing quotation marks and brackets), which may be none,
# as the last group.
_CLOSING = r"""["'”’»)\]\p{M}\p{Cf}]"""
_GAP = (
    rf"""{_END_BEFORE_SPACE}(?<!{_ORDINAL}){_CLOSING}*({_WHITE}+)"""
    rf"""|(?<!{_END}){_END}(?:{_END}|[」』”’）\p{{M}}\p{{Cf}}])*+(?:["'»)\]]++({_WHITE}+)|({_WHITE}*+))"""
    rf"(?!{_END}|[」』”’）])"
)
# After a period, no sentence begins in lower case, nor with the number of "N°.". A single quotation
# mark before the word may be an apostrophe, as in 'n Hond.
_NO_END = (
    rf"""(?!\.{_CLOSING}*+{_WHITE}++["“„«(\[]*+\p{{Ll}})"""
    rf"(?!(?<=\b[Nn][°º])\.{_WHITE}++\d)"
)
_SENTENCE_GAP = regex.compile(_NO_END + _GAP, regex.V1)
_GAP_OF_LOWER_CASE = regex.compile(_GAP, regex.V1)
# Where a sentence may be cut: between letters as they are read, between letters with their marks,
# and anywhere.
_PIECES = [regex.compile(pattern) for pattern in (r"\X", r"(?s:.)\p{M}*+", r"(?s:.)")]


# Options of the library's pipelines that change nothing: one process prepares texts, and batches
# are always padded.
_OF_LIBRARY = ("num_workers", "padding")


class Segment(NamedTuple):
    """
    A line or sentence that is translated by itself, the white space before the next one, and its
    token ids.

    One without letters has no tokens, and is its own translation.
    """

    text: str
    separator: str
    tokens: Sequence[int] = ()


class Request:
    """
    One call of the pipeline, decoded by `generate()`: its options, and the steps that depend on
    them.

    The installed package has its own class with the same methods, see
    [`TranslationPipeline.begin`].

    Args:
        pipeline: Pipeline that was called.
        options: Keyword arguments of `generate()`, and `split_sentences`.
    """

    def __init__(self, pipeline: "TranslationPipeline", options: dict[str, Any]):
        self._pipeline = pipeline
        self._options = {
            name: value for name, value in options.items() if name not in _WITHOUT_EFFECT
        }
        self._splits_sentences = bool(self._options.pop("split_sentences", False))
        levels = [options]
        for config in (options.get("generation_config"), pipeline.model.generation_config):
            if config is not None:
                levels.append(vars(config))
        counts = (level.get("num_return_sequences") for level in levels)
        self.num_return_sequences = next(filter(None, counts), 1)

    def segments(self, texts: list[str]) -> list[list[Segment]]:
        """Return the segments of each text with their token ids; none for blank text."""
        lines = [split_lines(text) for text in texts]
        longest, most = source_limits(self._pipeline.model.config)
        if self._splits_sentences:
            longest = 0
        is_sequence = reads_sequences(self._pipeline.tokenizer)
        return encode_segments(lines, self._encode, longest, most, is_sequence)

    def keep(self, segment: Segment) -> str:
        """Return the translation of a segment without tokens."""
        return segment.text

    def decode(
        self, segments: Sequence[Segment], batch_size: int, report: Callable[[int], object]
    ) -> list[list[str]]:
        """Return the translations of each segment, best first; each has tokens."""
        sources = [segment.tokens for segment in segments]
        return self._pipeline.generate_texts(sources, batch_size, self._options, report)

    def answer(
        self, text: str, segments: Sequence[Segment], translations: Sequence[str]
    ) -> dict[str, Any]:
        """Return the answer of a text, given the translation of each of its segments."""
        return {"translation_text": join_translations(segments, translations)}

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return encode_sources(self._pipeline.model, self._pipeline.tokenizer, texts)


class TranslationPipeline(Pipeline):
    """
    Translate raw text with any sequence-to-sequence model of transformers.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    A string or a sequence of strings (a list, a dataset's column) returns a list with one
    `{"translation_text": …}` for each; any other iterable returns a generator, which reads ahead in
    windows. With `num_return_sequences` over 1 each text has a list of them, best first.

    Sentences are sorted by length into batches of `batch_size` (32 by default) and returned in the
    given order; with the package installed, its engine decodes. Line breaks are kept. A line with
    more tokens than `config.max_source_length`, the longest source in training, is split into
    sentences, and with `split_sentences=True` each line is: paragraphs for a model that was trained
    on sentences. A sentence with more than 512 tokens, and more than any source in training, is cut
    at white space. Blank text has an empty translation, and a line or sentence without a letter,
    such as `-` or `(1)`, is its own translation.

    `progress_bar` turns the bar on or off; by default a terminal shows it for 256 sentences or
    more. All other keyword arguments are passed to `generate()`, whose defaults are the
    checkpoint's.

    Raises:
        ValueError: An input is not a string, `batch_size` is below 1, or `generate()` does not
            accept an argument.
    """

    _load_tokenizer = True

    def __init__(
        self,
        *args: Any,
        batch_size: int | None = None,
        progress_bar: bool | None = None,
        **kwargs: Any,
    ):
        self.default_batch_size = 32 if batch_size is None else batch_size
        self.default_progress_bar = progress_bar
        for name in (*_OF_LIBRARY, "framework"):  # of transformers 4
            kwargs.pop(name, None)
        super().__init__(*args, **{"task": "translation", **kwargs})

    def _sanitize_parameters(self, **options: Any) -> tuple[dict, dict, dict]:
        self.default_options = options  # called by the constructor only
        return {}, {}, {}

    def __call__(
        self,
        inputs: str | Iterable[str],
        batch_size: int | None = None,
        progress_bar: bool | None = None,
        **options: Any,
    ) -> Any:
        batch_size = self.default_batch_size if batch_size is None else batch_size
        progress_bar = self.default_progress_bar if progress_bar is None else progress_bar
        for name in _OF_LIBRARY:
            options.pop(name, None)
        if isinstance(self.model, CompatibleGenerationMixin):
            check_release(self.model)
        if hasattr(batch_size, "item"):  # of numpy or torch
            batch_size = batch_size.item()
        if type(batch_size) is not int or batch_size < 1:
            raise UserError(f"`batch_size` must be an integer of 1 or more, got {batch_size!r}.")
        count = None
        if isinstance(inputs, str):
            count = 1
        elif isinstance(inputs, Sized):
            count = len(inputs)
        translate = partial(self._translate, self.begin(options, count), batch_size, progress_bar)
        if isinstance(inputs, str):
            return translate([inputs])
        is_iterable = hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")
        if isinstance(inputs, Mapping | bytes) or not is_iterable:
            raise UserError(
                f"`inputs` must be a string or an iterable of strings, got {type(inputs).__name__}."
            )
        texts = _check_strings(inputs)
        if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
            return translate(list(texts))
        windows = iter(lambda: list(islice(texts, batch_size * _BATCHES_PER_WINDOW)), [])

        def stream_answers() -> Iterator[Any]:
            for window in windows:
                yield from translate(window)

        return stream_answers()

    def begin(self, options: dict[str, Any], count: int | None) -> Any:
        """Return the [`Request`] of a call.

        Args:
            options: Keyword arguments of the call. A `generation_config` replaces the constructor's
                options.
            count: The number of texts, if it is known.
        """
        if "generation_config" not in options:
            options = {**self.default_options, **options}
        return Request(self, options)

    def preprocess(self, input_: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Pad a batch of token ids to `input_ids` and `attention_mask` of shape
        `(batch_size, source_length)`.
        """
        options = {"padding_side": "right", "return_attention_mask": True, "return_tensors": "pt"}
        return dict(self.tokenizer.pad({"input_ids": input_}, **options))

    def _forward(
        self, input_tensors: dict[str, torch.Tensor], **generate_kwargs: Any
    ) -> torch.Tensor:
        """Generate token ids of shape `(batch_size * num_return_sequences, target_length)`."""
        if "stop_strings" in generate_kwargs or self.model.generation_config.stop_strings:
            generate_kwargs = {"tokenizer": self.tokenizer} | generate_kwargs
        outputs = self.model.generate(**input_tensors, **generate_kwargs)
        return getattr(outputs, "sequences", outputs)

    def postprocess(self, model_outputs: torch.Tensor | list[list[int]]) -> list[str]:
        """Return the text of each row of token ids."""
        texts = self.tokenizer.batch_decode(model_outputs, skip_special_tokens=True)
        return [text.strip() for text in texts]

    def generate_texts(
        self,
        sources: Sequence[Sequence[int]],
        batch_size: int,
        generate_kwargs: Mapping[str, Any],
        report: Callable[[int], object],
        read: Callable[[Any], list[Any]] | None = None,
    ) -> list[list[Any]]:
        """Return the translations of each source by `generate()`, best first, in the given order.

        Args:
            sources: Token ids.
            report: Called with the number of sources of each batch that is done.
            read: Returns the translation of each row of token ids; by default [`postprocess`].
        """
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        translations = dict[int, list[str]]()
        for batch in batches:
            inputs = self.preprocess([sources[index] for index in batch])
            texts = (read or self.postprocess)(self.forward(inputs, **generate_kwargs))
            count = len(texts) // len(batch)
            for row, index in enumerate(batch):
                translations[index] = texts[row * count : (row + 1) * count]
            report(len(batch))
        return [translations[index] for index in range(len(sources))]

    @contextmanager
    def decoding(self, total: int, progress_bar: bool | None) -> Iterator[Callable[[int], object]]:
        """Yield a function that reports decoded sentences, of which a bar shows the number, while
        the model is not in training.
        """
        hidden = None if progress_bar is None and total >= _LONG_WORK else not progress_bar
        was_training = self.model.training
        if was_training:  # visiting all layers of a model takes longer than a step of its decoder
            self.model.eval()
        try:
            with logging.tqdm(
                total=total, unit="sentence", desc="Translating", disable=hidden
            ) as bar:
                yield bar.update
        finally:
            if was_training:
                self.model.train()

    def _translate(
        self, request: Any, batch_size: int, progress_bar: bool | None, texts: list[str]
    ) -> list[Any]:
        """Return the answer of each text, or a list of them, best first."""
        segments = request.segments(texts)
        sentences = [segment for segment in chain.from_iterable(segments) if segment.tokens]
        with self.decoding(len(sentences), progress_bar) as report:
            translations = iter(request.decode(sentences, batch_size, report))
        answers, count = [], request.num_return_sequences
        for text, text_segments in zip(texts, segments, strict=True):
            n_best = []
            for segment in text_segments:
                if segment.tokens:
                    n_best.append(next(translations))
                else:
                    n_best.append([request.keep(segment)] * count)
            hypotheses = list(zip(*n_best, strict=True)) or [()] * count
            answer = [request.answer(text, text_segments, hypothesis) for hypothesis in hypotheses]
            answers.append(answer[0] if len(answer) == 1 else answer)
        return answers


def join_translations(segments: Sequence[Any], translations: Sequence[str]) -> str:
    """Join translations by the separators of their segments, or by a space if the source's script
    needs none.
    """
    if len(segments) == 1:
        return translations[0] + segments[0].separator
    pieces = []
    for segment, translation in zip(segments, translations, strict=True):
        pieces += [translation, segment.separator or " "]
    return "".join(pieces).removesuffix(" ")


def source_limits(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the numbers of tokens beyond which a line is split into sentences, and a sentence is
    cut.
    """
    longest = getattr(config, "max_source_length", None)
    most = max(longest or 0, _LONGEST_SENTENCE)
    if getattr(config, "position_embedding_type", None) == "learned":
        most = min(most, config.max_position_embeddings)
    return min(longest or most, most), most


def reads_sequences(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer is of sequences that are no language, such as molecules."""
    return bool(getattr(tokenizer, "init_kwargs", {}).get("sequences"))


def encode_segments(
    lines: Sequence[Sequence[Segment]],
    encode: Callable[[list[str]], list[list[int]]],
    longest: int,
    most: int,
    is_sequence: bool = False,
) -> list[list[Segment]]:
    """Return the segments of each text with their token ids, of which segments without letters have
    none.

    Args:
        lines: The lines of each text.
        encode: Returns the token ids of texts.
        is_sequence: Each line is a sequence that is no language: it is translated as a whole, even
            without letters, and refused if it is too long.
    """
    if is_sequence:
        sequences = _encode(lines, encode, needs_letters=False)
        length = max((len(part.tokens) for part in chain.from_iterable(sequences)), default=0)
        if length > most:
            raise UserError(
                f"A sequence must have at most {most} tokens, the longest in training or "
                f"{_LONGEST_SENTENCE}, got one of {length}. Leave it out."
            )
        return sequences
    segments: list[list[Segment]] = []
    parts = _split_long(_encode(lines, encode), encode, longest, split_sentences)
    # Until nothing is cut: a character may have more tokens than `most`.
    while sum(map(len, parts)) > sum(map(len, segments)):
        segments, parts = parts, _split_long(parts, encode, most, lambda part: _cut(part, most))
    return parts


def _split_long(
    segments: list[list[Segment]],
    encode: Callable[[list[str]], list[list[int]]],
    longest: int,
    split: Callable[[Segment], Iterable[Segment]],
) -> list[list[Segment]]:
    """Split the segments with more than `longest` tokens, and encode their parts."""
    if not any(len(segment.tokens) > longest for segment in chain.from_iterable(segments)):
        return segments
    parts = []
    for of_text in segments:
        parts_of_text: list[Segment] = []
        for segment in of_text:
            parts_of_text += split(segment) if len(segment.tokens) > longest else [segment]
        parts.append(parts_of_text)
    return _encode(parts, encode)


def _encode(
    segments: Sequence[Sequence[Segment]],
    encode: Callable[[list[str]], list[list[int]]],
    needs_letters: bool = True,
) -> list[list[Segment]]:
    """Give token ids to the segments that have letters, if these are needed, and no tokens yet."""

    def lacks_tokens(segment: Segment) -> bool:
        has_text = not needs_letters or any(map(str.isalpha, segment.text))
        return has_text and not segment.tokens

    texts = [segment.text for segment in chain.from_iterable(segments) if lacks_tokens(segment)]
    token_rows = iter(encode(texts))
    encoded = []
    for of_text in segments:
        row = []
        for segment in of_text:
            if lacks_tokens(segment):
                segment = segment._replace(tokens=next(token_rows))
            row.append(segment)
        encoded.append(row)
    return encoded


def encode_sources(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> list[list[int]]:
    """Return the token ids of each text.

    Sources of models with the setting `source_eos` end in one EOS.
    """
    if hasattr(model.config, "source_eos"):
        return encode_sentences(tokenizer, texts)
    return tokenizer(texts)["input_ids"] if texts else []


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], as_target: bool = False
) -> list[list[int]]:
    """
    Return the token ids of each source (or target) with exactly one EOS, at its end; the tokenizer
    must have one.

    Many tokenizers add no EOS, some add one at the start, and most take an EOS written in a text
    for the symbol.
    """
    eos = tokenizer.eos_token_id
    if eos is None:
        hint = "Set one with `tokenizer.add_special_tokens({'eos_token': '</s>'})`."
        raise UserError(
            f"The tokenizer must have an `eos_token`, got none from {type(tokenizer).__name__}. "
            f"{hint}"
        )
    if not texts:
        return []
    try:
        sentences = _encode_by_backend(tokenizer, texts)
        if sentences is None:
            side = {"text_target" if as_target else "text": list(texts)}
            encoding = tokenizer(**side, add_special_tokens=True, return_attention_mask=False)
            sentences = encoding["input_ids"]
    except BaseException as error:
        # Of the backend in Rust, which is no `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        if len(texts) == 1:
            raise UserError(f"The tokenizer failed to encode {texts[0]!r:.80}: {error}.") from error
        sentences = []
        for text in texts:
            sentences += encode_sentences(tokenizer, [text], as_target)
        return sentences
    for row, sentence in enumerate(sentences):
        if sentence[-1:] != [eos] or sentence.count(eos) > 1:
            sentences[row] = [token for token in sentence if token != eos] + [eos]
    return sentences


def _encode_by_backend(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[list[int]] | None:
    """
    Return the token ids of texts without the tokenizer's own overhead; None where they could differ
    from its own.

    They could where its class changes the call, or makes a difference between sources and targets.
    """
    kind = type(tokenizer)
    if not issubclass(kind, PreTrainedTokenizerFast):
        return None
    for name in ("__call__", "_encode_plus", "_switch_to_input_mode", "_switch_to_target_mode"):
        if getattr(kind, name, None) is not getattr(PreTrainedTokenizerFast, name, None):
            return None
    backend = tokenizer.backend_tokenizer
    is_plain = backend.padding is None and backend.truncation is None
    if not is_plain or backend.encode_special_tokens != tokenizer.split_special_tokens:
        return None
    return [encoding.ids for encoding in backend.encode_batch_fast(list(texts))]


def _check_strings(texts: Iterable[Any]) -> Iterator[str]:
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"Text to translate must be a string, got {type(text).__name__} ({text!r}) at "
                f"position {position}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                "Text to translate must be Unicode, got the lone surrogate "
                f"{text[error.start]!a} at position {position}."
            ) from None
        yield text


def split_lines(text: str) -> list[Segment]:
    """Split a text into lines, separated by line breaks with the white space and blank lines around
    them.
    """
    text = text.strip()
    if len(text.splitlines()) > 1:
        return list(_split_at(_LINE_GAP, Segment(text, "")))
    return [Segment(text, "")] if text else []


def split_sentences(line: Segment) -> Iterator[Segment]:
    """Split a line into sentences; the last one keeps the line's separator.

    Only in a line without capitals, a sentence after a period begins in lower case.
    """
    gap = _GAP_OF_LOWER_CASE if line.text.islower() else _SENTENCE_GAP
    return _split_at(gap, line)


def _cut(sentence: Segment, longest: int) -> Iterator[Segment]:
    """Cut a sentence into parts of about equal length, at white space near their ends if there is
    some.

    A letter keeps its marks, and a conjunct its letters, unless the sentence is only one of them.
    """
    text, start = sentence.text, 0
    borders = [0]
    for pieces in _PIECES:
        starts = [match.start() for match in pieces.finditer(text)]
        if len(starts) > 1:
            borders = starts
            break
    count = min(-(-len(sentence.tokens) // longest), len(text))
    for number in range(1, count):
        cut, reach = number * len(text) // count, len(text) // count // 4
        border = max(bisect_right(borders, cut) - 1, bisect_right(borders, start))
        # White space or a letter was longer than a part.
        if cut <= start or border == len(borders):
            continue
        cut = borders[border]
        space = _SPACE.search(text, max(start, cut - reach), cut + reach)
        if space:
            cut = space.start()
        part = text[start:cut].rstrip()
        end = len(text) - len(text[cut:].lstrip())
        yield Segment(part, text[start + len(part) : end])
        start = end
    yield Segment(text[start:], sentence.separator)


def _split_at(gap: re.Pattern[str] | regex.Pattern[str], whole: Segment) -> Iterator[Segment]:
    start = 0
    for match in gap.finditer(whole.text):
        gap_start, gap_end = match.span(match.lastindex or 0)
        if gap_end < len(whole.text):
            yield Segment(whole.text[start:gap_start], whole.text[gap_start:gap_end])
            start = gap_end
    if start < len(whole.text):
        yield Segment(whole.text[start:], whole.separator)


__all__ = ["TranslationPipeline", "encode_sentences"]
