# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`pipeline("translation")`, which transformers 5 no longer has: raw text in, translated text out."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig
from transformers.pipelines import Pipeline
from transformers.utils import logging

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .linear_vanilla_transformer import packed_linears
from .tokenization_vanilla_transformer import encode_sentences

_DEFAULT_BATCH_SIZE = 32
_BATCHES_PER_WINDOW = 64  # how far ahead a stream is read, to find sentences of one length
_BATCHES_AT_ONCE = 4  # at most: Python, which takes turns, is a part of each step
_LONG_WORK = 256  # sentences from which on a progress bar is shown on a terminal
_MAX_NEW_TOKENS_BEYOND_SOURCE = 50  # section 6.1, where a checkpoint says nothing
# The name, within a folder for CTranslate2, of the configuration of the model that it was made of.
CONVERTED_CONFIG = "vanilla_transformer_config.json"
_CTRANSLATE2_PARAMETERS = {"num_beams", "num_return_sequences", "length_penalty", "length_penalty_type"}
_CTRANSLATE2_PARAMETERS |= {"max_new_tokens", "max_new_tokens_beyond_source", "repetition_penalty"}
_CTRANSLATE2_PARAMETERS |= {"no_repeat_ngram_size", "do_sample", "temperature", "top_k", "top_p"}
_WHITE_SPACE = re.compile(r"\s+")
# Where sentences of a line part, as the last group: the white space behind a Western, Arabic or Indic mark (and what
# may close behind it); the place behind a run of CJK marks, which needs none.
_SENTENCE_GAP = re.compile(
    r"""[.!?…؟۔।]["'”’»)\]]*(\s+)|(?<![。！？])[。！？][。！？」』”’）]*(\s*)(?=[^\s。！？」』”’）])"""
)


class _Segment(NamedTuple):
    """A piece of a text that is translated by itself, and the white space between it and the next one."""

    text: str
    separator: str


class _Run(NamedTuple):
    """How one call is to be done."""

    batch_size: int
    progress_bar: bool | None
    generate_kwargs: dict[str, Any]


