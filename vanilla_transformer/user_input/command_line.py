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
        fields, titles = dict[str, FieldInfo](), dict[int, str]()
        for title, group in groups.items():
            for field_name, field in group.items():
                fields[field.alias or field_name] = field
                titles[id(field)] = title
        self._titles = dict[str, str]()
        self._arguments, self._flags = dict[str, FieldInfo](), dict[str, FieldInfo]()
        self._off = dict[str, str]()
        for word, field in fields.items():
            self._titles[word] = titles[id(field)]
            if is_argument(field):
                self._arguments[word] = field
                continue
            self._flags[word] = field
            if field.default is True:
                self._off[f"no_{word}"] = word

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return what words give, by the names of fields: text, lists of texts, and booleans of
        switches.
        """
        values, arguments = dict[str, Any](), list[str]()
        rest = list(words)
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
        has_languages = "target_language" in self._flags
        if name in ("direction", "directions") and name not in self._flags and has_languages:
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
        while not equals and rest and (is_list or not taken):
            is_switch = alone is True and not _is_value(field, rest[0])
            if _FLAG.match(rest[0]) or is_switch:  # a switch before an argument
                break
            taken.append(rest.pop(0))
        if not taken and alone is None:
            raise UserError(f"--{name} must have a value. See --help.")
        taken = taken or [alone]
        if is_repeated:
            values[name] = [*values.get(name, []), *taken]
        else:
            values[name] = taken[-1]

    def _read_arguments(self, words: list[str]) -> dict[str, Any]:
        """Return the values of the arguments, of which a list takes all words that are left."""
        values, left = dict[str, Any](), list(words)
        is_complete = True
        for name, field in self._arguments.items():
            if left and list in parts_of(field):
                values[name] = left
                left = []
            elif left:
                values[name] = left.pop(0)
            elif field.is_required():
                is_complete = False
        if left or not is_complete:
            usage = self._usage_of_arguments() or "flags only"
            shown = " ".join(map(repr, words[:4])) or "none"
            raise UserError(f"This command takes {usage}, got {shown}. See --help.")
        return values

    # --- Help ---

    def _show_help(self, shows_all: bool) -> None:
        usage = [f"usage: {self._name}", self._usage_of_arguments()]
        for name, field in self._flags.items():
            if field.is_required():
                usage.append(f"--{name} {_metavar(field)}")
        usage.append("[--flag value ...]")
        usage_line = " ".join(filter(None, usage))
        text = [textwrap.fill(usage_line, 110, subsequent_indent=" " * 7)]
        if self._arguments:
            rows = {}
            for name, field in self._arguments.items():
                rows[metavar_of(name, field)] = str(field.description)
            text.append(f"arguments:\n{format_table(rows)}")
        main, more = [*self._flags], list[str]()
        if self._main:
            main = [name for name in self._flags if name in self._main]
        if shows_all:
            more = [name for name in self._flags if name not in main]
        for names, mark in ((main, ""), (more, " (more)")):
            for title in dict.fromkeys(self._titles[name] for name in names):
                rows = self._explain([name for name in names if self._titles[name] == title])
                text.append(f"{title}{mark}:\n{format_table(rows)}")
        rows = {f"--{name}": explanation for name, explanation in _HELP.items()}
        text.append(f"help:\n{format_table(rows)}")
        parts = filter(None, [*text, self._notes])
        sys.stdout.write("\n\n".join(parts) + "\n")
        sys.stdout.flush()
        raise SystemExit(0)

    def _explain(self, names: Sequence[str]) -> dict[str, str]:
        """Return the flags of these names with their values, and their explanations."""
        rows = {}
        for name in names:
            field = self._flags[name]
            rows[f"--{name} {_metavar(field)}"] = _explanation(field)
            if f"no_{name}" in self._off:
                rows[f"--no_{name}"] = f"Turn off --{name}."
        return rows

    def _usage_of_arguments(self) -> str:
        words = []
        for name, field in self._arguments.items():
            word = metavar_of(name, field)
            if not field.is_required():
                word = f"[{word}]"
            if list in parts_of(field):
                word += " ..."
            words.append(word)
        return " ".join(words)


def metavar_of(name: str, field: FieldInfo) -> str:
    """Return how usage and help call an argument, such as SENTENCE for `sentences`."""
    if list in parts_of(field):
        name = name.removesuffix("s")
    return field.title or name.upper()


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
            name_column = f"  {name}".ljust(_COLUMN)
            lines.append((name_column + column.pop(0)).rstrip())
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
    if field.is_required() or "default" in text.lower():
        return text
    if default is None or default is False or default in ("", []):
        return text
    return f"{text} (default: {default})"
