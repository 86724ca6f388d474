"""
Compare decoding with MarianMTModel of transformers and with CTranslate2: the same weights, taking turns.

    python -m benchmarks.bench_decoding
    python -m benchmarks.bench_decoding --folder runs/multi30k_en_de --sentences test_2016_flickr.en --references …de

The first command translates 32 sentences of 24 words with random weights into exactly 32 words each, greedy and with
beam 4. The second one translates the first 1,000 lines of a text with a trained model, and then its first lines one at
a time. Marian translates in batches of 32 in the order of the file; the other systems sort the sentences themselves.
The engine runs compiled steps. The best of several rounds counts.

"Share of products" is the time of the decoder's matrix products alone, measured in the same run, as a share of the
time of a step: 1 is the limit of this machine.
"""

import copy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import AutoTokenizer

from benchmarks.harness import BenchmarkArguments, in_turns, read_arguments, write_report
from benchmarks.peers import PEERS, Peer, Translate
from benchmarks.revision_worker import build_model, build_tokenizer, random_texts
from vanilla_transformer import TranslationPipeline, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.decoding.engine.precision import measurable_precisions
from vanilla_transformer.decoding.weight_packing import PackedLinear
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.conversion.marian import model_to_marian
from vanilla_transformer.utils.file_utils import save_model_folder

COMPILE = True
VOCAB_SIZES = {"tiny": 100, "small": 8000, "base": 32_000}
SENTENCES, SOURCE_WORDS, TARGET_WORDS = 32, 24, 32
_MOST_TOKENS = 128  # of a translation of a text
_SINGLE_SENTENCES = 40  # that are translated one at a time
_ROUNDS_OF_PRODUCTS = 20


class Marian(Peer):
    """The search of transformers, by `MarianMTModel`."""

    name = "Marian"

    @contextmanager
    def load(self, folder: Path) -> Iterator[Translate]:
        model = model_to_marian(VanillaTransformerForConditionalGeneration.from_pretrained(folder))
        yield partial(translate_in_file_order, model, AutoTokenizer.from_pretrained(folder))


class Engine(Peer):
    """The pipeline of this package in one precision, with or without compiled steps."""

    ours = True

    def __init__(self, precision: str, compiled: bool = True):
        words = ["engine"] + [precision] * (precision != "float32") + ["not compiled"] * (not compiled)
        self.name, self.precision, self.compiled = ", ".join(words), precision, compiled

    @contextmanager
    def load(self, folder: Path) -> Iterator[Translate]:
        model = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        compiled = self.compiled and COMPILE
        pipe = TranslationPipeline(model, tokenizer, precision=self.precision, compile=compiled)

        def translate(texts: Sequence[str], beams: int, most: int) -> list[str]:
            search: dict[str, Any] = {"num_beams": beams, "length_penalty": 1.0, "length_penalty_type": "power"}
            answers = pipe(list(texts), max_new_tokens=most, progress_bar=False, early_stopping=False, **search)
            return [answer["translation_text"] for answer in answers]

        yield translate


@dataclass
class DecodingArguments(BenchmarkArguments):
    """Models, text and number of rounds."""

    SHORT: ClassVar[dict[str, Any]] = {"sizes": "small", "rounds": 2, "count": 200}

    sizes: str = field(
        default="small,base", metadata={"help": f"Sizes of models, separated by commas: {', '.join(VOCAB_SIZES)}."}
    )
    rounds: int = field(default=5, metadata={"help": "Rounds per system."})
    folder: str | None = field(
        default=None, metadata={"help": "Trained model: translate `sentences` instead of random words."}
    )
    sentences: str | None = field(default=None, metadata={"help": "Source text to translate."})
    references: str | None = field(default=None, metadata={"help": "Reference translations, for BLEU."})
    count: int = field(default=1000, metadata={"help": "Number of sentences to translate."})
    threads: int | None = field(default=None, metadata={"help": "Threads per system; by default all cores."})


def main(arguments: Sequence[str]) -> None:
    _, options = read_arguments(DecodingArguments, arguments, "bench_decoding")
    torch.set_num_threads(options.threads or torch.get_num_threads())
    systems = all_systems()
    notes = [reason for system in systems if (reason := system.reason_to_leave_out())]
    systems = [system for system in systems if system.reason_to_leave_out() is None]
    if "int8" not in measurable_precisions():
        notes.append("The engine has no int8 without torchao: pip install 'vanilla-transformer[int8]'.")
    if options.folder is not None:
        rows = translate_text(systems, options)
    else:
        rows = [row for size in options.sizes.split(",") for row in translate_random_words(systems, size, options)]
    write_report("decoding", options, rows, [f"{torch.get_num_threads()} threads.", *dict.fromkeys(notes)])


def all_systems() -> list[Peer]:
    """Return the compared systems; the first one is the baseline."""
    at_once = [Engine("float32", compiled=False), Engine("bfloat16", compiled=False)]
    engines = [*at_once, *map(Engine, measurable_precisions())]
    return [Marian(), *engines, PEERS["CTranslate2"], PEERS["CTranslate2, int8"]]


