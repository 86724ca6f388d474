"""Declare what users write once: types, ranges, defaults and explanations of flags, recipe keys and
options.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.names import did_you_mean
from vanilla_transformer.user_input.reasons import Reasons
from vanilla_transformer.user_input.yaml_values import load_yaml


class Schema(BaseModel):
    """Values that a user writes. A wrong one raises a [`UserError`] of one line. Text is converted,
    as flags have it.

    Attributes:
        noun: What messages call a field.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
    noun: ClassVar[str] = "flag"

    def __init__(self, /, **values: Any):
        fields = type(self).model_fields
        mistakes = dict[str | int, str]()
        for name, value in values.items():
            if isinstance(value, bool) and name in fields and is_number(fields[name]):
                requirement = f"`{name}` must be {describe(fields[name])}"
                mistakes[name] = f"{requirement}, got {value}."
        try:
            super().__init__(**values)
        except ValidationError as error:
            mistakes = find_mistakes(error, fields, self.noun) | mistakes
        with Reasons() as reasons:
            for field, reason in mistakes.items():
                reasons.add(reason, field)


def find_mistakes(
    error: ValidationError, fields: Mapping[str, FieldInfo], noun: str = "option"
) -> dict[str | int, str]:
    """Return the line about each mistake that pydantic found, by field.

    Args:
        noun: What messages call a field.
    """
    mistakes = dict[str | int, str]()
    for mistake in error.errors():
        field = mistake["loc"][0] if mistake["loc"] else ""
        # A value that fits no type of several has a mistake for each.
        if field not in mistakes:
            mistakes[field] = explain(mistake, fields, noun)
    return mistakes


def explain(error: Mapping[str, Any], fields: Mapping[str, FieldInfo], noun: str = "option") -> str:
    """Return the line about a mistake that pydantic found in one of some fields."""
    if "error" in error.get("ctx", {}):
        return str(error["ctx"]["error"])  # which a validator raised
    fields = {field.alias or name: field for name, field in fields.items()}
    name = next((name for name in error["loc"] if name in fields), None)
    if name is None:
        unknown = str(error["loc"][-1])
        return f"There is no {noun} {unknown!r}.{did_you_mean(unknown, fields)}"
    if error["type"] == "missing":
        return f"`{name}` must be given: {fields[name].description}"
    value = error["input"]
    container = noun.removeprefix("key") if noun.startswith("key of") else ""
    # A number without the quotes of a flag's text
    shown = value if error["type"] in _OUT_OF_RANGE else repr(value)
    return f"`{name}`{container} must be {describe(fields[name])}, got {shown}."


_OUT_OF_RANGE = (
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "finite_number",
)
_KINDS = {
    bool: "true or false",
    str: "text",
    int: "an integer",
    float: "a number",
    dict: "a mapping",
}
_PLURALS = {bool: "booleans", str: "words", int: "integers", float: "numbers", dict: "mappings"}


def describe(field: FieldInfo) -> str:
    """Return what the values of a field are, by its title or by its type and range."""
    if field.title is not None:
        return field.title
    parts = [*parts_of(field)]
    choices = choices_of(field)
    if choices:
        return f"one of {', '.join(map(repr, choices))}"
    kinds = [kind for kind in (dict, bool, str, int, float) if kind in parts]
    kind = kinds[0] if kinds else str
    if list in parts:
        description = f"a list of {_PLURALS[kind]}"
        least, most = _find_mark(parts, MinLen), _find_mark(parts, MaxLen)
        if least is not None:
            description += f" with {least.min_length} or more"
        if most is not None:
            description += f" with at most {most.max_length}"
        return description
    return _KINDS[kind] + _describe_range(parts)


def _describe_range(parts: list[Any]) -> str:
    least, most = _find_mark(parts, Ge | Gt), _find_mark(parts, Le | Lt)
    low = high = None
    if least is not None:
        low = least.ge if isinstance(least, Ge) else least.gt
    if most is not None:
        high = most.le if isinstance(most, Le) else most.lt
    if low is not None and high is not None and float not in parts:
        return f" from {low:,} to {high:,}"
    if low is not None and high is not None:
        opening = "[" if isinstance(least, Ge) else "("
        closing = "]" if isinstance(most, Le) else ")"
        return f" in {opening}{low:,}, {high:,}{closing}"
    if low is not None:
        return f" of {low:,} or more" if isinstance(least, Ge) else f" above {low:,}"
    return "" if high is None else f" of at most {high:,}"


def _find_mark(parts: Iterable[object], kind: type | UnionType) -> Any:
    """Return the first of the types and marks of a field that is of a kind, or None."""
    return next((part for part in parts if isinstance(part, kind)), None)


def parts_of(declared: object) -> Iterator[Any]:
    """Yield the types and the marks of a field or a type: list, str, INPUT and None of
    `list[Input] | None`.
    """
    if isinstance(declared, FieldInfo):
        yield from declared.metadata
        declared = declared.annotation
    origin = get_origin(declared)
    yield origin or declared
    if origin is not Literal:
        for part in get_args(declared):
            yield from parts_of(part)
    else:
        yield declared


def is_number(field: FieldInfo) -> bool:
    """Return whether a field is a number, for which pydantic would take true as 1."""
    parts = [*parts_of(field)]
    return (int in parts or float in parts) and bool not in parts


def is_argument(field: FieldInfo) -> bool:
    """Return whether a field is an argument of a command, and no flag."""
    return ARGUMENT in parts_of(field)


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the values of a field of a few words, and nothing of another."""
    literals = (part for part in parts_of(field) if get_origin(part) is Literal)
    return next((get_args(part) for part in literals), ())


# --- Types ----------------------------------------------------------------------------------------


class Mark:
    """A property of a field, which its type carries."""


ARGUMENT, INPUT, OUTPUT, ONE_WORD = Mark(), Mark(), Mark(), Mark()
REPEATED = Mark()  # a list of which a flag gives one item, and may be given again
Input = Annotated[str, INPUT]  # a file that a command reads
Output = Annotated[str, OUTPUT]  # a file that a command writes


def split_words(value: object) -> Any:
    """Return the words of a list in one word, with or without brackets and quotation marks."""
    if not isinstance(value, str):
        return value
    words = value.strip("[] ").split(",")
    return [word.strip("\"' ") for word in words]


def parse_yaml(value: object, info: ValidationInfo) -> Any:
    """Return the value of YAML, which includes JSON, as flags such as `--corpora` and `--augment`
    have it.
    """
    if not isinstance(value, str):
        return value
    requirement = f"`{info.field_name}` must be a list or a mapping in YAML or JSON"
    try:
        parsed = load_yaml(value)
    except UserError as error:
        raise UserError(f"{requirement}: {error}") from error
    if parsed is None:
        raise UserError(
            f"{requirement}, got {value!r}, which is empty. Leave it out, or quote text that "
            "begins with #."
        )
    return parsed


def _unless_auto(value: object) -> Any:
    return None if str(value).lower() == "auto" else value


# Lists in one word, such as `0,2` or `[a, b]`, and YAML in one word.
Words = Annotated[list[str], BeforeValidator(split_words), ONE_WORD]
Numbers = Annotated[list[int], BeforeValidator(split_words), ONE_WORD]
Yaml = Annotated[Any, BeforeValidator(parse_yaml), ONE_WORD]
Auto = Annotated[bool | None, BeforeValidator(_unless_auto), Field(title="true, false or auto")]
