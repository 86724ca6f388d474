"""The model card: a template filled with what training and evaluation recorded, and facts that only people know."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import safe_open
from transformers import AutoConfig, GenerationConfig

from .staging import CARD_NAME, publishable_files, sha256

# What training and evaluation leave in a run's folder.
_METRICS, _RECIPE, _CORPUS, _MACHINE = "metrics.jsonl", "recipe.json", "corpus.json", "machine.json"
_EVALUATIONS = "evaluations"

_UNKNOWN = "unknown"
_FACTS = {"name", "source_language", "target_language", "source_name", "target_name", "license", "data"}
_FACTS |= {"validation_text", "example", "limits"}
_FACTS_OF_DATA = {"name", "licence"}
_LABELS = {"bleu": "BLEU", "chrf": "chrF", "paper_bleu": "paper's BLEU", "tokenized_bleu": "tokenised BLEU"}
_HASH = re.compile(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def read_facts(path: str | Path) -> dict[str, Any]:
    """
    What no run can know about a model, from a YAML file.

    Raises:
        OSError: there is no such file.
        ValueError: a fact is missing, or there is one that no card shows.
    """
    facts = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise ValueError(
            f"The file of facts {path} must hold a mapping such as `name: …`, got {type(facts).__name__}."
        )
    _check_names(path, facts, _FACTS)
    if not isinstance(facts["data"], list) or not all(isinstance(corpus, dict) for corpus in facts["data"]):
        raise ValueError(f"`data` in {path} must be a list of corpora, each with a `name` and a `licence`.")
    for corpus in facts["data"]:
        _check_names(path, corpus, _FACTS_OF_DATA)
    return facts


def _check_names(path: str | Path, given: Mapping[str, Any], known: set[str]) -> None:
    for names, problem in ((known - given.keys(), "lacks"), (given.keys() - known, "has the unknown fact")):
        if names:
            raise ValueError(f"The file of facts {path} {problem} {min(names)!r}. Write 'unknown' where it is.")


def render_card(
    folder: str | Path,
    facts: Mapping[str, Any],
    template: str | Path,
    version: str,
    run: str | Path | None = None,
    location: str | None = None,
) -> ModelCard:
    """
    The card of the model in `folder`. What was not recorded is said to be unknown.

    Args:
        facts: See [`read_facts`].
        template: A Jinja template such as `model_card/template.md`.
        version: The version of the package that trained the model.
        run: The folder with what training and evaluation recorded; by default that of the model.
        location: Where others find the model, such as `"user/name"`; by default the folder.

    Raises:
        ValueError, OSError: the folder holds no model.
    """
    folder, run = Path(folder), Path(run or folder)
    config = AutoConfig.from_pretrained(folder)
    recorded, recipe = _last_validation(run), _read_json(run / _RECIPE)
    evaluations = [_read_json(path) for path in sorted((run / _EVALUATIONS).glob("*.json"))]
    results = [*_validation_results(facts, recorded), *_test_results(evaluations)]
    return ModelCard.from_template(
        _card_data(facts, results, version),
        template_path=str(template),
        **{**facts, "limits": facts["limits"].strip()},
        version=version,
        location=location or str(folder),
        parameters=f"{_count_parameters(folder):,}",
        shape=_shape(config),
        vocab_size=f"{config.vocab_size:,}",
        max_source_length=config.max_source_length or _UNKNOWN,
        pairs=_pairs(_read_json(run / _CORPUS)),
        overlap=_overlap(_read_json(run / _CORPUS)),
        steps=f"{recorded['step']:,}" if recorded else _UNKNOWN,
        minutes=f"{recorded['minutes']:.0f}" if recorded else _UNKNOWN,
        hardware=_read_json(run / _MACHINE).get("hardware", _UNKNOWN),
        versions=_versions(_read_json(run / _MACHINE)),
        decoding=describe_decoding(GenerationConfig.from_pretrained(folder)),
        results=[{**row, "signature": _in_a_cell(row["signature"])} for row in results],
        mistakes=[_in_cells(mistake) for evaluation in evaluations for mistake in evaluation.get("worst", [])],
        recipe=json.dumps(recipe, indent=2) if recipe else _UNKNOWN,
        hashes=[(path.name, sha256(path)) for path in publishable_files(folder) if path.name != CARD_NAME],
    )


def hashes_in_card(text: str) -> dict[str, str]:
    """The SHA-256 of each file that a card lists."""
    return dict(_HASH.findall(text))


def _card_data(facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], version: str) -> ModelCardData:
    return ModelCardData(
        model_name=facts["name"],
        language=[facts["source_language"], facts["target_language"]],
        license=facts["license"],
        library_name="transformers",
        pipeline_tag="translation",
        tags=["vanilla-transformer", f"vanilla-transformer-{version}"],
        metrics=sorted({row["metric"] for row in results}) or None,
        eval_results=[
            EvalResult(
                task_type="translation",
                dataset_type="text",
                dataset_name=row["text"],
                metric_type=row["metric"],
                metric_name=row["measure"],
                metric_value=row["score"],
                metric_args={"signature": row["signature"], "interval_95": row["margin"]},
            )
            for row in results
        ]
        or None,
    )


def _validation_results(facts: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What training measured at its end; it draws no resamples, so that there is no interval."""
    return [
        _result(facts["validation_text"], metric, recorded[metric], None, recorded[f"{metric}_signature"])
        for metric in ("bleu", "chrf")
        if metric in recorded
    ]


