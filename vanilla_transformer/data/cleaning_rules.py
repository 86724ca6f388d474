"""The rules that drop pairs of a corpus. A pair that breaks several counts for the first one in `RULES`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from .names import check_names

if TYPE_CHECKING:
    import numpy as np

# In the order in which they apply: rules on the text of one pair, on all pairs, by two models, and on tokens.
RULES = {
    "invalid_unicode": "not valid Unicode",
    "empty": "without text on a side",
    "identical": "source and target identical",
    "min_letter_ratio": "with a smaller share of letters than min_letter_ratio",
    "other_numbers": "with a number that only one side has",
    "other_scripts": "in another script than the rest of the corpus",
    "other_languages": "in another language",
    "duplicates": "the same as an earlier pair",
    "near_duplicates": "the same as an earlier pair but for case, digits, punctuation and spaces",
    "repeated_sources": "with the source of an earlier pair",
    "repeated_targets": "with the target of an earlier pair",
    "score": "with a low score by two models",
    "max_length": "longer than max_length",
    "max_length_ratio": "beyond max_length_ratio",
}
REPETITIONS = ("duplicates", "near_duplicates", "repeated_sources", "repeated_targets")
_ON_TOKENS = ("max_length", "max_length_ratio")


@dataclass(frozen=True)
class ScoreRule:
    """
    The section `score` of a recipe: drop pairs with a low dual conditional cross-entropy score.

    Args:
        forward, backward (`str`): A model of the direction of the corpus, and one of the opposite direction.
        min_score (`float`): Drop pairs with a lower score. Scores are in (0, 1].
        keep (`float`): Instead: the share of pairs of each corpus to keep, the ones with the highest scores.

    Raises:
        ValueError: a model is not given, or not exactly one of `min_score` and `keep`, or it is out of its range.
    """

    forward: str = ""
    backward: str = ""
    min_score: float | None = None
    keep: float | None = None

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"`{name}` of `score` must name a model, got {getattr(self, name)!r}.")
        if (self.min_score is None) == (self.keep is None):
            raise ValueError("`score` must have either `min_score` or `keep`, a number from 0 to 1.")
        for name in ("min_score", "keep"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value <= 1):
                raise ValueError(f"`{name}` of `score` must be a number in (0, 1], got {value!r}.")

    @classmethod
    def from_section(cls, section: Any) -> "ScoreRule":
        """Read the section `score` of a recipe or of a corpus."""
        if not isinstance(section, Mapping):
            raise ValueError(
                f"`score` must be a mapping, such as {{forward: MODEL, backward: MODEL}}, got {section!r}."
            )
        check_names(
            [str(name) for name in section], {item.name for item in fields(cls)}, "key of `score`", exactly=True
        )
        return cls(**section)

    def threshold(self, scores: "np.ndarray") -> float:
        """Return the lowest score to keep, given the scores of a corpus."""
        if self.keep is None:
            return float(self.min_score or 0.0)
        import numpy as np

        return float(np.sort(scores)[-max(1, round(self.keep * len(scores)))])


@dataclass(frozen=True)
class CleaningRules:
    """
    The rules that a recipe enables for a corpus. See `DataArguments` for the fields.

    Raises:
        ValueError: a value is out of its range; the message names the field.
    """

    drop_empty: bool = False
    drop_invalid_unicode: bool = False
    drop_identical: bool = False
    drop_duplicates: bool = False
    drop_near_duplicates: bool = False
    drop_repeated_sources: bool = False
    drop_repeated_targets: bool = False
    drop_other_numbers: bool = False
    drop_other_scripts: bool = False
    drop_other_languages: bool = False
    min_letter_ratio: float | None = None
    max_length: int | None = None
    max_length_ratio: float | None = None
    score: ScoreRule | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.startswith("drop_") and not isinstance(value, bool):
                raise ValueError(f"`{name}` must be true or false, got {value!r}.")
        for name in _ON_TOKENS:
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= 1):
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        if self.min_letter_ratio is not None and not (
            _is_number(self.min_letter_ratio) and 0 <= self.min_letter_ratio <= 1
        ):
            raise ValueError(f"`min_letter_ratio` must be a number in [0, 1], got {self.min_letter_ratio!r}.")

    @classmethod
    def from_arguments(cls, arguments: Any, changes: Mapping[str, Any] | None = None) -> "CleaningRules":
        """Take the rules from the fields of `DataArguments`, and `changes` from the entry of a corpus."""
        values = {item.name: getattr(arguments, item.name) for item in fields(cls)} | dict(changes or {})
        section = values.pop("score")
        return cls(**values, score=None if section is None else ScoreRule.from_section(section))

    @property
    def on_text(self) -> dict[str, Any]:
        """Return the rules that need neither models nor tokens."""
        return {name: value for name, value in asdict(self).items() if name not in ("score", *_ON_TOKENS)}

    @property
    def need_all_pairs(self) -> list[str]:
        """Return the fields of the enabled rules that cannot be applied to a stream."""
        compared = [f"drop_{name}" for name in REPETITIONS if getattr(self, f"drop_{name}")]
        return compared if self.score is None else [*compared, "score"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
