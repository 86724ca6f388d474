r"""
Compare fine-tuning on a few pairs with training on them from random weights.

    python -m benchmarks.bench_fine_tuning runs/multi30k_en_de --source train.en --target train.de \
        --test_source val.en --test_target val.de --forgetting_source old.en --forgetting_target old.de

Both kinds of runs have the same pairs, the first ones of the text, the same architecture and the same updates. Each
kind is trained with every learning rate. BLEU on the next pairs of the text chooses the learning rate and the
checkpoint. The test text is translated at the end only, and compared by paired bootstrap resampling. A run that was
interrupted resumes, and a finished one is not repeated.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import ROOT, cpu_name, progress, write_results
from vanilla_transformer.data.readers import SentencePair, read_text_files
from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
from vanilla_transformer.evaluation.report import build_report
from vanilla_transformer.evaluation.scores import translate_and_score
from vanilla_transformer.file_utils import write_text_atomically
from vanilla_transformer.training.metrics import read_entries

_SCRATCH, _TUNED = "from random weights", "fine-tuned"
_SIZES = ("layers", "attention_heads", "ffn_dim")
_ARCHITECTURE = ["d_model", *(f"{stack}_{size}" for stack in ("encoder", "decoder") for size in _SIZES)]


class BestCheckpoint(NamedTuple):
    """The checkpoint of a kind of run that is best on the pairs that choose it."""

    folder: Path
    learning_rate: str
    step: int
    bleu: float

    @property
    def path(self) -> Path:
        return self.folder / f"best-{self.step}"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    folder = Path(options.output_dir)
    write_text(folder, options)
    best = {kind: choose(list(train(kind, folder, options))) for kind in (_SCRATCH, _TUNED)}
    pairs = read_text_files(options.test_source, options.test_target)
    translations = {kind: translate(each.path, pairs) for kind, each in best.items()}
    references = [pair.target for pair in pairs]
    baseline = build_report(translations[_SCRATCH], references).as_dict()
    tuned = build_report(translations[_TUNED], references, translations[_SCRATCH]).as_dict()
    results = {"cpu": cpu_name(), **vars(options), "best": {kind: each._asdict() for kind, each in best.items()}}
    results |= {"scores": {_SCRATCH: baseline["scores"], _TUNED: tuned["scores"]}, "comparison": tuned["comparison"]}
    results |= {"validations": list(read_validations(best[_TUNED].folder))}
    for each in results["best"].values():
        each["folder"] = str(each["folder"])
    write_results(options.output_dir, "fine_tuning", results, markdown(results))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_fine_tuning", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("model", help="folder or Hub name of the model to fine-tune, of this package")
    for name in ("source", "target", "test_source", "test_target", "forgetting_source", "forgetting_target"):
        parser.add_argument(f"--{name}", required=True, help=f"text file: {name.replace('_', ' ')}")
    parser.add_argument("--pairs", type=int, default=5000, help="pairs to train on")
    parser.add_argument("--validation_pairs", type=int, default=500, help="pairs that choose the checkpoint")
    parser.add_argument("--max_steps", type=int, default=300, help="updates of each run")
    parser.add_argument("--max_tokens", type=int, default=768, help="padded tokens of a batch on either side")
    parser.add_argument("--eval_steps", type=int, default=150, help="updates between validations")
    parser.add_argument("--learning_rates", nargs="+", default=["1e-3"], help="learning rates to choose from")
    parser.add_argument("--vocab_size", type=int, default=4000, help="vocabulary of runs from random weights")
    parser.add_argument("--output_dir", default="runs/fine_tuning", help="folder of the text, the runs and the tables")
    return parser.parse_args(arguments)


def write_text(folder: Path, options: argparse.Namespace) -> None:
    """Write the pairs to train on and the pairs that choose a checkpoint."""
    pairs = iter(read_text_files(options.source, options.target))
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", options.pairs), ("validation", options.validation_pairs)):
        some = list(islice(pairs, count))
        if len(some) < count:
            raise ValueError(f"{options.source} must have {count} more pairs for {name}, but has {len(some)}.")
        for side, lines in zip(SentencePair._fields, zip(*some, strict=True), strict=True):
            write_text_atomically(folder / f"{name}.{side}", "".join(f"{line}\n" for line in lines))


def train(kind: str, folder: Path, options: argparse.Namespace) -> Iterator[BestCheckpoint]:
    """Train with each learning rate, and yield the best checkpoints."""
    for rate in options.learning_rates:
        output = folder / f"{kind.split()[-1]}-{rate}"
        progress(f"Training: {kind}, learning rate {rate}")
        flags = recipe(kind, folder, options) | {"learning_rate": rate, "output_dir": output}
        _train([word for name, value in flags.items() for word in (f"--{name}", str(value))])
        found = max(read_validations(output), key=lambda entry: entry["bleu"] if entry["step"] else -1.0)
        yield BestCheckpoint(output, rate, found["step"], found["bleu"])


def _train(flags: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    status = subprocess.run([sys.executable, str(ROOT / "scripts" / "train.py"), *flags], env=environment).returncode
    if status:
        raise OSError(f"Training ended with status {status}. Run the same command again to resume.")


def recipe(kind: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of a run, but for its learning rate."""
    flags: dict[str, Any] = {
        f"{name}_{side}": folder / f"{name}.{side}"
        for name in ("train", "validation")
        for side in ("source", "target")
    }
    flags |= {"lr_scheduler": "inverse_sqrt", "warmup_steps": 200, "dropout": 0.3, "max_tokens": options.max_tokens}
    flags |= {"mixed_precision": "bf16", "max_steps": options.max_steps, "eval_steps": options.eval_steps}
    flags |= {"save_steps": options.eval_steps, "average_checkpoints": 1, "cache_dir": folder / "cache"}
    if kind == _TUNED:
        return flags | {
            "init_from": options.model,
            "forgetting_source": options.forgetting_source,
            "forgetting_target": options.forgetting_target,
        }
    config = load_seq2seq(options.model, "translates").config
    return flags | {"vocab_size": options.vocab_size} | {name: getattr(config, name) for name in _ARCHITECTURE}


