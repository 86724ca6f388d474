"""
Compare decoding with MarianMTModel of transformers and with CTranslate2: the same weights, each in
its own process.

    python -m benchmarks.bench_decoding
    python -m benchmarks.bench_decoding --folder runs/multi30k_en_de --sentences test_2016_flickr.en
    --references …de python -m benchmarks.bench_decoding --sizes small --rows one --systems "at
    once" CTranslate2 python -m benchmarks.bench_decoding --sizes opus --rows "one at a time" text
    --count 200 --singles 20 --rounds 2

The first command measures models with random weights, which end no sentence themselves: 32
sentences of 24 words into exactly 32 words each, a text of 1,000 captions into 14 words each, and
its first 40 captions one at a time. The second one translates the first 1,000 lines of a text with
a trained model, and then the first 40 one at a time; with `--sizes small,trained,base`, it measures
all that. The third one measures a part. The fourth one has a `MarianMTModel` of the size and with
the generation config of OPUS-MT models, which the pipeline converts in memory, and CTranslate2 by
its own converter. Each translation ends by the forced EOS; CTranslate2 computes one more word
instead.

All systems are started once for each model. They take turns and are idle in between, and the best
of their rounds counts: sentences a second or, one at a time, the median of the milliseconds of a
sentence. Marian translates in batches of 32 in the order of the file; the other systems sort the
sentences themselves. The engine runs eager steps ("at once") or compiled ones, which it compiles
before the first round if no run did. Each row is compared with the first system, and each one of
ours with the better CTranslate2.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, NamedTuple

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from benchmarks import peers
from benchmarks.harness import (
    BenchmarkArguments,
    ask,
    cell,
    in_turns,
    is_worker,
    progress,
    read_arguments,
    table,
    write_report,
)
from benchmarks.peers import Peer, Translate, work_as_named
from benchmarks.revision_worker import build_model, build_tokenizer, random_texts
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.decoding.engine.precision import resolve_precision
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.conversion.marian import model_to_marian
from vanilla_transformer.loading.model_folders import save_model_folder

OPUS = "opus"
VOCAB_SIZES = {"tiny": 100, "small": 8000, "base": 32_000, OPUS: 58_101}
OPUS_SIZES = {
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}
OPUS_SIZES |= {
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "max_position_embeddings": 512,
}
TRAINED = "trained"
SEARCHES = {"greedy": 1, "beam 4": 4}
SENTENCES, SOURCE_WORDS, TARGET_WORDS = 32, 24, 32
_CAPTION_WORDS, _CAPTION_TARGET_WORDS = (8, 18), 14
_BASE_SHARE = 4  # of the captions, one in so many is translated by the base model
_MOST_TOKENS = 128  # of a translation of a text
_SPEED, _LATENCY, _RATIO = "sentences/s", "ms a sentence", "over the better CTranslate2"


class Marian(Peer):
    """The search of transformers, by `MarianMTModel`."""

    name = "Marian"
    worker = "bench_decoding"

    def load(self, folder: Path) -> Translate:
        logging.set_verbosity_error()  # two limits of the length are a warning for each batch
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model = model if isinstance(model, MarianMTModel) else model_to_marian(model)
        return partial(translate_in_file_order, model, AutoTokenizer.from_pretrained(folder))


class Engine(Peer):
    """The pipeline of this package in one precision, with or without compiled steps."""

    ours = True
    worker = "bench_decoding"

    def __init__(self, precision: str, compiled: bool):
        self.name = f"engine, {'compiled' if compiled else 'at once'}, {precision}"
        self.precision, self.compiled = precision, compiled

    def load(self, folder: Path) -> Translate:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        pipe = TranslationPipeline(
            model, tokenizer, precision=self.precision, compile=self.compiled
        )

        def translate(texts: Sequence[str], beams: int, most: int) -> list[str]:
            search: dict[str, Any] = {
                "num_beams": beams,
                "length_penalty": 1.0,
                "length_penalty_type": "power",
            }
            search["protect"] = False  # the peers keep no text
            answers = pipe(
                list(texts), max_new_tokens=most, progress_bar=False, early_stopping=False, **search
            )
            return [answer["translation_text"] for answer in answers]

        return translate


_COMPILED = ["float32", "auto", *(["int8"] if find_spec("torchao") is not None else [])]
_SYSTEMS: list[Peer] = [
    Marian(),  # the baseline
    *(Engine(precision, compiled=False) for precision in ("float32", "auto")),
    *(Engine(precision, compiled=True) for precision in _COMPILED),
    *(peer for peer in peers.PEERS.values() if isinstance(peer, peers.CTranslate2)),
]
PEERS: dict[str, Peer] = {system.name: system for system in _SYSTEMS}


@dataclass
class DecodingArguments(BenchmarkArguments):
    """Models, text and number of rounds."""

    SHORT: ClassVar[dict[str, Any]] = {"sizes": "small", "rounds": 2, "count": 200}

    sizes: str | None = field(
        default=None,
        metadata={
            "help": f"Models, separated by commas: {', '.join(VOCAB_SIZES)} with random weights, "
            f"or {TRAINED}, that of `folder`. By default small,base, or {TRAINED} if there is a "
            "folder."
        },
    )
    rows: list[str] | None = field(
        default=None,
        metadata={"help": "Only rows whose name contains one of these words; by default all."},
    )
    systems: list[str] | None = field(
        default=None,
        metadata={"help": "Only systems whose name contains one of these words; by default all."},
    )
    rounds: int = field(default=5, metadata={"help": "Rounds per system; half as many for texts."})
    folder: str | None = field(
        default=None, metadata={"help": "Trained model, which translates `sentences`."}
    )
    sentences: str | None = field(default=None, metadata={"help": "Source text to translate."})
    references: str | None = field(
        default=None, metadata={"help": "Reference translations, for BLEU."}
    )
    count: int = field(
        default=1000,
        metadata={"help": f"Number of sentences of a text; the base model gets 1/{_BASE_SHARE}."},
    )
    singles: int = field(
        default=40, metadata={"help": "Number of sentences that are translated one at a time."}
    )
    threads: int | None = field(
        default=None, metadata={"help": "Threads per system; by default all cores."}
    )


class Task(NamedTuple):
    """
    Texts that all systems translate.

    Attributes:
        what: Name in tables.
        most: Tokens of a translation.
        at_once: Texts of a call.
        exact: Whether each translation has `most` words.
        forced: Whether the last word is EOS, which CTranslate2 does not force.
    """

    what: str
    texts: list[str]
    most: int
    at_once: int
    rounds: int
    exact: bool = True
    references: list[str] | None = None
    beams: int = 1
    forced: bool = False

    def request(self, count: int | None = None) -> dict[str, Any]:
        """Return the request of the first texts, by default of all, to a worker; see
        [`peers.serve`].
        """
        return {
            "texts": self.texts[:count],
            "beams": self.beams,
            "most": self.most,
            "at_once": self.at_once,
        }


def is_chosen(name: str, words: Sequence[str] | None) -> bool:
    """Return whether one of the words, if there are any, is in a name."""
    return any(word in name for word in words or [""])


def main(arguments: Sequence[str]) -> None:
    _, options = read_arguments(DecodingArguments, arguments, "bench_decoding")
    threads = options.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    systems = [system for system in PEERS.values() if is_chosen(system.name, options.systems)]
    reasons = {
        system.name: reason for system in systems if (reason := system.reason_to_leave_out())
    }
    systems = [system for system in systems if system.name not in reasons]
    notes = [f"{threads} threads.", *dict.fromkeys(reasons.values())]
    if "int8" not in _COMPILED:
        notes.append(
            "The engine has no int8 without torchao: pip install 'vanilla-transformer[int8]'."
        )
    sizes = (options.sizes or ("small,base" if options.folder is None else TRAINED)).split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for size in sizes:
            folder = Path(name, size)
            tasks = (
                trained_tasks(folder, options)
                if size == TRAINED
                else random_tasks(size, folder, options)
            )
            model = AutoModelForSeq2SeqLM.from_pretrained(folder)
            notes.append(f"{size}: auto is {resolve_precision(model, 'auto')}.")
            tasks = [
                task._replace(what=what, beams=beams)
                for task in tasks
                for search, beams in SEARCHES.items()
                if is_chosen(what := f"{task.what}, {search}", options.rows)
            ]
            for found in measure(systems, folder, tasks, threads) if systems and tasks else ():
                rows += found
                progress("\n".join(map(str, found)))
                write_report("decoding", options, rows, notes, overview(rows), shown=False)
    if not rows:
        raise ValueError(
            f"There must be a row and a system, got --rows {options.rows} --systems "
            f"{options.systems}."
        )
    write_report("decoding", options, rows, notes, [*overview(rows), *table(rows)])


def random_tasks(size: str, folder: Path, options: DecodingArguments) -> list[Task]:
    """Write a model with random weights; every system generates the same number of words."""
    vocab_size = VOCAB_SIZES[size]
    if size == OPUS:
        model, tokenizer = build_opus(vocab_size)
    else:  # MarianMTModel has this ε
        model, tokenizer = (
            build_model(size, vocab_size, layer_norm_eps=1e-5),
            build_tokenizer(vocab_size),
        )
        with torch.no_grad():
            model.lm_head.bias[model.config.decoder_start_token_id] = -1e4  # which is no word
    save_model_folder(model, tokenizer, folder)
    torch.manual_seed(1)
    texts = random_texts(SENTENCES, SOURCE_WORDS, SOURCE_WORDS, len(tokenizer))
    count = options.count // (_BASE_SHARE if size == "base" else 1)
    captions = random_texts(count, *_CAPTION_WORDS, len(tokenizer))
    batch = Task(size, texts, TARGET_WORDS, SENTENCES, options.rounds)
    tasks = [batch, *text_tasks(size, captions, _CAPTION_TARGET_WORDS, options)]
    return [task._replace(forced=size == OPUS) for task in tasks]


def build_opus(vocab_size: int) -> tuple[MarianMTModel, PreTrainedTokenizerFast]:
    """Build a model with random weights that is otherwise as OPUS-MT's, and a tokenizer of whole
    words w0, w1, …
    """
    eos, pad = 0, vocab_size - 1
    ids = {
        "eos_token_id": eos,
        "bos_token_id": eos,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
    }
    config = MarianConfig(
        vocab_size=vocab_size,
        activation_function="swish",
        scale_embedding=True,
        forced_eos_token_id=eos,
        **OPUS_SIZES,
        **ids,
    )
    model = MarianMTModel(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1 and "embed_positions" not in name:
                torch.nn.init.xavier_uniform_(parameter)
        model.get_input_embeddings().weight[pad] = 0.0  # CTranslate2's decoder starts with zero
        model.final_logits_bias[0, eos] = -1e4  # all translations have as many words
    search = {
        "bad_words_ids": [[pad]],
        "forced_eos_token_id": eos,
        "renormalize_logits": True,
        "num_beams": 4,
    }
    model.generation_config = GenerationConfig(**ids, **search, max_length=512)
    words = ["</s>", "<unk>", *(f"w{number}" for number in range(vocab_size - 3)), "<pad>"]
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", eos)]
    )
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def trained_tasks(folder: Path, options: DecodingArguments) -> list[Task]:
    """Link a trained model and read the text."""
    if options.folder is None or options.sentences is None:
        raise ValueError("Translation of text needs both `--folder FOLDER` and `--sentences FILE`.")
    folder.symlink_to(Path(options.folder).absolute())
    texts = read_lines(options.sentences)[: options.count]
    references = read_lines(options.references)[: options.count] if options.references else None
    text, single = text_tasks(TRAINED, texts, _MOST_TOKENS, options)
    return [text._replace(exact=False, references=references), single._replace(exact=False)]


def text_tasks(
    model: str, texts: list[str], most: int, options: DecodingArguments
) -> tuple[Task, Task]:
    """Return the task of a text as a whole and of its first sentences one at a time."""
    rounds = max(1, options.rounds // 2)
    whole = Task(f"{model}, text", texts, most, len(texts), rounds)
    return whole, Task(f"{model}, one at a time", texts[: options.singles], most, 1, rounds)


def measure(
    systems: Sequence[Peer], folder: Path, tasks: Sequence[Task], threads: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of all systems for each task as soon as it is measured."""
    with ExitStack() as stack:
        workers = {}
        for system in systems:
            workers[system.name] = stack.enter_context(system.start(folder, threads))
        pool = stack.enter_context(ThreadPoolExecutor(len(systems)))
        for task in tasks:  # all load and compile at the same time, which takes a core each
            list(pool.map(partial(ask, request=task.request(1)), workers.values()))
        for task in tasks:
            yield compared(systems, task, in_turns(workers, task.request(), task.rounds))