class TranslationPipeline(Pipeline):
    """
    Translates raw text with any sequence-to-sequence model of transformers.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    Input is a string or a list (or another sequence, such as a dataset's column), answered by a list with one
    `{"translation_text": …}` each; or any other iterable, answered by a generator that reads it in windows. With
    `num_return_sequences` over 1 there is a list of them for each text, best first.

    Sentences are sorted by length into batches of `batch_size` (32 by default) and come back in the order given. On a
    CPU several batches are decoded at a time, unless they share a state, such as random numbers. Line breaks stay. A
    line with more tokens than `config.max_source_length`, the longest source in training, is split into sentences,
    none of which is cut. Blank text gives an empty translation.

    `progress_bar` switches the bar on or off; by default it is shown on a terminal for 256 sentences and more. All
    other keyword arguments are those of `generate()`, whose defaults are the checkpoint's own.

    `TranslationPipeline(folder, backend="ctranslate2")` runs a folder that was converted for CTranslate2, with the
    same interface; [`CTranslate2Model.generate`] says which arguments it knows.

    Raises:
        ValueError: something that is not a string stands in the input, `batch_size` is not a positive integer,
            `generate()` does not know an argument, or there is no such backend.
        OSError: the folder is not one for CTranslate2, or CTranslate2 is not installed.
    """

    _load_tokenizer = True

    def __init__(self, model: Any, tokenizer: Any = None, *, backend: str | None = None, **kwargs: Any):
        if backend not in (None, "ctranslate2"):
            raise ValueError(f"`backend` must be None or 'ctranslate2', got {backend!r}.")
        if backend is not None:
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(model, config=read_converted_config(model))
            model = CTranslate2Model(model, tokenizer, kwargs.get("device") or "cpu")
            kwargs["device"] = model.device
        super().__init__(model=model, tokenizer=tokenizer, **{"task": "translation", **kwargs})

    def _sanitize_parameters(
        self, progress_bar: bool | None = None, **generate_kwargs: Any
    ) -> tuple[dict, dict, dict]:
        # How a call is run is read by `__call__` from the first of the three, what is generated from the second.
        return {} if progress_bar is None else {"progress_bar": progress_bar}, generate_kwargs, {}

    def __call__(self, inputs: str | Iterable[str], batch_size: int | None = None, **kwargs: Any) -> Any:
        shown, generate_kwargs, _ = self._sanitize_parameters(**kwargs)
        if "generation_config" not in generate_kwargs:  # a whole config leaves nothing of what construction said
            generate_kwargs = {**self._forward_params, **generate_kwargs}
        run = _Run(
            batch_size=_first_given(batch_size, self._batch_size, _DEFAULT_BATCH_SIZE),
            progress_bar={**self._preprocess_params, **shown}.get("progress_bar"),
            generate_kwargs=generate_kwargs,
        )
        if type(run.batch_size) is not int or run.batch_size < 1:
            raise ValueError(f"`batch_size` must be an integer of 1 or more, got {run.batch_size!r}.")
        if isinstance(inputs, str):
            return self._translate([inputs], run)
        if isinstance(inputs, Mapping | bytes) or not (hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")):
            raise ValueError(
                f"Text to translate must be a string or an iterable of strings, got {type(inputs).__name__}."
            )
        if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
            return self._translate(list(_strings(inputs)), run)
        return self._stream(_strings(inputs), run)

    def preprocess(self, input_: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """One padded batch of ids: `input_ids` and `attention_mask` of shape `(batch_size, source_length)`."""
        padded = self.tokenizer.pad(
            {"input_ids": input_}, padding_side="right", return_attention_mask=True, return_tensors="pt"
        )
        return dict(padded)

    def _forward(self, input_tensors: dict[str, torch.Tensor], **generate_kwargs: Any) -> torch.Tensor:
        """Generated ids of shape `(batch_size * num_return_sequences, target_length)`."""
        outputs = self.model.generate(**input_tensors, **generate_kwargs)
        return getattr(outputs, "sequences", outputs)

    def postprocess(self, model_outputs: torch.Tensor) -> list[str]:
        return [text.strip() for text in self.tokenizer.batch_decode(model_outputs, skip_special_tokens=True)]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text. Models of other kinds want what their tokenizers give, which need not end in EOS."""
        if self.model.config.model_type == VanillaTransformerConfig.model_type:
            return encode_sentences(self.tokenizer, texts)
        return self.tokenizer(list(texts))["input_ids"] if texts else []

    def _stream(self, texts: Iterator[str], run: _Run) -> Iterator:
        while window := list(islice(texts, run.batch_size * _BATCHES_PER_WINDOW)):
            yield from self._translate(window, run)

    def _translate(self, texts: list[str], run: _Run) -> list[Any]:
        split_texts = self._split(texts)
        translated = iter(self._translate_sentences([part.text for parts in split_texts for part in parts], run))
        return [self._join(parts, [next(translated) for _ in parts], run) for parts in split_texts]

    def _split(self, texts: list[str]) -> list[list[_Segment]]:
        """The segments of each text, lines or sentences; none where it is blank."""
        split_texts = [list(_split_lines(text)) for text in texts]
        longest = getattr(self.model.config, "max_source_length", None)
        if longest is None:
            return split_texts
        encoded = iter(self._encode([line.text for lines in split_texts for line in lines]))
        return [
            [part for line in lines for part in (_split_sentences(line) if len(next(encoded)) > longest else [line])]
            for lines in split_texts
        ]

    def _translate_sentences(self, sentences: list[str], run: _Run) -> list[list[str]]:
        """Translations of each sentence, best first, in the order given; batches hold sentences of like length."""
        encoded = self._encode(sentences)
        order = sorted(range(len(sentences)), key=lambda index: len(encoded[index]), reverse=True)
        batches = [order[start : start + run.batch_size] for start in range(0, len(order), run.batch_size)]
        translations: list[list[str]] = [[] for _ in sentences]
        with _progress_bar(len(sentences), run.progress_bar) as bar, _ready(self.model, several=len(batches) > 1):
            sources = ([encoded[index] for index in batch] for batch in batches)
            generated = self._generate(sources, self._at_once(len(batches), run), run)
            for batch, outputs in zip(batches, generated, strict=True):
                texts = self.postprocess(outputs)
                each = len(texts) // len(batch)
                for row, index in enumerate(batch):
                    translations[index] = texts[row * each : (row + 1) * each]
                bar.update(len(batch))
        return translations

    def _generate(self, batches: Iterable[list[list[int]]], at_once: int, run: _Run) -> Iterator[torch.Tensor]:
        def generate(batch: list[list[int]]) -> torch.Tensor:
            return self.forward(self.preprocess(batch), **run.generate_kwargs)

        return _in_threads(generate, batches, at_once) if at_once > 1 else map(generate, batches)

    def _at_once(self, batches: int, run: _Run) -> int:
        """
        How many batches are decoded at a time: several on a CPU, where the small operations of a step do not fill all
        its cores. One where batches share more than the model: random numbers, or objects that are given.
        """
        is_known = self.model.config.model_type == VanillaTransformerConfig.model_type
        if not (is_known and isinstance(self.model, nn.Module) and self.device.type == "cpu"):
            return 1
        options = run.generate_kwargs
        config: Any = options.get("generation_config") or self.model.generation_config
        given = [value for name, value in options.items() if name != "generation_config"]
        if not all(map(_is_plain, given)) or _first_given(options.get("do_sample"), config.do_sample, False):
            return 1
        return min(batches, torch.get_num_threads(), _BATCHES_AT_ONCE)

    def _join(self, segments: list[_Segment], translations: list[list[str]], run: _Run) -> Any:
        """One text's answer: its segments' translations with the white space that stood between them."""
        hypotheses = [()] * self._hypotheses(run) if not segments else zip(*translations, strict=True)
        answers = [{"translation_text": _join_segments(segments, texts)} for texts in hypotheses]
        return answers[0] if len(answers) == 1 else answers

    def _hypotheses(self, run: _Run) -> int:
        """How many translations of each text are asked for."""
        kwargs, name = run.generate_kwargs, "num_return_sequences"
        passed = getattr(kwargs.get("generation_config"), name, None)
        return _first_given(kwargs.get(name), passed, self.model.generation_config.num_return_sequences, 1)


@contextmanager
def _ready(model: Any, several: bool) -> Iterator[None]:
    """Dropout is off, which a model fresh from training still has on; weights are packed once for several batches."""
    was_training = model.training
    model.eval()
    try:
        with packed_linears(model) if several and isinstance(model, nn.Module) else nullcontext():
            yield
    finally:
        model.train(was_training)


def _in_threads(function: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """`map(function, items)` by several threads, among which those of torch are divided."""
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "batch", torch.set_num_threads, (cores // threads,)) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(cores)  # which threads that begin later would have from the last call


def _is_plain(value: Any) -> bool:
    """Whether a value is of numbers and strings only, which nothing changes while it is read."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


class CTranslate2Model:
    """
    A folder for CTranslate2, as `vanilla-transformer convert` writes it, with what this pipeline needs of a model.

    Args:
        tokenizer: Of the same folder.
        device: `"cpu"`, `"cuda"` or `"cuda:1"`.

    Raises:
        OSError: the folder is not one for CTranslate2, or CTranslate2 is not installed.
    """

    training = False
    input_modalities = output_modalities = ("text",)

    def __init__(self, folder: str | Path, tokenizer: Any, device: str | torch.device = "cpu"):
        try:
            import ctranslate2
        except ImportError as error:
            raise OSError(f"CTranslate2 is not installed ({error}). `pip install ctranslate2` installs it.") from error
        self.device = torch.device(device)
        self.config = read_converted_config(folder)
        self.generation_config = GenerationConfig.from_pretrained(folder)
        self._tokenizer = tokenizer
        try:
            index = self.device.index or 0
            self._translator = ctranslate2.Translator(str(folder), device=self.device.type, device_index=index)
        except RuntimeError as error:
            raise OSError(f"{folder} is not a whole folder for CTranslate2: {error}") from error

    def can_generate(self) -> bool:
        return True

    def eval(self) -> "CTranslate2Model":
        return self

    def train(self, mode: bool = True) -> "CTranslate2Model":
        return self

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """
        Ids of shape `(batch_size * num_return_sequences, target_length)`, best first for each sentence.

        Knows `num_beams`, `num_return_sequences`, `length_penalty`, `length_penalty_type`, `max_new_tokens`,
        `max_new_tokens_beyond_source`, `repetition_penalty`, `no_repeat_ngram_size` and, with `do_sample`,
        `temperature`, `top_k` and `top_p`. The search compares hypotheses by CTranslate2's length penalty, which is
        `"power"`; those that it finishes are put in order by the one asked for. The limit by the source's length is
        that of the longest source of the batch.

        Raises:
            ValueError: an argument is unknown.
        """
        options = self._options(kwargs)
        sources = [ids[kept.bool()].tolist() for ids, kept in zip(input_ids, attention_mask, strict=True)]
        limit = options.max_new_tokens or max(map(len, sources)) + options.max_new_tokens_beyond_source
        beams = 1 if options.do_sample else options.num_beams or 1
        results = self._translator.translate_batch(
            [self._tokenizer.convert_ids_to_tokens(source) for source in sources],
            beam_size=beams,
            num_hypotheses=max(beams, options.num_return_sequences or 1),
            length_penalty=_first_given(options.length_penalty, 1.0),
            repetition_penalty=_first_given(options.repetition_penalty, 1.0),
            no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
            max_decoding_length=limit,
            return_scores=True,
            disable_unk=True,
            **_sampling_options(options),
        )
        best_first = [self._best_hypotheses(result, options) for result in results]
        rows = [ids for hypotheses in best_first for ids in hypotheses]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._tokenizer.pad_token_id)

    def _options(self, kwargs: Mapping[str, Any]) -> GenerationConfig:
        """The checkpoint's own decoding, but for what is given; a given limit replaces the one by the source."""
        unknown = kwargs.keys() - _CTRANSLATE2_PARAMETERS
        if unknown:
            raise ValueError(
                f"CTranslate2 knows {', '.join(sorted(_CTRANSLATE2_PARAMETERS))}, but not {min(unknown)!r}."
            )
        options = copy.deepcopy(self.generation_config)
        options.update(**kwargs)
        if getattr(options, "max_new_tokens_beyond_source", None) is None:
            options.max_new_tokens_beyond_source = _MAX_NEW_TOKENS_BEYOND_SOURCE
        return options

    def _best_hypotheses(self, result: Any, options: GenerationConfig) -> list[torch.Tensor]:
        """Ids of as many hypotheses as are asked for, in the order of the length penalty that is asked for."""
        alpha = _first_given(options.length_penalty, 1.0)
        scored = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            length = len(tokens) + 1  # EOS
            if getattr(options, "length_penalty_type", None) == "wu":
                score *= length**alpha / ((5 + length) / 6) ** alpha
            scored.append((score, tokens))
        scored.sort(key=lambda pair: -pair[0])
        kept = [tokens for _, tokens in scored[: options.num_return_sequences or 1]]
        return [torch.tensor(self._tokenizer.convert_tokens_to_ids(tokens), dtype=torch.long) for tokens in kept]


def read_converted_config(folder: str | Path) -> VanillaTransformerConfig:
    """
    The configuration of the model that a folder for CTranslate2 was made of.

    Raises:
        OSError: there is none, so that the folder was not made by this package.
    """
    path = Path(folder) / CONVERTED_CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} must be a folder that `vanilla-transformer convert` made for CTranslate2, but {path.name} is "
            "not in it."
        )
    return VanillaTransformerConfig.from_json_file(path)


