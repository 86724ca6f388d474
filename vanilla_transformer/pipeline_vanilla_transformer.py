# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`pipeline("translation")`, which transformers 5 removed: raw text in, translated text out."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from transformers.pipelines import Pipeline
from transformers.utils import logging

_BATCHES_PER_WINDOW = 64  # how far ahead a stream is read, to batch sentences of similar length
_LONG_WORK = 256  # sentences from which a terminal shows a progress bar
_LINE_GAP = re.compile(r"(?<!\s)\s*[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")  # the line breaks of `str.splitlines`
# The white space after Western, Arabic or Indic punctuation (and closing quotation marks and brackets), or the empty
# gap after CJK punctuation, as the last group.
_SENTENCE_GAP = re.compile(
    r"""[.!?…؟۔।]["'”’»)\]]*(\s+)|(?<![。！？])[。！？][。！？」』”’）]*(\s*)(?=[^\s。！？」』”’）])"""
)


class Segment(NamedTuple):
    """A line or sentence that is translated by itself, and the white space before the next one."""

    text: str
    separator: str


class TranslationPipeline(Pipeline):
    """
    Translate raw text with any sequence-to-sequence model of transformers.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    A string or a sequence of strings (a list, a dataset's column) returns a list with one `{"translation_text": …}`
    for each; any other iterable returns a generator, which reads ahead in windows. With `num_return_sequences` over 1
    each text has a list of them, best first.

    Sentences are sorted by length into batches of `batch_size` (32 by default) and returned in the given order; with
    the package installed, several batches are decoded at once on a CPU. Line breaks are kept. A line with more tokens
    than `config.max_source_length`, the longest source in training, is split into sentences, which are never cut.
    Blank text has an empty translation.

    `progress_bar` turns the bar on or off; by default a terminal shows it for 256 sentences or more. All other keyword
    arguments are passed to `generate()`, whose defaults are the checkpoint's.

    Raises:
        ValueError: An input is not a string, `batch_size` is below 1, or `generate()` does not accept an argument.
    """

    _load_tokenizer = True
    # The installed package sets (model, options, function, batches) -> outputs in order, of several batches at once.
    map_batches: Callable[..., Iterator[torch.Tensor]] | None = None

    def __init__(self, *args: Any, batch_size: int | None = None, progress_bar: bool | None = None, **kwargs: Any):
        self.default_batch_size = 32 if batch_size is None else batch_size
        self.default_progress_bar = progress_bar
        super().__init__(*args, **{"task": "translation", **kwargs})

    def _sanitize_parameters(self, **generate_kwargs: Any) -> tuple[dict, dict, dict]:
        self.default_generate_kwargs = generate_kwargs  # called by the constructor only
        return {}, {}, {}

    def __call__(
        self,
        inputs: str | Iterable[str],
        batch_size: int | None = None,
        progress_bar: bool | None = None,
        **generate_kwargs: Any,
    ) -> Any:
        batch_size = self.default_batch_size if batch_size is None else batch_size
        progress_bar = self.default_progress_bar if progress_bar is None else progress_bar
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(f"`batch_size` must be an integer of 1 or more, got {batch_size!r}.")
        if "generation_config" not in generate_kwargs:  # which replaces all defaults of the constructor
            generate_kwargs = {**self.default_generate_kwargs, **generate_kwargs}
        translate = partial(self._translate, batch_size, progress_bar, generate_kwargs)
        if isinstance(inputs, str):
            return translate([inputs])
        if isinstance(inputs, Mapping | bytes) or not (hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")):
            raise ValueError(f"`inputs` must be a string or an iterable of strings, got {type(inputs).__name__}.")
        texts = _check_strings(inputs)
        if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
            return translate(list(texts))
        windows = iter(lambda: list(islice(texts, batch_size * _BATCHES_PER_WINDOW)), [])
        return (answer for window in windows for answer in translate(window))

    def preprocess(self, input_: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Pad a batch of token ids to `input_ids` and `attention_mask` of shape `(batch_size, source_length)`."""
        options = {"padding_side": "right", "return_attention_mask": True, "return_tensors": "pt"}
        return dict(self.tokenizer.pad({"input_ids": input_}, **options))

    def _forward(self, input_tensors: dict[str, torch.Tensor], **generate_kwargs: Any) -> torch.Tensor:
        """Generate token ids of shape `(batch_size * num_return_sequences, target_length)`."""
        outputs = self.model.generate(**input_tensors, **generate_kwargs)
        return getattr(outputs, "sequences", outputs)

    def postprocess(self, model_outputs: torch.Tensor | list[list[int]]) -> list[str]:
        return [text.strip() for text in self.tokenizer.batch_decode(model_outputs, skip_special_tokens=True)]

    def _translate(self, batch_size: int, progress_bar: bool | None, options: dict, texts: list[str]) -> list[Any]:
        segments = self._split(texts, options)
        sentences = [segment.text for text_segments in segments for segment in text_segments]
        hidden = None if progress_bar is None and len(sentences) >= _LONG_WORK else not progress_bar
        was_training = self.model.training
        if was_training:  # visiting all layers of a model takes longer than a step of its decoder
            self.model.eval()
        try:
            with logging.tqdm(total=len(sentences), unit="sentence", desc="Translating", disable=hidden) as bar:
                translations = iter(self._generate(sentences, batch_size, options, bar.update))
        finally:
            if was_training:
                self.model.train()
        answers = []
        for text_segments in segments:
            hypotheses = list(zip(*[next(translations) for _ in text_segments], strict=True))
            hypotheses = hypotheses or [()] * self._num_return_sequences(options)
            answer = [self._answer(text_segments, hypothesis, options) for hypothesis in hypotheses]
            answers.append(answer[0] if len(answer) == 1 else answer)
        return answers

    def _answer(self, segments: Sequence[Segment], translations: Sequence[Any], options: dict) -> dict[str, Any]:
        """Join translations by their separators, or by a space if the source's script needs none."""
        pieces = (text + (segment.separator or " ") for segment, text in zip(segments, translations, strict=True))
        return {"translation_text": "".join(pieces).removesuffix(" ")}

    def _split(self, texts: list[str], options: dict) -> list[list[Segment]]:
        """Return the segments of each text: lines, or sentences of lines that are too long; none for blank text."""
        split_texts = [list(split_lines(text)) for text in texts]
        longest = getattr(self.model.config, "max_source_length", None)
        if longest is None:
            return split_texts
        encoded = iter(self._encode([line.text for lines in split_texts for line in lines], options))
        return [
            [part for line in lines for part in (split_sentences(line) if len(next(encoded)) > longest else [line])]
            for lines in split_texts
        ]

    def _generate(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[Any]]:
        """Return the translations of each sentence, best first, in the given order."""
        encoded = self._encode(sentences, options)
        order = sorted(range(len(sentences)), key=lambda index: len(encoded[index]), reverse=True)
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

        def generate(batch: list[int]) -> torch.Tensor:
            return self.forward(self.preprocess([encoded[index] for index in batch]), **options)

        run = map if self.map_batches is None else partial(self.map_batches, self.model, options)
        translations = dict[int, list[str]]()
        for batch, outputs in zip(batches, run(generate, batches), strict=True):
            texts = self.postprocess(outputs)
            each = len(texts) // len(batch)
            translations |= {index: texts[row * each : (row + 1) * each] for row, index in enumerate(batch)}
            report(len(batch))
        return [translations[index] for index in range(len(sentences))]

    def _encode(self, texts: list[str], options: dict) -> list[list[int]]:
        """Return the token ids of each text. Sources of models with the setting `source_eos` end in one EOS."""
        if hasattr(self.model.config, "source_eos"):
            return encode_sentences(self.tokenizer, texts)
        return self.tokenizer(texts)["input_ids"] if texts else []

    def _num_return_sequences(self, options: dict[str, Any]) -> int:
        configs = options.get("generation_config"), self.model.generation_config
        levels = [options, *(vars(config) for config in configs if config is not None)]
        return next((level["num_return_sequences"] for level in levels if level.get("num_return_sequences")), 1)


def encode_sentences(tokenizer: Any, texts: Sequence[str], as_target: bool = False) -> list[list[int]]:
    """
    Return the token ids of each source (or target) with exactly one EOS, at its end; the tokenizer must have one.

    Many tokenizers add no EOS, some add one at the start, and most take an EOS written in a text for the symbol.
    """
    eos = tokenizer.eos_token_id
    if eos is None:
        hint = "Set one with `tokenizer.add_special_tokens({'eos_token': '</s>'})`."
        raise ValueError(f"The tokenizer must have an `eos_token`, got none from {type(tokenizer).__name__}. {hint}")
    if not texts:
        return []
    given = {"text_target" if as_target else "text": list(texts)}
    sentences = tokenizer(**given, add_special_tokens=True, return_attention_mask=False)["input_ids"]
    return [[*(token for token in sentence if token != eos), eos] for sentence in sentences]


def _check_strings(texts: Iterable[Any]) -> Iterator[str]:
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            found = f"{type(text).__name__} ({text!r})"
            raise ValueError(f"Text to translate must be a string, got {found} at position {position}.")
        yield text


def split_lines(text: str) -> Iterator[Segment]:
    """Split a text into lines, separated by line breaks with the white space and blank lines around them."""
    return _split_at(_LINE_GAP, Segment(text.strip(), ""))


def split_sentences(line: Segment) -> Iterator[Segment]:
    """Split a line into sentences; the last one keeps the line's separator."""
    return _split_at(_SENTENCE_GAP, line)


def _split_at(gap: re.Pattern[str], whole: Segment) -> Iterator[Segment]:
    start = 0
    for match in gap.finditer(whole.text):
        gap_start, gap_end = match.span(match.lastindex or 0)
        yield Segment(whole.text[start:gap_start], whole.text[gap_start:gap_end])
        start = gap_end
    if start < len(whole.text):
        yield Segment(whole.text[start:], whole.separator)


__all__ = ["TranslationPipeline", "encode_sentences"]