def compared(
    systems: Sequence[Peer], task: Task, answers: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """
    Return the rows of systems, compared with the first one and ours with the better CTranslate2.

    Raises:
        ValueError: a system returned another number of words than it must.
    """
    outputs = {name: rounds[0]["outputs"] for name, rounds in answers.items()}
    for system in systems:
        if task.forced and isinstance(system, peers.CTranslate2):
            outputs[system.name] = [text.rpartition(" ")[0] for text in outputs[system.name]]
    words = {name: sum(len(text.split()) for text in texts) for name, texts in outputs.items()}
    most = task.most - task.forced
    wrong = {
        name for name, number in words.items() if task.exact and number != len(task.texts) * most
    }
    if wrong:
        raise ValueError(
            f"Every system must return {most} words per sentence, but {wrong} did not."
        )
    seconds = {
        name: [median(each["seconds"]) / task.at_once for each in rounds]
        for name, rounds in answers.items()
    }
    best = {name: min(each) for name, each in seconds.items()}
    rival = min(
        (best[system.name] for system in systems if isinstance(system, peers.CTranslate2)),
        default=None,
    )
    first, rows = systems[0].name, []
    for system in systems:
        name = system.name
        same = sum(one == other for one, other in zip(outputs[name], outputs[first], strict=True))
        speed = {_SPEED: 1 / best[name]} if task.at_once > 1 else {_LATENCY: 1000 * best[name]}
        row = {
            "what": task.what,
            "system": name,
            **speed,
            f"speedup over {first}": best[first] / best[name],
        }
        row[_RATIO] = rival / best[name] if rival is not None and system.ours else None
        row[f"outputs as {first}'s"] = f"{same} of {len(task.texts)}"
        row["slowest round, %"] = 100 * (max(seconds[name]) / best[name] - 1)
        if task.references is not None:
            row["BLEU"] = round(score(outputs[name], task.references).bleu, 2)
        rows.append(row)
    return rows


def overview(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a Markdown table for each model: systems, rows and, in brackets, the ratio to the
    better CTranslate2.
    """
    lines, models = [], dict.fromkeys(row["what"].partition(", ")[0] for row in rows)
    for model in models:
        cells: dict[str, dict[str, str]] = {}
        for row in rows:
            size, _, what = row["what"].partition(", ")
            if size == model:
                speed, column = (
                    (row[_SPEED], what) if _SPEED in row else (row[_LATENCY], f"{what}, ms")
                )
                ratio = "" if row[_RATIO] is None else f" ({cell(row[_RATIO])})"
                cells.setdefault(row["system"], {model: row["system"]})[column] = (
                    cell(speed) + ratio
                )
        lines += [*table([*cells.values()]), ""]
    return lines


def translate_in_file_order(
    model: Any, tokenizer: Any, texts: Sequence[str], beams: int, most: int
) -> list[str]:
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
        answers += [
            text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)
        ]
    return answers


if __name__ == "__main__":
    if is_worker():
        work_as_named("benchmarks.bench_decoding")
    else:
        sys.exit(run(main))