def _test_results(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `evaluate --name` recorded."""
    return [
        _result(evaluation["name"], metric, found["score"], found["margin"], found["signature"])
        for evaluation in evaluations
        for metric, found in evaluation["scores"].items()
    ]


def _result(text: str, metric: str, score: float, margin: float | None, signature: str) -> dict[str, Any]:
    return {
        "text": text,
        "metric": metric,
        "measure": _LABELS[metric],
        "score": round(score, 2),
        "margin": _UNKNOWN if margin is None else round(margin, 2),
        "signature": signature,
    }


def _last_validation(run: Path) -> dict[str, Any]:
    """The last line of the metrics that a validation wrote; it is of the final model."""
    metrics = run / _METRICS
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    validations = [entry for entry in map(json.loads, lines) if "validation_loss" in entry]
    return validations[-1] if validations else {}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _pairs(corpus: Mapping[str, Any]) -> str:
    cleaning = corpus.get("cleaning")
    if not cleaning:
        return _UNKNOWN
    dropped = ", ".join(f"{count:,} {rule}" for rule, count in cleaning["dropped"].items())
    return f"{cleaning['kept']:,} of {cleaning['read']:,} pairs" + (f" (dropped: {dropped})" if dropped else "")


def _overlap(corpus: Mapping[str, Any]) -> list[str]:
    """A sentence for each text that training compared with its own."""
    return [
        f"Of the {found['pairs']:,} {name} pairs {found['both']:,} are in the training text, {found['sources']:,} of "
        f"the source and {found['targets']:,} of the target sentences."
        for name, found in corpus.get("overlap", {}).items()
    ]


def _versions(machine: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in machine.get("versions", {}).items()) or _UNKNOWN


def _in_a_cell(text: str) -> str:
    """A bar would end the cell of the table, even within code; a line break the row."""
    return " ".join(text.split()).replace("|", "\\|")


def _in_cells(mistake: Mapping[str, Any]) -> dict[str, str]:
    return {name: _in_a_cell(str(mistake[name])) for name in ("source", "translation", "reference")}


def _count_parameters(folder: Path) -> int:
    """Parameters in the weights; tied ones are there once."""
    count = 0
    for path in publishable_files(folder):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as weights:
                count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return count


def _shape(config: Any) -> str:
    layers = f"{config.encoder_layers} + {config.decoder_layers}"
    return f"{layers}, {config.d_model}, {config.encoder_attention_heads}, {config.encoder_ffn_dim}"


def describe_decoding(generation_config: GenerationConfig) -> str:
    """What `generate()` does by default, in words."""
    parts = [f"beam {generation_config.num_beams or 1}", f"α = {generation_config.length_penalty}"]
    margin = getattr(generation_config, "max_new_tokens_beyond_source", None)
    if margin is not None:
        parts.append(f"at most source length + {margin} tokens")
    return ", ".join(parts)