def _sampling_options(options: GenerationConfig) -> dict[str, Any]:
    if not options.do_sample:
        return {}
    return {
        "sampling_topk": options.top_k if options.top_k is not None else 50,
        "sampling_topp": _first_given(options.top_p, 1.0),
        "sampling_temperature": _first_given(options.temperature, 1.0),
    }


def _first_given(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _strings(texts: Iterable[Any]) -> Iterator[str]:
    """Passes texts on, and anything else it refuses."""
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"Text to translate must be a string, got {type(text).__name__} ({text!r}) at position {position}."
            )
        yield text


def _progress_bar(sentences: int, wanted: bool | None) -> Any:
    on_terminals_only = None
    hidden = not wanted if wanted is not None else True if sentences < _LONG_WORK else on_terminals_only
    return logging.tqdm(total=sentences, unit="sentence", desc="Translating", disable=hidden)


def _split_lines(text: str) -> Iterator[_Segment]:
    """The lines of a text; a line break and all white space around it, blank lines too, separates two of them."""
    text = text.strip()
    spaces = (match.span() for match in _WHITE_SPACE.finditer(text))
    return _cut(text, (span for span in spaces if _breaks_line(text[slice(*span)])))


def _breaks_line(white_space: str) -> bool:
    return white_space.splitlines() != [white_space]


