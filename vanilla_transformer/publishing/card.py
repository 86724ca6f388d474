"""Render the model card from a template, the records of training and evaluation, and a file of facts."""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import TemplateError
from safetensors import safe_open
from transformers import GenerationConfig

from vanilla_transformer.decoding.pretrained import load_config, refusing_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.file_utils import decode_text, hash_file
from vanilla_transformer.utils.input_files import read_input
from vanilla_transformer.utils.resources import METRIC_LABELS
from vanilla_transformer.utils.user_input import check_repo_id, load_yaml, refuse_pipes

from .behavior import CheckFailed, find_task
from .run_records import (
    CURVE,
    EVALUATIONS,
    learning_curve,
    read_emissions,
    read_record,
    read_stress_tables,
    read_validations,
)
from .staging import CARD_NAME, publishable_files

# Records of training and evaluation in a run's folder.
_RECIPE, _CORPUS, _MACHINE = "recipe.json", "corpus.json", "machine.json"
# Entries of a recipe that say nothing about the model, or are derived and no key.
_LEFT_OUT = ("output_dir", "cache_dir", "pad_to_multiple_of")

_UNKNOWN = "unknown"
_FACTS = {"name", "source_language", "target_language", "source_name", "target_name", "license", "data"}
_FACTS |= {"validation_text", "example", "limits"}
# Names on the Hub: the training data, and the model that was fine-tuned or converted.
_HUB_NAMES = {"datasets", "base_model"}
_LICENSE_FACTS = {"license_name", "license_link"}  # of a license that the Hub has no identifier for
_OPTIONAL_FACTS = _HUB_NAMES | _LICENSE_FACTS | {"evaluation_datasets", "intended_use", "quote_test_text"}
_LEAST_BLEU = 20.0  # below it, a translation often has another meaning than its source
_CORPUS_FACTS = {"name", "license"}
_DATASET_FACTS = {"type", "split"}
_METRIC_ARGUMENTS = {"signature": "signature", "interval_95": "margin"}
_HASH = re.compile(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def read_facts(path: str | Path) -> dict[str, Any]:
    """Read the facts about a model that training cannot record, such as its languages, from a YAML file."""
    try:
        facts = load_yaml(decode_text(read_input(path), str(path)))
    except UserError as error:
        raise UserError(f"The file of facts {path} must be YAML: {error}") from error
    if not isinstance(facts, dict):
        raise UserError(f"The file of facts {path} must hold a mapping such as `name: …`, got {type(facts).__name__}.")
    _check_names(path, facts, _FACTS, _OPTIONAL_FACTS)
    if not isinstance(facts["data"], list) or not all(isinstance(corpus, dict) for corpus in facts["data"]):
        raise UserError(f"`data` in {path} must be a list of corpora, each with a `name` and a `license`.")
    for corpus in facts["data"]:
        _check_names(path, corpus, _CORPUS_FACTS)
        _check_texts(path, corpus)
    _check_texts(path, {name: facts[name] for name in _FACTS - {"data"}})
    for name in _HUB_NAMES & facts.keys():
        _check_hub_names(path, name, facts[name])
    _check_texts(path, {name: facts[name] for name in (_LICENSE_FACTS | {"intended_use"}) & facts.keys()})
    if (facts["license"] == "other") != ("license_name" in facts):
        raise UserError(f"`license_name` in {path} must name the license where `license` is other, and only there.")
    if not isinstance(facts.get("quote_test_text", True), bool):
        raise UserError(f"`quote_test_text` in {path} must be true or false, got {facts['quote_test_text']!r}.")
    _check_datasets(path, facts.get("evaluation_datasets", {}))
    return facts


def _check_datasets(path: str | Path, given: Any) -> None:
    if not isinstance(given, dict) or not all(isinstance(dataset, dict) for dataset in given.values()):
        raise UserError(f"`evaluation_datasets` in {path} must name a `type` and a `split` for the name of each text.")
    for dataset in given.values():
        _check_names(path, dataset, _DATASET_FACTS, ["config"])
        _check_texts(path, dataset)
        _check_hub_names(path, "evaluation_datasets", dataset["type"])
    places = [tuple(sorted(dataset.items())) for dataset in given.values()]
    if len({*places}) < len(places):
        raise UserError(f"`evaluation_datasets` in {path} must give each text its own split, or the Hub merges them.")


def _check_texts(path: str | Path, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise UserError(f"`{name}` in {path} must be text, got {value!r}. Write it in quotation marks.")


def _check_hub_names(path: str | Path, fact: str, given: Any) -> None:
    for name in given if isinstance(given, list) else [given]:
        _check_texts(path, {fact: name})
        try:
            check_repo_id(name)
        except UserError as error:
            raise UserError(
                f"`{fact}` in {path} must be names on the Hub, such as user/name, got {name!r}."
            ) from error


def _check_names(path: str | Path, given: Mapping[str, Any], known: set[str], optional: Collection[str] = ()) -> None:
    for names, problem in (
        (known - given.keys(), "lacks"),
        (given.keys() - known - {*optional}, "has the unknown fact"),
    ):
        if names:
            raise UserError(f"The file of facts {path} {problem} {min(names)!r}. Facts may be 'unknown'.")


def render_card(
    folder: str | Path,
    facts: Mapping[str, Any],
    template: str | Path,
    version: str,
    run: str | Path | None = None,
    location: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> ModelCard:
    """Render the card of the model in `folder`. Values that were not recorded are shown as "unknown".

    Args:
        template: A Jinja template such as `model_card/template.md`.
        version: The version of the package that trained the model.
        run: The folder with the records of training and evaluation; by default `folder`.
        location: The model's name on the Hub, such as `"user/name"`; by default the name of `folder`.
        defaults: Values of a recipe that the card leaves out; by default none.
    """
    folder, run = Path(folder), Path(run or folder)
    if folder.is_dir():
        refuse_pipes(folder)
    config = load_config(folder)
    task, auto_class = _find_task(folder, config)
    with refusing_files(folder):
        decoding = describe_decoding(GenerationConfig.from_pretrained(folder)) if task == "translation" else None
    validations, recipe, training = read_validations(run), read_record(run / _RECIPE), training_facts(run)
    recorded = validations[-1] if validations else {}
    emissions = read_emissions(run, training["hardware"], "base_model" in facts or bool(recipe.get("init_from")))
    evaluations = [read_record(path) for path in sorted((run / EVALUATIONS).glob("*.json"))]
    results = [*_validation_results(facts, recorded), *_test_results(evaluations)]
    try:
        return ModelCard.from_template(
            _card_data(facts, results, version, task, emissions),
            template_path=str(template),
            **{**facts, "limits": facts["limits"].strip(), "data": [_escape_cells(each) for each in facts["data"]]},
            quoted_example=_quote(facts["example"]),
            version=version,
            location=location or folder.resolve().name,
            quoted_location=_quote(location or folder.resolve().name),
            parameters=f"{_count_parameters(folder):,}",
            task=task,
            auto_class=auto_class,
            shape=_shape(config),
            vocab_size=f"{config.vocab_size:,}",
            max_source_length=getattr(config, "max_source_length", None) or _UNKNOWN,
            **training,
            emissions=emissions,
            decoding=decoding,
            warning=_warning(results),
            results=[{**row, **_escape_cells({name: row[name] for name in ("text", "signature")})} for row in results],
            mistakes=_mistakes(evaluations) if facts.get("quote_test_text", True) else [],
            stress_tables=read_stress_tables(run),
            learning_curve=learning_curve(validations),
            picture=CURVE if (folder / CURVE).exists() else None,
            recipe=_as_yaml(_without_defaults(portable_recipe(recipe), defaults or {})),
            hashes=[(path.name, hash_file(path)) for path in publishable_files(folder) if path.name != CARD_NAME],
        )
    except TemplateError as error:
        raise UserError(f"The template {template} must be valid Jinja, but it is not: {error}") from error


def training_facts(run: str | Path) -> dict[str, Any]:
    """Return the facts that the records in a folder hold about training, as text; "unknown" if they hold none."""
    validations = read_validations(Path(run))
    corpus, machine = (read_record(Path(run) / name) for name in (_CORPUS, _MACHINE))
    return {
        "pairs": _pairs(corpus),
        "overlap": _overlap(corpus),
        "steps": f"{validations[-1]['step']:,}" if validations else _UNKNOWN,
        "minutes": f"{validations[-1]['minutes']:.0f}" if validations else _UNKNOWN,
        "hardware": machine.get("hardware", _UNKNOWN),
        "mixed_precision": machine.get("mixed_precision"),
        "versions": _versions(machine),
    }


def _mistakes(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the worst translations of all test sets, escaped for a table."""
    worst = (mistake for evaluation in evaluations for mistake in evaluation.get("worst", []))
    return [_escape_cells({name: each[name] for name in ("source", "translation", "reference")}) for each in worst]


def portable_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without the user's folders: absolute paths are reduced to the names of their files."""
    return {name: _without_folders(value) for name, value in recipe.items() if name not in _LEFT_OUT}


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(each) for each in value]
    if isinstance(value, str) and (value.startswith(("/", "~", "file:")) or ".." in Path(value).parts):
        return Path(value).name
    return value


def _without_defaults(recipe: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name not in defaults or value != defaults[name]}


def _as_yaml(recipe: Mapping[str, Any]) -> str | None:
    return yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True).strip() if recipe else None


def hashes_in_card(text: str) -> dict[str, str]:
    """Return the SHA-256 of each file that the text of a card lists, by file name."""
    return dict(_HASH.findall(text))


def _find_task(folder: Path, config: Any) -> tuple[str, str]:
    try:
        return find_task(config)
    except CheckFailed as failure:
        raise UserError(f"{folder} must hold a model with a head: {failure}.") from failure


def _card_data(
    facts: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    version: str,
    task: str,
    emissions: Mapping[str, Any] | None,
) -> ModelCardData:
    languages = dict.fromkeys([facts["source_language"], facts["target_language"]])
    return ModelCardData(
        model_name=facts["name"],
        language=[*languages],
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
        eval_results=[
            EvalResult(
                task_type=task,
                dataset_name=row["text"],
                **_dataset_of(row, facts),
                metric_type=row["metric"],
                metric_name=row["measure"],
                metric_value=row["score"],
                metric_args={name: row[key] for name, key in _METRIC_ARGUMENTS.items() if row[key] != _UNKNOWN},
            )
            for row in results
        ]
        or None,
    )


def _dataset_of(row: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the type, configuration and split of a scored text, by which the Hub groups scores."""
    directions = f"{facts['source_language']}-{facts['target_language']}"
    kind = re.sub(r"\W+", "-", row["text"].lower()).strip("-")
    dataset = {"type": kind, "config": directions, "split": row["split"]}
    dataset |= facts.get("evaluation_datasets", {}).get(row["text"], {})
    return {f"dataset_{name}": value for name, value in dataset.items()}


def _validation_results(facts: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scores of the last validation, which have no confidence interval."""
    return [
        _result(
            facts["validation_text"], "validation", metric, recorded[metric], None, recorded[f"{metric}_signature"]
        )
        for metric in ("bleu", "chrf")
        if metric in recorded
    ]


def _test_results(evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the scores recorded by `evaluate --name`."""
    return [
        _result(evaluation["name"], "test", metric, found["score"], found["margin"], found["signature"])
        for evaluation in evaluations
        for metric, found in evaluation["scores"].items()
    ]


def _result(text: str, split: str, metric: str, score: float, margin: float | None, signature: str) -> dict[str, Any]:
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
    return f"Its scores on held-out text are poor: BLEU {score:.1f} on {text}. Expect translations of another meaning."


def _pairs(corpus: Mapping[str, Any]) -> str:
    cleaning = corpus.get("cleaning")
    if not cleaning:
        return _UNKNOWN
    dropped = ", ".join(f"{rule} {count:,}" for rule, count in cleaning["dropped"].items())
    kept = f"{cleaning['kept']:,} of {_count(cleaning['read'], 'pair')}"
    return f"{kept} (dropped: {dropped})" if dropped else kept


def _overlap(corpus: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each validation or test text that training compared with its training text."""
    return [
        f"The training text has {found['both']:,} of {_count(found['pairs'], f'{name} pair')}, "
        f"{_count(found['sources'], 'source')} and {_count(found['targets'], 'target')} of them."
        for name, found in corpus.get("overlap", {}).items()
    ]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _versions(machine: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in machine.get("versions", {}).items()) or _UNKNOWN


def _quote(text: str) -> str:
    """Return the literal of a string in Python, in double quotation marks and on one line."""
    return json.dumps(text, ensure_ascii=False)


def _escape_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Escape bars, which end a table cell even within code, and replace line breaks, which end the row."""
    return {name: " ".join(str(text).split()).replace("|", "\\|") for name, text in row.items()}


def _count_parameters(folder: Path) -> int:
    """Count the parameters in the weight files, tied ones once."""
    count = 0
    for path in publishable_files(folder):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as weights:
                count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return count


def _shape(config: Any) -> str:
    """Return the layers, width, heads and feed-forward width of the encoder and the decoder, or of the only stack."""
    stacks = [name for name in ("encoder", "decoder") if hasattr(config, f"{name}_layers")]
    layers = " + ".join(str(getattr(config, f"{name}_layers")) for name in stacks)
    heads, width = (getattr(config, f"{stacks[0]}_{name}") for name in ("attention_heads", "ffn_dim"))
    return f"{layers}, {config.d_model}, {heads}, {width}"


def describe_decoding(generation_config: GenerationConfig) -> str:
    """Describe the default decoding of `generate()` in words."""
    parts = [f"beam {generation_config.num_beams or 1}", f"α = {generation_config.length_penalty}"]
    margin = getattr(generation_config, "max_new_tokens_beyond_source", None)
    if margin is not None:
        parts.append(f"at most source length + {margin} tokens")
    return ", ".join(parts)
