"""Render the model card from a template, the records of training and evaluation, and a file of
facts.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import TemplateError
from safetensors import safe_open
from transformers import GenerationConfig
from transformers.utils import CONFIG_NAME

from vanilla_transformer.decoding.pretrained import load_config, refusing_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.metric_labels import METRIC_LABELS
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.loading.model_names import refuse_pipes
from vanilla_transformer.text.languages import base_language
from vanilla_transformer.text.translation_warnings import OF_TEXT

from .marian_branch import MARIAN, can_be_marian
from .run_records import (
    CURVE,
    EVALUATIONS,
    STRESS_TABLES,
    learning_curve,
    read_emissions,
    read_record,
    read_records,
    read_validations,
)
from .staging import CARD_NAME, find_task, publishable_files

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Records of training and evaluation in a run's folder.
_RECIPE, _CORPUS, _MACHINE = "recipe.json", "corpus.json", "machine.json"
# Entries of a recipe that say nothing about the model, or are derived and no key.
_LEFT_OUT = ("output_dir", "cache_dir", "pad_to_multiple_of")

_UNKNOWN = "unknown"
_LEAST_BLEU = 20.0  # below it, a translation often has another meaning than its source
_METRIC_ARGUMENTS = {"signature": "signature", "interval_95": "margin"}
_HASH = re.compile(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def render_card(
    folder: str | Path,
    facts: Mapping[str, Any],
    template: str | Path,
    version: str,
    run: str | Path | None = None,
    location: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> ModelCard:
    """Render the card of the model in `folder`. Values that were not recorded are shown as
    "unknown".

    Args:
        template: A Jinja template such as `model_card/template.md`.
        version: The version of the package that trained the model.
        run: The folder with the records of training and evaluation; by default `folder`.
        location: The model's name on the Hub, such as `"user/name"`; by default the name of
            `folder`.
        defaults: Values of a recipe that the card leaves out; by default none.
    """
    folder, run = Path(folder), Path(run or folder)
    if folder.is_dir():
        refuse_pipes(folder)
    config = load_config(folder)
    task, auto_class = find_task(config)
    validations = read_validations(run)
    recipe = read_record(run / _RECIPE)
    training = training_facts(run)
    is_tuned = facts.get("base_model") is not None or bool(recipe.get("init_from"))
    emissions = read_emissions(run, training["hardware"], is_tuned)
    evaluations = read_records(run, EVALUATIONS)
    last_validation = validations[-1] if validations else {}
    results = _results(facts["validation_text"], last_validation, evaluations)
    carries_code = "auto_map" in read_json(folder / CONFIG_NAME)
    mistakes = _worst_translations(evaluations) if facts.get("quote_test_text", True) else []
    shown_facts = {
        **facts,
        "limits": facts["limits"].strip(),
        "data": [*map(_escape_cells, facts["data"])],
    }
    name = location or folder.resolve().name
    shown_results = []
    for row in results:
        cells = _escape_cells({"text": row["text"], "signature": row["signature"]})
        shown_results.append({**row, **cells})
    hashes = []
    for path in publishable_files(folder):
        if path.name != CARD_NAME:
            hashes.append((path.name, hash_file(path)))
    try:
        return ModelCard.from_template(
            _card_data(facts, results, version, task, emissions),
            template_path=str(template),
            **shown_facts,
            quoted_example=_quote(facts["example"]),
            version=version,
            location=name,
            quoted_location=_quote(name),
            task=task,
            auto_class=auto_class,
            carries_code=carries_code,
            marian=MARIAN if carries_code and can_be_marian(folder) else None,
            **_describe_model(folder, config),
            **training,
            emissions=emissions,
            warning=_warning(results),
            results=shown_results,
            mistakes=mistakes,
            stress_tables=read_records(run, STRESS_TABLES),
            warning_names=[*OF_TEXT],
            learning_curve=learning_curve(validations),
            picture=CURVE if (folder / CURVE).exists() else None,
            recipe=_shown_recipe(recipe, defaults or {}),
            hashes=hashes,
        )
    except TemplateError as error:
        raise UserError(
            f"The template {template} must be valid Jinja, but it is not: {error}"
        ) from error


def _worst_translations(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the worst translations that evaluations recorded, as cells of a table."""
    rows = []
    for evaluation in evaluations:
        for mistake in evaluation.get("worst", []):
            sides = {side: mistake[side] for side in ("source", "translation", "reference")}
            rows.append(_escape_cells(sides))
    return rows


