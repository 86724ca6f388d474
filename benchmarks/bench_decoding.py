"""
Compare decoding with MarianMTModel of transformers and with CTranslate2: the same weights, taking turns.

    python -m benchmarks.bench_decoding
    python -m benchmarks.bench_decoding --profile
    python -m benchmarks.bench_decoding --folder runs/multi30k_en_de --sentences test_2016_flickr.en --references …de

The first command decodes 32 sentences of 24 tokens with random weights into exactly 32 tokens each, greedy and with
beam 4. The second profiles torch's operations. The third translates the first 1,000 lines of a text with a trained
model: Marian in batches of 32 in the order of the file, the other systems in batches of 128 that they sort themselves,
and then its first lines one at a time. The engine runs compiled steps. The best of several rounds counts.

"Share of products" is the time of the decoder's matrix products alone, measured in the same run, as a share of the
time of a step: 1 is the limit of this machine. For a text it is their time for the tokens of the translations, if all
slots of a step were always full, as a share of the whole time, with the encoder and the tokenizer.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer

from benchmarks.decoder_products import share_of_products
from benchmarks.harness import ROOT, describe_processor
from benchmarks.random_models import SIZES, random_model, save_for_ctranslate2
from benchmarks.toolkits import InstallationFailed, python_of
from vanilla_transformer import (
    Engine,
    TranslationPipeline,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerInt8Config,
)
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.conversion.marian import model_to_marian
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.decoding.engine import custom_generate
from vanilla_transformer.decoding.engine.device_profile import usual_slots
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.engine.precision import measurable_precisions
from vanilla_transformer.decoding.quantization import quantize_linears
from vanilla_transformer.evaluation.scores import score

Side = Callable[[], list[list[int]]]
Worker = Callable[..., list[list[str]]]
CTRANSLATE2 = {"CTranslate2": "float32", "CTranslate2, int8": "int8"}
ENGINES = {"engine": "float32", "engine, bfloat16": "bfloat16", "engine, int8": "int8"}
COMPILE = True
# The system of CTranslate2 with which each of ours is compared: of the same or of a reduced precision.
RIVALS = {"ours": "CTranslate2", "engine": "CTranslate2"}
RIVALS |= dict.fromkeys(["ours, int8", "engine, bfloat16", "engine, int8"], "CTranslate2, int8")
# The type of the products of our systems without quantization.
DTYPES = {"ours": torch.float32, "engine": torch.float32, "engine, bfloat16": torch.bfloat16}
SENTENCES, SOURCE_TOKENS, TARGET_TOKENS = 32, 24, 32
PEER = "Marian"
_BATCH_SIZE = 128  # for the systems that sort the stream
_SINGLE_SENTENCES = 40  # that are translated one at a time


@dataclass
class BenchmarkArguments:
    """Models, text, number of rounds, and the output file."""

    sizes: str = field(
        default="small,base", metadata={"help": f"Sizes of models, separated by commas: {', '.join(SIZES)}."}
    )
    rounds: int = field(default=5, metadata={"help": "Rounds per system."})
    folder: str | None = field(
        default=None, metadata={"help": "Trained model: translate `sentences` instead of random ids."}
    )
    sentences: str | None = field(default=None, metadata={"help": "Source text to translate."})
    references: str | None = field(default=None, metadata={"help": "Reference translations, for BLEU."})
    count: int = field(default=1000, metadata={"help": "Number of sentences to translate."})
    threads: int | None = field(default=None, metadata={"help": "Threads per system; by default all cores."})
    profile: bool = field(
        default=False, metadata={"help": "Profile beam search with beam 4 instead of measuring speed."}
    )
    output_file: str | None = field(
        default=None, metadata={"help": "Write the table to this file, and JSON next to it."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_decoding.py [--flags]")
    if words:
        raise ValueError(f"This command takes only flags, got {words[0]!r}.")
    # "ours" is `generate()` by an engine without compiled steps.
    custom_generate.EnginePool = partial(EnginePool, compile=False)  # type: ignore[assignment,misc]
    torch.set_num_threads(options.threads or torch.get_num_threads())
    releases = f"torch {torch.__version__}, transformers {transformers.__version__}"
    lines = [f"{describe_processor()}; {torch.get_num_threads()} threads; {releases}"]
    if options.profile:
        print("\n".join([*lines, "", *(line for size in options.sizes.split(",") for line in profiled(size))]))
        return
    try:
        python_of("ctranslate2")
    except InstallationFailed as error:
        lines.append(str(error))
        CTRANSLATE2.clear()
    if measurable_engines() != ENGINES:
        lines.append("The engine has no int8 without torchao: pip install 'vanilla-transformer[int8]'.")
    if options.folder is not None:
        found = stream(options)
    else:
        found = [row for size in options.sizes.split(",") for beams in (1, 4) for row in fixed(size, beams, options)]
    text = "\n".join([*lines, "", *_table(found)]) + "\n"
    print(text, end="")
    if options.output_file is not None:
        Path(options.output_file).write_text(text, encoding="utf-8")
        Path(options.output_file).with_suffix(".json").write_text(json.dumps(found, indent=2), encoding="utf-8")


def measurable_engines() -> dict[str, str]:
    """Return the precisions of the engines that work with the installed packages, by name."""
    return {name: precision for name, precision in ENGINES.items() if precision in measurable_precisions()}


def fixed(size: str, beams: int, options: BenchmarkArguments) -> list[dict[str, Any]]:
    """Measure one size with random weights and return its rows; every system generates the same number of tokens."""
    model = random_model(size)
    source = torch.randint(3, model.config.vocab_size, (SENTENCES, SOURCE_TOKENS))
    eos: Any = model.config.eos_token_id
    source[:, -1] = eos
    decoding: dict[str, Any] = {"num_beams": beams, "max_new_tokens": TARGET_TOKENS, "do_sample": False}
    decoding |= {"length_penalty": 1.0, "length_penalty_type": "power", "early_stopping": True}
    plain = {name: value for name, value in decoding.items() if name != "length_penalty_type"}
    marian = model_to_marian(model)
    in_8_bits = quantize_linears(copy.deepcopy(model))
    sides: dict[str, Side] = {
        PEER: lambda: _new_tokens(marian.generate(source, attention_mask=torch.ones_like(source), **plain)),
        "ours": lambda: _new_tokens(model.generate(source, **decoding)),
        "ours, int8": lambda: _new_tokens(in_8_bits.generate(source, **decoding)),
    }
    for name, precision in measurable_engines().items():
        engine = Engine(model, SENTENCES, precision=precision, compile=COMPILE, **decoding)
        sides[name] = partial(_first_tokens, engine, source.tolist())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as workers:
        for name, kind in CTRANSLATE2.items():
            save_for_ctranslate2(model, f"{folder}/{kind}", kind)
            worker = workers.enter_context(ctranslate2_worker(f"{folder}/{kind}"))
            sides[name] = partial(_translate_ids, worker, source.tolist(), beams)
        outputs, seconds = in_turns(sides, options.rounds)
    wrong = [name for name, rows in outputs.items() if {len(row) for row in rows} != {TARGET_TOKENS}]
    if wrong:
        raise ValueError(
            f"Every system must return {TARGET_TOKENS} tokens per sentence, but {', '.join(wrong)} did not."
        )
    rows = _rows(f"{size}, {_search_name(beams)}", SENTENCES * TARGET_TOKENS, outputs, seconds)
    for row in rows:
        if row["side"] in DTYPES:
            dtype = DTYPES[row["side"]]
            row["share of products"] = share_of_products(model, dtype, row["a second"], SENTENCES, beams)
    return rows


def _first_tokens(engine: Engine, sources: list[list[int]]) -> list[list[int]]:
    return [hypotheses[0].tokens for hypotheses in engine.translate_tokens(sources)]


@contextmanager
def ctranslate2_worker(path: str) -> Iterator[Worker]:
    """Yield a function that translates with CTranslate2 in its own process, with this process's number of threads."""
    command = [str(python_of("ctranslate2")), "-m", "benchmarks.ctranslate2_worker", path]
    process = subprocess.Popen(
        [*command, str(torch.get_num_threads())],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    requests, answers = process.stdin, process.stdout
    answers.readline()  # its version

    def translate(sentences: list[list[str]], **options: Any) -> list[list[str]]:
        requests.write(json.dumps({"sentences": sentences, "options": options}) + "\n")
        requests.flush()
        return json.loads(answers.readline())

    try:
        yield translate
    finally:
        requests.close()
        process.wait()


def _translate_ids(worker: Worker, sentences: list[list[int]], beams: int) -> list[list[int]]:
    named = [[str(token) for token in sentence] for sentence in sentences]
    answers = worker(named, beam_size=beams, max_decoding_length=TARGET_TOKENS, length_penalty=1.0)
    return [[int(token) for token in answer] for answer in answers]


def profiled(size: str) -> list[str]:
    """Return a table of the share of CPU time of torch's operations in each system."""
    model = random_model(size)
    source = torch.randint(3, model.config.vocab_size, (SENTENCES, SOURCE_TOKENS))
    decoding: dict[str, Any] = {"num_beams": 4, "max_new_tokens": TARGET_TOKENS, "do_sample": False}
    shares = [_shares(side, source, decoding) for side in (model_to_marian(model), model)]
    names = sorted(set().union(*shares), key=lambda name: -sum(side.get(name, 0.0) for side in shares))
    lines = [f"| {size}, beam 4: operation | {PEER} | ours |", "|---|---|---|"]
    for name in names[:12]:
        lines.append(f"| `{name}` | " + " | ".join(f"{side.get(name, 0.0):.0%}" for side in shares) + " |")
    return [*lines, ""]


def _shares(model: Any, source: torch.Tensor, decoding: Mapping[str, Any]) -> dict[str, float]:
    model.generate(source, **decoding)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        model.generate(source, **decoding)
    times = {event.key: event.self_cpu_time_total for event in recorded.key_averages()}
    return {name: time / sum(times.values()) for name, time in times.items()}


def stream(options: BenchmarkArguments) -> list[dict[str, Any]]:
    """Translate text with a trained model by greedy search and beam 4, and return the rows of the table."""
    from vanilla_transformer.conversion.ctranslate2 import to_ctranslate2

    if options.folder is None or options.sentences is None:
        raise ValueError("Translation of text needs both `--folder FOLDER` and `--sentences FILE`.")
    texts = read_lines(options.sentences)[: options.count]
    references = read_lines(options.references)[: options.count] if options.references else None
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model, in_8_bits = (
        VanillaTransformerForConditionalGeneration.from_pretrained(options.folder, **how)
        for how in ({"dtype": torch.float32}, {"quantization_config": VanillaTransformerInt8Config()})
    )
    marian = model_to_marian(model)
    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {}
        for name, kind in CTRANSLATE2.items():
            to_ctranslate2(options.folder, f"{folder}/{kind}", texts[:2], kind)
            workers[name] = stack.enter_context(ctranslate2_worker(f"{folder}/{kind}"))
        for beams in (1, 4):
            decoding: dict[str, Any] = {"num_beams": beams, "length_penalty": 1.0, "length_penalty_type": "power"}
            decoding["early_stopping"] = False
            sides: dict[str, Callable[[], list[str]]] = {
                PEER: partial(in_file_order, marian, tokenizer, texts, beams),
                "ours": partial(_piped, model, tokenizer, texts, decoding),
                "ours, int8": partial(_piped, in_8_bits, tokenizer, texts, decoding),
            }
            pipelines = {
                name: TranslationPipeline(model, tokenizer, precision=precision, compile=COMPILE)
                for name, precision in measurable_engines().items()
            }
            sides |= {name: partial(_all_at_once, each, texts, decoding) for name, each in pipelines.items()}
            sides |= {name: partial(_own_batches, worker, tokenizer, texts, beams) for name, worker in workers.items()}
            outputs, seconds = in_turns(sides, options.rounds)
            found = _rows(f"stream, {_search_name(beams)}", len(texts), outputs, seconds)
            for row in found:
                translations, best = outputs[row["side"]], min(seconds[row["side"]])
                if row["side"] in DTYPES:
                    speed = sum(map(len, tokenizer(translations)["input_ids"])) / best
                    slots = usual_slots(beams, model.device)
                    at_once = min(len(texts), _BATCH_SIZE if row["side"] == "ours" else slots)
                    dtype = DTYPES[row["side"]]
                    row["share of products"] = share_of_products(model, dtype, speed, at_once, beams)
                if references is not None:
                    row["BLEU"] = round(score(translations, references).bleu, 2)
            rows += found
            singles: dict[str, Callable[[], list[str]]] = {
                PEER: partial(_one_at_a_time, partial(in_file_order, marian, tokenizer, beams=beams), texts),
                "ours": partial(_one_at_a_time, partial(_piped, model, tokenizer, options=decoding), texts),
            }
            for name, pipe in pipelines.items():
                singles[name] = partial(_one_at_a_time, partial(_all_at_once, pipe, options=decoding), texts)
            for name, worker in workers.items():
                singles[name] = partial(_one_at_a_time, partial(_own_batches, worker, tokenizer, beams=beams), texts)
            outputs, seconds = in_turns(singles, options.rounds)
            rows += _rows(f"one at a time, {_search_name(beams)}", _SINGLE_SENTENCES, outputs, seconds)
    return rows


def _one_at_a_time(translate: Callable[..., list[str]], texts: Sequence[str]) -> list[str]:
    return [translate(texts=[text])[0] for text in texts[:_SINGLE_SENTENCES]]


def in_file_order(model: Any, tokenizer: Any, texts: Sequence[str], beams: int) -> list[str]:
    answers = []
    for start in range(0, len(texts), 32):
        batch = tokenizer(list(texts[start : start + 32]), padding=True, return_tensors="pt")
        tokens = model.generate(**batch, num_beams=beams, do_sample=False, length_penalty=1.0, max_new_tokens=128)
        answers += [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    return answers


def _piped(model: Any, tokenizer: Any, texts: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    return _all_at_once(TranslationPipeline(model=model, tokenizer=tokenizer, compile=False), texts, options)


def _all_at_once(translate: Any, texts: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    answers = translate(list(texts), batch_size=_BATCH_SIZE, max_new_tokens=128, progress_bar=False, **options)
    return [answer["translation_text"] for answer in answers]


def _own_batches(worker: Worker, tokenizer: Any, texts: Sequence[str], beams: int) -> list[str]:
    sources = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(list(texts))["input_ids"]]
    answers = worker(
        sources,
        beam_size=beams,
        max_batch_size=_BATCH_SIZE,
        max_decoding_length=128,
        length_penalty=1.0,
        disable_unk=True,
    )
    ids = [tokenizer.convert_tokens_to_ids(answer) for answer in answers]
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def in_turns(sides: Mapping[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Return the outputs of each system and the seconds of its rounds, after a warm-up round."""
    outputs = {name: side() for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(0.5)  # lets the other system's threads stop waiting for work
            started = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - started)
    return outputs, seconds


def _new_tokens(tokens: torch.Tensor) -> list[list[int]]:
    return tokens[:, 1:].tolist()


def _search_name(beams: int) -> str:
    return "greedy" if beams == 1 else f"beam {beams}"


def _rows(
    what: str, units: int, outputs: Mapping[str, Sequence[Any]], seconds: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    best = {name: min(each) for name, each in seconds.items()}
    return [
        {
            "what": what,
            "side": name,
            "a second": round(units / min(each)),
            "ratio": round(best[PEER] / min(each), 2),
            "to CTranslate2": round(best[RIVALS[name]] / min(each), 2) if RIVALS.get(name) in best else None,
            "spread": round(max(each) / min(each) - 1, 2),
            "same outputs": sum(one == other for one, other in zip(outputs[name], outputs[PEER], strict=True)),
            "outputs": len(outputs[name]),
        }
        for name, each in seconds.items()
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    more = [name for name in ("share of products", "BLEU") if any(name in row for row in rows)]
    head = ["what", "system", "units/s", f"speedup over {PEER}", "over CTranslate2", "slowest round"]
    head += [f"outputs as {PEER}'s", *more]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        compared = "" if row["to CTranslate2"] is None else f"{row['to CTranslate2']:.2f}"
        cells = [row["what"], row["side"], f"{row['a second']:,}", f"{row['ratio']:.2f}", compared]
        cells += [
            f"+{row['spread']:.0%}",
            f"{row['same outputs']} of {row['outputs']}",
            *(f"{row[name]:.2f}" if name in row else "" for name in more),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(run(main))
