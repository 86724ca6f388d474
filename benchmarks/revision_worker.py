"""
One job of `bench_paired_revisions` on one checkout of this repository, in rounds that the parent
process starts.

    PYTHONPATH=CHECKOUT python benchmarks/revision_worker.py '{"job": "generate", "size": "small",
    …}'

Prints one line of JSON when it is ready. Each line of standard input starts a round, which is
answered by one line of JSON: wall-clock seconds, CPU seconds, units of work, and a digest of the
outputs. The worker ends with its input.

Run by path and with public names only, so that it measures any revision: it imports nothing from
`benchmarks`.
"""

import functools
import hashlib
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import PreTrainedTokenizerFast

import vanilla_transformer

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"d_model": 16, "layers": 1, "attention_heads": 2, "ffn_dim": 32},
    "demo": {"d_model": 128, "layers": 2, "attention_heads": 4, "ffn_dim": 512},
    "small": {"d_model": 256, "layers": 3, "attention_heads": 4, "ffn_dim": 1024},
    "base": {"d_model": 512, "layers": 6, "attention_heads": 8, "ffn_dim": 2048},
}
RECIPES = {"demo": "recipes/demo.yaml", "small": "recipes/small.yaml"}
VOCAB_SIZE = 8000
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SENTENCES, SOURCE_TOKENS, TARGET_TOKENS, PIPELINE_SENTENCES, STREAM_SENTENCES = 32, 24, 32, 64, 256
_WARM_UP_STEPS = 3

Round = Callable[[], tuple[int, Any]]  # returns units of work and the outputs


def model_fields(size: str) -> dict[str, int]:
    """Return the configuration's fields for one of `SIZES`, the encoder and the decoder alike."""
    shape = dict(SIZES[size])
    fields = {"d_model": shape.pop("d_model")}
    return fields | {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()
    }