def _shown_recipe(recipe: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Return the YAML of the values of a recipe that are no defaults, without folders of the user,
    or None if there is none.
    """
    values = {}
    for name, value in _without_folders(recipe).items():
        is_default = name in defaults and value == defaults[name]
        if name not in _LEFT_OUT and not is_default:
            values[name] = value
    if not values:
        return None
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True).strip()


def training_facts(run: str | Path) -> dict[str, Any]:
    """Return the facts that the records in a folder hold about training, as text; "unknown" if they
    hold none.
    """
    validations = read_validations(Path(run))
    corpus = read_record(Path(run) / _CORPUS)
    machine = read_record(Path(run) / _MACHINE)
    pairs = _UNKNOWN
    cleaning = corpus.get("cleaning")
    if cleaning:
        pairs = f"{cleaning['kept']:,} of {_count(cleaning['read'], 'pair')}"
        dropped = [f"{rule_name} {count:,}" for rule_name, count in cleaning["dropped"].items()]
        if dropped:
            pairs += f" (dropped: {', '.join(dropped)})"
    versions = [f"{name} {number}" for name, number in machine.get("versions", {}).items()]
    overlaps = []
    for name, overlap in corpus.get("overlap", {}).items():
        held_out = _count(overlap["pairs"], f"{name} pair")
        sides = f"{_count(overlap['sources'], 'source')} and {_count(overlap['targets'], 'target')}"
        overlaps.append(
            f"The training text has {overlap['both']:,} of {held_out}, {sides} of them."
        )
    steps = minutes = _UNKNOWN
    if validations:
        steps = f"{validations[-1]['step']:,}"
        minutes = f"{validations[-1]['minutes']:.0f}"
    return {
        "pairs": pairs,
        "overlap": overlaps,
        "steps": steps,
        "minutes": minutes,
        "hardware": machine.get("hardware", _UNKNOWN),
        "mixed_precision": machine.get("mixed_precision"),
        "versions": ", ".join(versions) or _UNKNOWN,
    }


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _without_folders(value: Any) -> Any:
    """Return values of a recipe without the user's folders: absolute paths become the names of
    their files.
    """
    if isinstance(value, Mapping):
        return {name: _without_folders(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(entry) for entry in value]
    if isinstance(value, str) and (
        value.startswith(("/", "~", "file:")) or ".." in Path(value).parts
    ):
        return Path(value).name
    return value


def hashes_in_card(text: str) -> dict[str, str]:
    """Return the SHA-256 of each file that the text of a card lists, by file name."""
    return dict(_HASH.findall(text))


def _hub_language(code: str) -> str:
    """Return the code of ISO 639, which is all that the Hub takes for a language: the shortest
    one.
    """
    first = re.split("[-_]", code)[0]
    return base_language(first) if len(first) == 3 else first.lower()


def _card_data(
    facts: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    version: str,
    task: str,
    emissions: Mapping[str, Any] | None,
) -> ModelCardData:
    codes = dict.fromkeys([facts["source_language"], facts["target_language"]])
    known = [code for code in codes if code != _UNKNOWN]
    languages = [*dict.fromkeys(map(_hub_language, known))]
    variants = [code.replace("_", "-") for code in known if re.search("[-_]", code)]
    scores = [_hub_score(row, facts, task) for row in results]
    return ModelCardData(
        model_name=facts["name"],
        language=languages or None,
        language_bcp47=variants or None,
        license=facts["license"],
        license_name=facts.get("license_name"),
        license_link=facts.get("license_link"),
        library_name="transformers",
        pipeline_tag=task,
        tags=["vanilla-transformer", f"vanilla-transformer-{version}"],
        datasets=facts.get("datasets"),
        base_model=facts.get("base_model"),
        widget=[{"text": facts["example"]}],
        co2_eq_emissions=emissions,
        metrics=sorted({row["metric"] for row in results}) or None,
        eval_results=scores or None,
    )


def _hub_score(row: Mapping[str, Any], facts: Mapping[str, Any], task: str) -> EvalResult:
    """Return a score in the form in which the Hub reads it from a card."""
    # The type, configuration and split of a text, by which the Hub groups scores
    text = row["text"]
    dataset = {"type": re.sub(r"\W+", "-", text.lower()).strip("-"), "split": row["split"]}
    dataset["config"] = f"{facts['source_language']}-{facts['target_language']}"
    location = facts.get("evaluation_datasets", {}).get(text, {})
    for name in ("type", "config", "split"):
        if name in location:
            dataset[name] = location[name]
    arguments = {}
    for name, key in _METRIC_ARGUMENTS.items():
        if row[key] != _UNKNOWN:
            arguments[name] = row[key]
    return EvalResult(
        task_type=task,
        dataset_name=text,
        **{f"dataset_{name}": value for name, value in dataset.items()},
        metric_type=row["metric"],
        metric_name=row["measure"],
        metric_value=row["score"],
        metric_args=arguments,
    )


def _results(
    validation_text: str, validation: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the scores of the last validation, which have no interval, and those that
    `evaluate --name` recorded.
    """
    results = []
    for metric in ("bleu", "chrf"):
        if metric in validation:
            score, signature = validation[metric], validation[f"{metric}_signature"]
            results.append(_result(validation_text, "validation", metric, score, None, signature))
    for evaluation in evaluations:
        for metric, scored in evaluation["scores"].items():
            numbers = scored["score"], scored["margin"], scored["signature"]
            results.append(_result(evaluation["name"], "test", metric, *numbers))
    return results


def _result(
    text: str, split: str, metric: str, score: float, margin: float | None, signature: str
) -> dict[str, Any]:
    """Return the row of a score in the table of a card."""
    return {
        "text": text,
        "split": split,
        "metric": metric,
        "measure": METRIC_LABELS[metric],
        "score": round(score, 2),
        "margin": _UNKNOWN if margin is None else round(margin, 2),
        "signature": signature,
    }


def _warning(results: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a warning about poor or missing scores on text that the model was not trained on."""
    scores = [(row["score"], row["text"]) for row in results if row["metric"] == "bleu"]
    if not scores:
        return "No BLEU on held-out text was recorded: the quality of its translations is unknown."
    score, text = min(scores)
    if score >= _LEAST_BLEU:
        return None
    return (
        f"Its scores on held-out text are poor: BLEU {score:.1f} on {text}. Expect "
        "translations of another meaning."
    )


def _quote(text: str) -> str:
    """Return the literal of a string in Python, in double quotation marks and on one line."""
    return json.dumps(text, ensure_ascii=False)


def _escape_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Escape bars, which end a table cell even within code, and replace line breaks, which end the
    row.
    """
    return {name: " ".join(str(text).split()).replace("|", "\\|") for name, text in row.items()}


def _describe_model(folder: Path, config: "PreTrainedConfig") -> dict[str, Any]:
    """Return what the card says about a model, as text."""
    decoding = None
    # The layers, width, heads and feed-forward width of the encoder and the decoder, or of the only
    # stack
    stacks = [name for name in ("encoder", "decoder") if hasattr(config, f"{name}_layers")]
    layers = " + ".join(str(getattr(config, f"{name}_layers")) for name in stacks)
    heads = getattr(config, f"{stacks[0]}_attention_heads")
    width = getattr(config, f"{stacks[0]}_ffn_dim")
    if config.is_encoder_decoder:
        with refusing_files(folder):
            generation = GenerationConfig.from_pretrained(folder)
        decoding = f"beam {generation.num_beams or 1}, α = {generation.length_penalty}"
        margin = getattr(generation, "max_new_tokens_beyond_source", None)
        if margin is not None:
            decoding += f", at most source length + {margin} tokens"
    return {
        "parameters": f"{_count_parameters(folder):,}",
        "shape": f"{layers}, {config.d_model}, {heads}, {width}",
        "vocab_size": f"{config.vocab_size:,}",
        "max_source_length": getattr(config, "max_source_length", None) or _UNKNOWN,
        "decoding": decoding,
    }


def _count_parameters(folder: Path) -> int:
    """Return the number of parameters in the files of a model; tied ones count once."""
    count = 0
    for path in publishable_files(folder):
        if path.suffix != ".safetensors":
            continue
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - the handle is not iterable
                count += math.prod(weights.get_slice(name).get_shape())
    return count
