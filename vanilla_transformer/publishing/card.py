"""The model card: a template filled with what training recorded and with facts that only people know."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from safetensors import safe_open
from transformers import AutoConfig, GenerationConfig
from transformers.utils import SAFE_WEIGHTS_NAME

_UNKNOWN = "unknown"
_FACTS = {"name", "source_language", "target_language", "source_name", "target_name", "license", "data"}
_FACTS |= {"data_licence", "validation_text", "hardware", "example", "limits"}


def read_facts(path: str | Path) -> dict[str, str]:
    """
    What no run can know about a model, from a YAML file.

    Raises:
        OSError: there is no such file.
        ValueError: a fact is missing, or there is one that no card shows.
    """
    facts = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    for names, problem in ((_FACTS - facts.keys(), "lacks"), (facts.keys() - _FACTS, "has the unknown fact")):
        if names:
            raise ValueError(f"The file of facts {path} {problem} {min(names)!r}. Write 'unknown' where it is.")
    return facts


def render_card(folder: str | Path, facts: Mapping[str, str], template: str | Path, version: str) -> ModelCard:
    """
    The card of the model in `folder`. What was not recorded there is said to be unknown.

    Args:
        facts: See [`read_facts`].
        template: A Jinja template such as `model_card/template.md`.
        version: The version of the package that trained the model.

    Raises:
        ValueError, OSError: the folder holds no model.
    """
    folder = Path(folder)
    config = AutoConfig.from_pretrained(folder)
    recorded = _last_validation(folder)
    recipe = _read_json(folder / "recipe.json")
    return ModelCard.from_template(
        _card_data(facts, recorded, version),
        template_path=str(template),
        **{**facts, "limits": facts["limits"].strip()},
        version=version,
        location=str(folder),
        parameters=f"{_count_parameters(folder):,}",
        shape=_shape(config),
        vocab_size=f"{config.vocab_size:,}",
        max_source_length=config.max_source_length or _UNKNOWN,
        steps=f"{recorded['step']:,}" if recorded else _UNKNOWN,
        minutes=f"{recorded['minutes']:.0f}" if recorded else _UNKNOWN,
        decoding=_decoding(GenerationConfig.from_pretrained(folder)),
        # A bar would end the cell of the table, even within code.
        results=[{**row, "signature": row["signature"].replace("|", "\\|")} for row in _results(facts, recorded)],
        recipe=json.dumps(recipe, indent=2) if recipe else _UNKNOWN,
    )


def _card_data(facts: Mapping[str, str], recorded: Mapping[str, Any], version: str) -> ModelCardData:
    return ModelCardData(
        model_name=facts["name"],
        language=[facts["source_language"], facts["target_language"]],
        license=facts["license"],
        library_name="transformers",
        pipeline_tag="translation",
        tags=["vanilla-transformer", f"vanilla-transformer-{version}"],
        eval_results=[
            EvalResult(
                task_type="translation",
                dataset_type="text",
                dataset_name=row["text"],
                metric_type=row["measure"].lower(),
                metric_value=row["score"],
                metric_args=row["signature"],
            )
            for row in _results(facts, recorded)
        ]
        or None,
    )


def _results(facts: Mapping[str, str], recorded: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "text": facts["validation_text"],
            "measure": measure,
            "score": round(recorded[measure.lower()], 2),
            "signature": recorded[f"{measure.lower()}_signature"],
        }
        for measure in ("BLEU", "chrF")
        if measure.lower() in recorded
    ]


def _last_validation(folder: Path) -> dict[str, Any]:
    """The last line of the metrics that a validation wrote; it is of the final model."""
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    validations = [entry for entry in map(json.loads, lines) if "validation_loss" in entry]
    return validations[-1] if validations else {}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _count_parameters(folder: Path) -> int:
    """Parameters in the weights; tied ones are there once."""
    with safe_open(folder / SAFE_WEIGHTS_NAME, framework="pt") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def _shape(config: Any) -> str:
    layers = f"{config.encoder_layers} + {config.decoder_layers}"
    return f"{layers}, {config.d_model}, {config.encoder_attention_heads}, {config.encoder_ffn_dim}"


def _decoding(generation_config: GenerationConfig) -> str:
    parts = [f"beam {generation_config.num_beams or 1}", f"α = {generation_config.length_penalty}"]
    margin = getattr(generation_config, "max_new_tokens_beyond_source", None)
    if margin is not None:
        parts.append(f"at most source length + {margin} tokens")
    return ", ".join(parts)