def build_model(size: str, vocab_size: int = VOCAB_SIZE, **changes: Any) -> Any:
    """
    Build a model whose weights depend on their names and shapes only, so that two revisions get
    equal ones.

    It never ends a sentence by itself, so that every system decodes the same number of tokens: the
    bias of EOS and padding is low.
    """
    fields = (
        model_fields(size)
        | {"vocab_size": vocab_size, "lm_head_bias": True, "dropout": 0.1}
        | changes
    )
    config = vanilla_transformer.VanillaTransformerConfig(**fields)
    model = vanilla_transformer.VanillaTransformerForConditionalGeneration(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1:
                torch.nn.init.xavier_uniform_(parameter)
        model.lm_head.bias[[config.eos_token_id, config.pad_token_id]] = -1e4
    return model


def build_tokenizer(vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
    """Build a tokenizer of whole words w0, w1, … whose sentences end with EOS."""
    words = [
        *SPECIAL_TOKENS.values(),
        *(f"w{number}" for number in range(vocab_size - len(SPECIAL_TOKENS))),
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    eos = SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL_TOKENS)


def forward_backward(size: str, steps: int) -> Round:
    """Train the plain model on one synthetic batch: forward, backward, Adam."""
    model = build_model(size).train()
    source, labels = (
        torch.randint(3, VOCAB_SIZE, (SENTENCES, length))
        for length in (SOURCE_TOKENS, TARGET_TOKENS)
    )
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    def train() -> tuple[int, Any]:
        torch.manual_seed(1)
        for _ in range(steps):
            model(input_ids=source, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return steps * labels.numel(), None

    return train


def generate(size: str, num_beams: int) -> Round:
    """Decode one batch by `generate()`, with exactly `TARGET_TOKENS` tokens a sentence."""
    model = build_model(size)
    source = torch.randint(3, VOCAB_SIZE, (SENTENCES, SOURCE_TOKENS))
    source[:, -1] = model.config.eos_token_id

    def decode() -> tuple[int, Any]:
        tokens = model.generate(
            source,
            attention_mask=torch.ones_like(source),
            num_beams=num_beams,
            max_new_tokens=TARGET_TOKENS,
            do_sample=False,
            early_stopping=num_beams > 1,
        )
        return SENTENCES * TARGET_TOKENS, tokens.tolist()

    return decode


def translate(size: str, num_beams: int, int8: bool) -> Round:
    """Translate `PIPELINE_SENTENCES` texts of 4 to 30 words by the translation pipeline."""
    pipeline = build_pipeline(size, int8)
    texts = random_texts(PIPELINE_SENTENCES, 4, 30)

    def decode() -> tuple[int, Any]:
        answers = pipeline(texts, batch_size=32, num_beams=num_beams, max_new_tokens=TARGET_TOKENS)
        return PIPELINE_SENTENCES, [answer["translation_text"] for answer in answers]

    return decode


def translate_stream(size: str, num_beams: int, int8: bool) -> Round:
    """Translate a generator of `STREAM_SENTENCES` captions of 8 to 18 words; each target is as long
    as its source.
    """
    pipeline = build_pipeline(size, int8)
    texts = random_texts(STREAM_SENTENCES, 8, 18)

    def decode() -> tuple[int, Any]:
        answers = pipeline(iter(texts), num_beams=num_beams, max_new_tokens_beyond_source=0)
        return STREAM_SENTENCES, [answer["translation_text"] for answer in answers]

    return decode


def decode_by_engine(size: str, num_beams: int, int8: bool) -> Round:
    """Decode `STREAM_SENTENCES` sources of 8 to 18 tokens by the engine with compiled steps, to the
    same lengths.
    """
    precision = "int8" if int8 else "float32"
    engine = vanilla_transformer.Engine(
        build_model(size),
        slots=32,
        num_beams=num_beams,
        precision=precision,
        compile=True,
        max_new_tokens_beyond_source=0,
    )
    lengths = torch.randint(8, 19, (STREAM_SENTENCES,)).tolist()
    sources = [[*torch.randint(3, VOCAB_SIZE, (length,)).tolist(), 2] for length in lengths]

    def decode() -> tuple[int, Any]:
        hypotheses = engine.decode(sources)
        return STREAM_SENTENCES, [best.tokens for (best,) in hypotheses]

    return decode


def build_pipeline(size: str, int8: bool) -> Any:
    """Build the translation pipeline with the model and the tokenizer of this module."""
    precision = "int8" if int8 else None
    return vanilla_transformer.TranslationPipeline(
        build_model(size), build_tokenizer(), precision=precision
    )


def random_texts(
    sentences: int, shortest: int, longest: int, vocab_size: int = VOCAB_SIZE
) -> list[str]:
    """Return texts of `shortest` to `longest` random words."""
    lengths = torch.randint(shortest, longest + 1, (sentences,)).tolist()
    words = (
        torch.randint(vocab_size - len(SPECIAL_TOKENS), (length,)).tolist() for length in lengths
    )
    return [" ".join(f"w{word}" for word in sentence) for sentence in words]


def run_training_command(
    size: str, steps: int, mixed_precision: str, folder: str, name: str
) -> None:
    """Train by the command `train` for ever; every `steps` optimizer steps after the warm-up are
    one round.
    """
    tokens_of = _count_target_tokens()
    done = 0
    clocks: list[float] = []

    def after_step(*_: Any) -> None:
        nonlocal done, clocks
        done += 1
        if done < _WARM_UP_STEPS or (done - _WARM_UP_STEPS) % steps:
            return
        if clocks:
            _answer(_elapsed(clocks) | {"units": tokens_of["total"], "digest": None})
        else:
            _answer({"ready": vanilla_transformer.__file__})
        if not sys.stdin.readline():
            os._exit(0)
        tokens_of["total"], clocks = 0, _clocks()

    register_optimizer_step_post_hook(after_step)
    flags: dict[str, Any] = {
        "train_source": f"{folder}/train.a",
        "train_target": f"{folder}/train.b",
    }
    flags |= {
        "tokenizer": f"{folder}/tokenizer",
        "output_dir": f"{folder}/{name}",
        "cache_dir": f"{folder}/{name}.c",
    }
    flags |= {"max_steps": 10**6, "max_minutes": 10**6, "save_steps": 10**6, "logging_steps": 10**6}
    flags["mixed_precision"] = mixed_precision
    # The checkout's own recipe, if the size has one: it may name another attention implementation
    # than the old one.
    recipe = [RECIPES[size]] if size in RECIPES else []
    flags |= {} if recipe else model_fields(size) | {"max_tokens": 2048}
    words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    sys.exit(_command_line()(["train", *recipe, *words]))


def _command_line() -> Callable[[list[str]], int]:
    """Return the package's console command, which older revisions call `commands`."""
    try:
        return importlib.import_module("vanilla_transformer.cli").main
    except ModuleNotFoundError:
        return importlib.import_module("vanilla_transformer.commands").main


def _count_target_tokens() -> dict[str, int]:
    """Count the target tokens, without padding, that pass the model's `forward` in training."""
    model_class: Any = vanilla_transformer.VanillaTransformerModel
    forward, counted = model_class.forward, {"total": 0}
    signature = inspect.signature(forward)  # revisions pass tensors by position or by name

    @functools.wraps(forward)
    def counting_forward(model: Any, *arguments: Any, **tensors: Any) -> Any:
        if model.training:
            given = signature.bind(model, *arguments, **tensors).arguments
            counted["total"] += int((given["decoder_input_ids"] != model.config.pad_token_id).sum())
        return forward(model, *arguments, **tensors)

    model_class.forward = counting_forward
    return counted


def _clocks() -> list[float]:
    return [time.perf_counter(), time.process_time()]


def _elapsed(started: list[float]) -> dict[str, float]:
    wall, cpu = (now - then for now, then in zip(_clocks(), started, strict=True))
    return {"seconds": wall, "cpu_seconds": cpu}


def _answer(message: dict[str, Any]) -> None:
    os.write(_ANSWERS, json.dumps(message).encode() + b"\n")


def serve_rounds(work: Round) -> None:
    """Warm up, then do one round for each line of standard input."""
    work()
    _answer({"ready": vanilla_transformer.__file__})
    for _ in sys.stdin:
        started = _clocks()
        units, outputs = work()
        elapsed = _elapsed(started)
        digest = (
            None if outputs is None else hashlib.sha256(json.dumps(outputs).encode()).hexdigest()
        )
        _answer(elapsed | {"units": units, "digest": digest})


def main(job: str, **options: Any) -> None:
    """Run one job until standard input ends."""
    torch.manual_seed(0)
    if job == "train":
        run_training_command(**options)
    else:
        jobs: dict[str, Callable[..., Round]] = {"step": forward_backward, "generate": generate}
        jobs |= {"pipeline": translate, "stream": translate_stream, "engine": decode_by_engine}
        serve_rounds(jobs[job](**options))


if __name__ == "__main__":
    _ANSWERS = os.dup(1)
    os.dup2(2, 1)  # whatever the package prints goes to standard error
    main(**json.loads(sys.argv[1]))
