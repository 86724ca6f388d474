"""The rules that drop pairs of a corpus. A pair that breaks several counts for the first one in `RULES`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

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
    "max_length": "longer than max_length",
    "max_length_ratio": "beyond max_length_ratio",
}
REPETITIONS = ("duplicates", "near_duplicates", "repeated_sources", "repeated_targets")
_ON_TOKENS = ("max_length", "max_length_ratio")


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
        return cls(**{item.name: getattr(arguments, item.name) for item in fields(cls)} | dict(changes or {}))

    @property
    def on_text(self) -> dict[str, Any]:
        """Return the rules that need no tokens."""
        return {name: value for name, value in asdict(self).items() if name not in _ON_TOKENS}

    @property
    def need_all_pairs(self) -> list[str]:
        """Return the fields of the enabled rules that compare each pair with all earlier ones."""
        return [f"drop_{name}" for name in REPETITIONS if getattr(self, f"drop_{name}")]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