def translate_random_words(systems: Sequence[Peer], size: str, options: DecodingArguments) -> list[dict[str, Any]]:
    """Measure one size with random weights; every system generates the same number of words."""
    vocab_size = VOCAB_SIZES[size]
    # MarianMTModel has this ε.
    model, tokenizer = build_model(size, vocab_size, layer_norm_eps=1e-5), build_tokenizer(vocab_size)
    with torch.no_grad():
        model.lm_head.bias[model.config.decoder_start_token_id] = -1e4  # which is no word
    torch.manual_seed(1)
    texts = random_texts(SENTENCES, SOURCE_WORDS, SOURCE_WORDS, len(tokenizer))
    with tempfile.TemporaryDirectory() as name:
        folder = save_model_folder(model, tokenizer, Path(name, "model"))
        rows = measure(systems, size, folder, texts, TARGET_WORDS, options.rounds)
    wrong = {row["system"] for row in rows if row.pop("words") != SENTENCES * TARGET_WORDS}
    if wrong:
        raise ValueError(f"Every system must return {TARGET_WORDS} words per sentence, but {wrong} did not.")
    for row in rows:
        if row["system"] in ("engine", "engine, bfloat16"):
            dtype = torch.float32 if row["system"] == "engine" else torch.bfloat16
            beams = 1 if row["what"].endswith("greedy") else 4
            products = seconds_of_products(model, SENTENCES * beams, dtype)
            row["share of products"] = products * TARGET_WORDS * row["sentences/s"] / SENTENCES
    return rows


def translate_text(systems: Sequence[Peer], options: DecodingArguments) -> list[dict[str, Any]]:
    """Translate text with a trained model, all of it and its first sentences one at a time."""
    if options.folder is None or options.sentences is None:
        raise ValueError("Translation of text needs both `--folder FOLDER` and `--sentences FILE`.")
    texts = read_lines(options.sentences)[: options.count]
    references = read_lines(options.references)[: options.count] if options.references else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "model")
        folder.symlink_to(Path(options.folder).absolute())
        rows = measure(systems, "text", folder, texts, _MOST_TOKENS, options.rounds, references)
        first = texts[:_SINGLE_SENTENCES]
        rows += measure(systems, "one at a time", folder, first, _MOST_TOKENS, options.rounds, at_once=1)
    return [{column: value for column, value in row.items() if column != "words"} for row in rows]


def measure(
    systems: Sequence[Peer],
    what: str,
    folder: Path,
    texts: Sequence[str],
    most: int,
    rounds: int,
    references: Sequence[str] | None = None,
    at_once: int | None = None,
) -> list[dict[str, Any]]:
    """
    Translate texts by all systems in turns, greedily and with beam 4, and return a row for each system and search.

    Args:
        most: Tokens of a translation.
        at_once: Texts of a call; by default all.
    """
    step, rows = at_once or len(texts), []
    with ExitStack() as stack:
        loaded = {system.name: stack.enter_context(system.load(folder)) for system in systems}
        for search, beams in (("greedy", 1), ("beam 4", 4)):

            def translate(call: Translate, beams: int = beams) -> list[str]:
                starts = range(0, len(texts), step)
                return [answer for start in starts for answer in call(texts[start : start + step], beams, most)]

            sides: dict[str, Callable[[], Any]] = {name: partial(translate, call) for name, call in loaded.items()}
            outputs, seconds = in_turns(sides, rounds)
            rows += [
                {"what": f"{what}, {search}", **row}
                for row in compared(systems, len(texts), outputs, {name: min(each) for name, each in seconds.items()})
            ]
            for row in rows[-len(systems) :]:
                times = seconds[row["system"]]
                row["slowest round, %"] = 100 * (max(times) / min(times) - 1)
                row["words"] = sum(len(text.split()) for text in outputs[row["system"]])
                if references is not None:
                    row["BLEU"] = round(score(outputs[row["system"]], references).bleu, 2)
    return rows


def compared(
    systems: Sequence[Peer], count: int, outputs: Mapping[str, Sequence[str]], best: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of systems, compared with the first one and ours with CTranslate2 of a like precision."""
    first = systems[0].name
    for system in systems:
        name = system.name
        exact = isinstance(system, Engine) and system.precision == "float32"
        rival = best.get("CTranslate2" if exact else "CTranslate2, int8") if system.ours else None
        same = sum(one == other for one, other in zip(outputs[name], outputs[first], strict=True))
        yield {
            "system": name,
            "sentences/s": count / best[name],
            f"speedup over {first}": best[first] / best[name],
            "over CTranslate2": None if rival is None else rival / best[name],
            f"outputs as {first}'s": f"{same} of {count}",
        }


def translate_in_file_order(model: Any, tokenizer: Any, texts: Sequence[str], beams: int, most: int) -> list[str]:
    """Translate batches of 32 by `generate()`, as a loop over the lines of a file does."""
    answers = []
    for start in range(0, len(texts), 32):
        batch = tokenizer(list(texts[start : start + 32]), padding=True, return_tensors="pt")
        tokens = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=beams,
            do_sample=False,
            length_penalty=1.0,
            max_new_tokens=most,
        )
        answers += [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    return answers


@torch.inference_mode()
def seconds_of_products(model: Any, rows: int, dtype: torch.dtype) -> float:
    """Return the time of the matrix products of one decoder step, for that many hypotheses, all weights in turn."""
    source = {id(part) for layer in model.get_decoder().layers for part in _source_projections(layer)}
    layers = [layer for layer in model.get_decoder().modules() if isinstance(layer, torch.nn.Linear)]
    plain = [copy.deepcopy(layer).to(dtype) for layer in (*layers, model.lm_head) if id(layer) not in source]
    kinds = [plain] if dtype != torch.float32 else [plain, [PackedLinear(layer) for layer in plain]]
    inputs = {layer.in_features: torch.randn(rows, layer.in_features).to(dtype) for layer in plain}
    best = float("inf")
    for kind in kinds * _ROUNDS_OF_PRODUCTS:
        started = time.perf_counter()
        for layer in kind:
            layer(inputs[layer.in_features])
        best = min(best, time.perf_counter() - started)
    return best


def _source_projections(layer: Any) -> list[Any]:
    """Return the products that are computed once for each source."""
    return [layer.encoder_attn.k_proj, layer.encoder_attn.v_proj]


if __name__ == "__main__":
    sys.exit(run(main))