def _split_sentences(line: _Segment) -> Iterator[_Segment]:
    """The sentences of a line; the last one is followed by what followed the line."""
    gaps = (match.span(match.lastindex or 0) for match in _SENTENCE_GAP.finditer(line.text))
    return _cut(line.text, gaps, line.separator)


def _cut(text: str, gaps: Iterable[tuple[int, int]], last_separator: str = "") -> Iterator[_Segment]:
    """Cuts `text` at `gaps`, each from start to end, which become the separators."""
    start = 0
    for gap_start, gap_end in gaps:
        yield _Segment(text[start:gap_start], text[gap_start:gap_end])
        start = gap_end
    if start < len(text):
        yield _Segment(text[start:], last_separator)


def _join_segments(segments: Sequence[_Segment], translations: Sequence[str]) -> str:
    """Translations with their separators, or a space where the source's script needs none between sentences."""
    pieces = (text + (segment.separator or " ") for segment, text in zip(segments, translations, strict=True))
    return "".join(pieces).removesuffix(" ")


def register_translation_pipeline() -> None:
    """
    Makes `pipeline("translation")` and `pipeline("translation_xx_to_yy")` work, in releases of transformers that have
    removed the task and in those that have not. Called when the package is imported.
    """
    from transformers import pipelines

    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    registry = pipelines.PIPELINE_REGISTRY
    registry.supported_tasks.pop("translation", None)  # registering twice would warn
    registry.register_pipeline("translation", pipeline_class=TranslationPipeline, pt_model=AutoModelForSeq2SeqLM)
    # With this mark `save_pretrained` would write the pipeline's code beside the model, which nobody could then load
    # without `trust_remote_code=True`, not even with this package.
    del TranslationPipeline._registered_impl
    plain_check = type(registry).check_task

    def check_task(task: str) -> tuple[str, dict, Any]:
        """`translation_en_to_de` names the languages for the reader; the checkpoint knows them already."""
        return plain_check(registry, "translation" if re.fullmatch("translation_.+_to_.+", task) else task)

    registry.check_task = check_task


__all__ = [
    "CONVERTED_CONFIG",
    "CTranslate2Model",
    "TranslationPipeline",
    "read_converted_config",
    "register_translation_pipeline",
]
