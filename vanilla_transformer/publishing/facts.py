"""The facts about a model that training cannot record, such as its languages: a YAML file for its
card.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from huggingface_hub.utils import validate_repo_id
from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import read_input
from vanilla_transformer.files.text_files import decode_text
from vanilla_transformer.user_input.yaml_values import load_yaml


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TrainingCorpus(_Entry):
    """A corpus that the model was trained on."""

    name: str
    license: str


class ScoredText(_Entry):
    """Where a text with scores is on the Hub, and its task of a benchmark with a leaderboard."""

    type: str
    split: str
    config: str | None = None
    task_id: Annotated[str, StringConstraints(pattern=r"^[\w.-]+$")] | None = None
    metric: str | None = None

    @field_validator("type")
    @classmethod
    def _check_type(cls, name: str) -> str:
        validate_repo_id(name)
        return name


class Facts(_Entry):
    """The facts of a file, which may all be "unknown"; docs/publish.md describes them."""

    name: str
    source_language: str
    target_language: str
    source_name: str
    target_name: str
    license: str
    data: list[TrainingCorpus]
    validation_text: str
    example: str
    limits: str
    license_name: str | None = None  # of a license that the Hub has no identifier for
    license_link: str | None = None
    datasets: str | list[str] | None = None
    base_model: str | list[str] | None = None
    intended_use: str | None = None
    quote_test_text: bool = True
    evaluation_datasets: dict[str, ScoredText] = {}

    @field_validator("datasets", "base_model")
    @classmethod
    def _check_hub_names(cls, names: str | list[str] | None) -> str | list[str] | None:
        for name in names if isinstance(names, list) else filter(None, [names]):
            validate_repo_id(name)
        return names

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.license == "other") != (self.license_name is not None):
            raise ValueError(
                "`license_name` must name the license where `license` is other, and only there"
            )
        texts = self.evaluation_datasets.values()
        locations = {(text.type, text.split, text.config) for text in texts}
        if len(locations) < len(texts):
            raise ValueError(
                "`evaluation_datasets` must give each text its own split, or the Hub merges them"
            )
        if any(text.metric and not text.task_id for text in texts):
            raise ValueError(
                "`evaluation_datasets` must give a text with a `metric` a `task_id`, too: the "
                "metric is the leaderboard's"
            )
        return self


def read_facts(path: str | Path) -> dict[str, Any]:
    """Read a file of facts. Facts that it leaves out are left out."""
    try:
        text = decode_text(read_input(path), str(path))
        facts = Facts.model_validate(load_yaml(text))
        return facts.model_dump(exclude_unset=True)
    except ValidationError as error:
        fault = error.errors()[0]
        location = ".".join(map(str, fault["loc"]))
        problem = fault["msg"].removeprefix("Value error, ")
        if location:
            problem = f"`{location}`: {fault['msg']}"
        # YAML makes a key of what follows the comma in `{name: Django, Plone and others}`.
        is_cut = fault["type"] == "extra_forbidden" and fault["input"] is None
        hint = "Quote values with commas." if is_cut else "Facts may be 'unknown'."
        raise UserError(f"The file of facts {path} is wrong: {problem}. {hint}") from error
    except UserError as error:
        raise UserError(f"The file of facts {path} must be YAML: {error}") from error