def choose(checkpoints: Sequence[BestCheckpoint]) -> BestCheckpoint:
    """Return the best of the checkpoints of a kind."""
    return max(checkpoints, key=lambda each: each.bleu)


def read_validations(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the validations of a run in order, without the one of its final model."""
    yield from (entry for entry in read_entries(folder) if "bleu" in entry and "model" not in entry)


def translate(model: Path, pairs: Sequence[SentencePair]) -> list[str]:
    """Translate the sources with the beam of the model's generation config."""
    progress(f"Translating with {model}")
    translations, _ = translate_and_score(
        load_seq2seq(model, "translates"), load_tokenizer(model), pairs, progress_bar=False
    )
    return translations


def markdown(results: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the two kinds of runs, and a table of what fine-tuning forgets."""
    yield "| training | learning rate | best update | validation BLEU | test BLEU | test chrF |"
    yield "|---|---|---|---|---|---|"
    for kind, best in results["best"].items():
        scores = [f"{each['score']:.1f} ± {each['margin']:.1f}" for each in results["scores"][kind].values()]
        cells = [kind, best["learning_rate"], f"{best['step']:,}", f"{best['bleu']:.1f}", *scores]
        yield f"| {' | '.join(cells)} |"
    p_values = {name: each["p_value"] for name, each in results["comparison"].items()}
    yield ""
    yield f"p-values: BLEU {p_values['bleu']:.4f}, chrF {p_values['chrf']:.4f}. {results['cpu']}."
    yield ""
    yield "| updates | BLEU, new domain | chrF, new domain | BLEU, former domain | chrF, former domain |"
    yield "|---|---|---|---|---|"
    for entry in results["validations"]:
        values = [entry[name] for name in ("bleu", "chrf", "forgetting_bleu", "forgetting_chrf")]
        yield f"| {' | '.join([format(entry['step'], ','), *(f'{value:.1f}' for value in values)])} |"


if __name__ == "__main__":
    main()
