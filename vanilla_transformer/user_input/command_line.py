"""
Make the arguments and flags of a command, and their help, of the fields of schemas.

By hand and not by argparse, which neither lets a switch stand before an argument nor has a short
and a long help.
"""

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.names import check_names
from vanilla_transformer.user_input.schemas import (
    ONE_WORD,
    REPEATED,
    choices_of,
    is_argument,
    parts_of,
)

_COLUMN, _WIDTH = 24, 80  # where explanations begin and end
_HELP = {"help": "Show this text.", "help_all": "Show all flags."}
# Two dashes, or one and a letter: neither a negative number nor a sentence such as "- Yes."
_FLAG = re.compile(r"--|-[^\W\d_]\S*\Z")


class CommandLine:
    """
    Read the arguments and flags of a command. Flags may stand before, between and after the
    arguments.

    Fields that are marked as arguments are arguments, and each other one is a flag, whose name may
    have dashes.

    Args:
        groups: Fields by name, by the title under which the help lists their flags.
        name: The program and the command.
        main: Names of the flags that `--help` shows; by default all. `--help_all` shows them first,
            and all others.
        notes: Text at the end of the help.
    """

    def __init__(
        self,
        groups: Mapping[str, Mapping[str, FieldInfo]],
        name: str,
        main: Sequence[str] = (),
        notes: str = "",
    ):
        self._name, self._main, self._notes = name, main, notes
        fields = {
            field.alias or name: field
            for fields in groups.values()
            for name, field in fields.items()
        }
        titles = {id(field): title for title, fields in groups.items() for field in fields.values()}
        self._titles = {name: titles[id(field)] for name, field in fields.items()}
        self._arguments = {name: field for name, field in fields.items() if is_argument(field)}
        self._flags = {name: field for name, field in fields.items() if name not in self._arguments}
        self._off = {
            f"no_{name}": name for name, field in self._flags.items() if field.default is True
        }

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return what words give, by the names of fields: text, lists of texts, and booleans of
        switches.
        """
        values, arguments, rest = dict[str, Any](), list[str](), list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                arguments += rest
                break
            if not _FLAG.match(word):
                arguments.append(word)
            elif word == "-h" or word.startswith("--"):
                self._read_flag("--help" if word == "-h" else word, rest, values)
            else:
                raise UserError(
                    f"There is no flag {word}. A text that begins with a dash follows `--`."
                )
        return values | self._read_arguments(arguments)

    def _read_flag(self, word: str, rest: list[str], values: dict[str, Any]) -> None:
        """Add the value of a flag, for which words are taken from the rest."""
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if (
            name in ("direction", "directions")
            and name not in self._flags
            and "target_language" in self._flags
        ):
            raise UserError(
                f"There is no flag {name!r}. Name both languages, such as --source_language en "
                "--target_language de."
            )
        check_names([name], {*self._flags, *self._off, *_HELP}, "flag")
        if equals and (name in _HELP or name in self._off):
            raise UserError(f"--{name} must have no value, got {value!r}.")
        if name in _HELP:
            self._show_help(name == "help_all")
        field = self._flags[self._off.get(name, name)]
        is_list, alone = _is_list(field), _value_alone(field)
        is_repeated = is_list or REPEATED in parts_of(field)
        if self._off.get(name, name) in values and not is_repeated:
            raise UserError(f"--{name} must be given once, got it again. Leave one out.")
        if name in self._off:
            values[self._off[name]] = False
            return
        taken: list[Any] = [value] if equals else []
        while not equals and rest and not _FLAG.match(rest[0]) and (is_list or not taken):
            if alone is True and not _is_value(field, rest[0]):
                break  # a switch before an argument
            taken.append(rest.pop(0))
        if not taken and alone is None:
            raise UserError(f"--{name} must have a value. See --help.")
        taken = taken or [alone]
        values[name] = [*values.get(name, []), *taken] if is_repeated else taken[-1]

    def _read_arguments(self, words: list[str]) -> dict[str, Any]:
        """Return the values of the arguments, of which a list takes all words that are left."""
        values, left = dict[str, Any](), list(words)
        for name, field in self._arguments.items():
            if left:
                values[name] = left.pop(0) if list not in parts_of(field) else left[:]
                left = left if list not in parts_of(field) else []
        missing = [
            name
            for name, field in self._arguments.items()
            if name not in values and field.is_required()
        ]
        if left or missing:
            usage = self._usage_of_arguments() or "flags only"
            raise UserError(
                f"This command takes {usage}, got {' '.join(map(repr, words[:4])) or 'none'}. See "
                "--help."
            )
        return values

    # --- Help ---

    def _show_help(self, shows_all: bool) -> None:
        required = [
            f"--{name} {_metavar(field)}"
            for name, field in self._flags.items()
            if field.is_required()
        ]
        usage = [
            f"usage: {self._name}",
            self._usage_of_arguments(),
            *required,
            "[--flag value ...]",
        ]
        text = [textwrap.fill(" ".join(filter(None, usage)), 110, subsequent_indent=" " * 7)]
        if self._arguments:
            about = {
                metavar_of(name, field): str(field.description)
                for name, field in self._arguments.items()
            }
            text.append(f"arguments:\n{format_table(about)}")
        main = [name for name in self._flags if name in self._main or not self._main]
        more = [name for name in self._flags if name not in main] if shows_all else []
        for names, mark in ((main, ""), (more, " (more)")):
            for title in dict.fromkeys(self._titles[name] for name in names):
                rows = {}
                for name in (flag for flag in names if self._titles[flag] == title):
                    rows[f"--{name} {_metavar(self._flags[name])}"] = _explanation(
                        self._flags[name]
                    )
                    rows |= (
                        {f"--no_{name}": f"Turn off --{name}."} if f"no_{name}" in self._off else {}
                    )
                text.append(f"{title}{mark}:\n{format_table(rows)}")
        text.append(f"help:\n{format_table({f'--{name}': about for name, about in _HELP.items()})}")
        sys.stdout.write("\n\n".join(filter(None, [*text, self._notes])) + "\n")
        sys.stdout.flush()
        raise SystemExit(0)

    def _usage_of_arguments(self) -> str:
        return " ".join(
            (shown if field.is_required() else f"[{shown}]")
            + (" ..." if list in parts_of(field) else "")
            for name, field in self._arguments.items()
            if (shown := metavar_of(name, field))
        )


def metavar_of(name: str, field: FieldInfo) -> str:
    """Return how usage and help call an argument, such as SENTENCE for `sentences`."""
    return field.title or (name.removesuffix("s") if list in parts_of(field) else name).upper()


def format_table(rows: Mapping[str, str]) -> str:
    """Return names and their explanations in two columns. A long name has its own line."""
    lines = []
    for name, text in rows.items():
        column = textwrap.wrap(
            text, _WIDTH - _COLUMN, break_long_words=False, break_on_hyphens=False
        ) or [""]
        if len(name) > _COLUMN - 4:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:<{_COLUMN - 2}}{column.pop(0)}".rstrip())
        lines += [f"{'':<{_COLUMN}}{line}" for line in column]
    return "\n".join(lines)


def _is_list(field: FieldInfo) -> bool:
    """Return whether a flag takes several words."""
    parts = [*parts_of(field)]
    return list in parts and ONE_WORD not in parts and REPEATED not in parts


def _value_alone(field: FieldInfo) -> Any:
    """Return the value of a flag without a word after it, or None if it needs one."""
    extra: Any = field.json_schema_extra or {}
    return True if bool in parts_of(field) else extra.get("alone")


def _is_value(field: FieldInfo, word: str) -> bool:
    """Return whether a word after a switch is its value."""
    try:
        TypeAdapter(field.rebuild_annotation()).validate_python(word)
    except ValidationError:
        return False
    return True


def _metavar(field: FieldInfo) -> str:
    choices, parts = choices_of(field), [*parts_of(field)]
    names = {bool: "BOOL", int: "INT", float: "FLOAT"}
    kind = next((name for kind, name in names.items() if kind in parts), "TEXT")
    if choices:
        return f"{{{','.join(choices)}}}"
    if _value_alone(field) is not None:
        return f"[{kind}]"
    return f"{kind} [{kind} ...]" if _is_list(field) else kind


def _explanation(field: FieldInfo) -> str:
    text, default = str(field.description), field.default
    is_shown = not (
        field.is_required() or default is None or default is False or default in ("", [])
    )
    return f"{text} (default: {default})" if is_shown and "default" not in text.lower() else text
