"""Compare a teacher with its student on test text: scores, speed and size."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import hash_json
from vanilla_transformer.decoding.engine.precision import precision_of
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import ensemble_arguments, hash_model
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.file_utils import write_text_atomically

_ROUNDS = 3  # of which the fastest counts, after one that loads or compiles the steps


@dataclass(frozen=True)
class System:
    """
    Models and their decoding.

    Attributes:
        name: In the table.
        models: Folders or Hub names; several are an ensemble.
        weights: Of the models of an ensemble.
        num_beams, precision: None for the checkpoint's.
        compile: Compile the decoding steps first. Otherwise the ones of the cache are used.
    """

    name: str
    models: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    num_beams: int | None = None
    precision: str | None = None
    compile: bool = False


@dataclass(frozen=True)
class Result:
    """
    The scores, the speed and the size of a system.

    Attributes:
        name: Of the system.
        num_beams, precision: Of its decoding.
        bleu, chrf: Corpus scores of sacreBLEU, from 0 to 100.
        sentences_per_second: The highest of several rounds.
        parameters, megabytes: Of the weights of all models, as they are stored.
    """

    name: str
    num_beams: int
    precision: str
    bleu: float
    chrf: float
    sentences_per_second: float
    parameters: int
    megabytes: float


def measure(system: System, pairs: Sequence[SentencePair], path: Path) -> Result:
    """
    Translate and score test text, or read the result of an earlier run of the same system from `path`.

    The translations are written to a file with the same name and the suffix `.txt`.

    Raises:
        ValueError, OSError: There is no such model, or it cannot decode with the precision.
    """
    origin = _origin(system, pairs)
    stored = _read(path)
    if stored.get("origin") == origin:
        return Result(**stored["result"])
    translate = _load(system)
    search = {} if system.num_beams is None else {"num_beams": system.num_beams}
    sources, seconds = [pair.source for pair in pairs], list[float]()
    for _ in range(1 + _ROUNDS):
        start = time.perf_counter()
        answers = translate(sources, progress_bar=False, **search)
        seconds.append(time.perf_counter() - start)
    texts = [answer["translation_text"] for answer in answers]
    scores = score(texts, [pair.target for pair in pairs])
    model, weights = translate.model, [*translate.decoded_model.parameters()]
    result = Result(
        system.name,
        system.num_beams or model.generation_config.num_beams or 1,
        system.precision or precision_of(model) or str(model.dtype),
        scores.bleu,
        scores.chrf,
        len(sources) / min(seconds[1:]),
        sum(weight.numel() for weight in weights),
        sum(weight.nbytes for weight in weights) / 10**6,
    )
    write_text_atomically(path.with_suffix(".txt"), (f"{text}\n" for text in texts))
    write_text_atomically(path, json.dumps({"origin": origin, "result": asdict(result)}, indent=2) + "\n")
    return result


def as_table(results: Sequence[Result]) -> str:
    """Return the results in Markdown. The speedup is over the first system."""
    columns = ["system", "beams", "precision", "BLEU", "chrF", "sentences/s", "speedup", "parameters", "MB"]
    lines = [columns, ["---"] * 3 + ["---:"] * 6]
    for each in results:
        speedup = each.sentences_per_second / results[0].sentences_per_second
        numbers = [f"{each.bleu:.2f}", f"{each.chrf:.2f}", f"{each.sentences_per_second:.1f}", f"{speedup:.2f}"]
        lines.append(
            [each.name, str(each.num_beams), each.precision, *numbers, f"{each.parameters:,}", f"{each.megabytes:.1f}"]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _load(system: System) -> Any:
    first, *others = system.models
    further = ensemble_arguments(others, system.weights)
    return load_pipeline(first, precision=system.precision, compile=True if system.compile else "auto", **further)


def _origin(system: System, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    hashes = [hash_model(name) for name in system.models]
    return json.loads(json.dumps({"system": asdict(system), "models": hashes, "text": hash_json([*pairs])}))


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file of results; without one, or if it is damaged, nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


__all__ = ["Result", "System", "as_table", "measure"]
