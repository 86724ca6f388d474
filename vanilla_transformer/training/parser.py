"""
Parse flags into dataclasses, and show them in groups; every mistake is a `ValueError` that names it.

By argparse and not by transformers' `HfArgumentParser`, since importing transformers takes longer than `--help` may.
"""

import sys
import textwrap
from argparse import SUPPRESS, Action, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.import_utils import use_user_module
from vanilla_transformer.utils.user_input import check_names

USER_MODULE, USER_MODULE_HELP = "user_module", "Import this file of Python first, which defines classes of models."

_BOOLEANS = dict.fromkeys(("true", "yes", "on", "t", "y", "1"), True)
_BOOLEANS |= dict.fromkeys(("false", "no", "off", "f", "n", "0"), False)
_AUTO = {"auto": None}  # of switches whose default is chosen later
_VALUE_NAMES = {int: "INT", float: "FLOAT"}
_COLUMN, _WIDTH = 24, 80  # where argparse begins explanations, and ends them


class Parser(ArgumentParser):
    """
    Parse arguments and flags. Flags may stand before, between and after the arguments.

    The help lists each flag once, with underscores (dashes work as well), and a default only where there is one. Flags
    are grouped by the dataclass that declares them.

    Args:
        classes: Dataclasses whose fields are flags. Metadata of a field are keyword arguments of `add_argument`, and
            for a switch `is_value`, which tells whether a word after it is its value and no argument.
        usage: Usage of the command.
        arguments: Explanations of the arguments by their names.
        main: Names of the flags that `--help` shows; by default all. `--help_all` shows them first, and all others.
        titles: Titles of groups by dataclass; by default the first sentence of its docstring.
        notes: Text at the end of the help.
    """

    def __init__(
        self,
        classes: Sequence[type[Any]],
        usage: str,
        arguments: Mapping[str, str] | None = None,
        main: Sequence[str] = (),
        titles: Mapping[type, str] | None = None,
        notes: str = "",
    ):
        about = f"arguments:\n{format_table(arguments)}" if arguments else None
        layout: dict[str, Any] = {"formatter_class": RawDescriptionHelpFormatter, "add_help": False}
        # The result holds the given flags alone: `build` adds the defaults.
        layout |= {"argument_default": SUPPRESS, "allow_abbrev": False}
        super().__init__(usage=usage, description=about, epilog=notes, **layout)
        self._classes, self._others = classes, list[Action]()
        self._hints = {each: get_type_hints(each) for each in classes}
        self._names, self._switches = (
            {"help", "help_all"},
            dict[str, Callable[[str], bool]](),
        )  # of all flags; booleans with what tells their values from arguments
        items = [(each, item) for each in classes for item in fields(each) if item.init]
        self._add_groups([found for found in items if not main or found[1].name in main], titles or {})
        shown = len(self._actions)
        self._add_groups([found for found in items if main and found[1].name not in main], titles or {}, " (more)")
        self._others = self._actions[shown:]
        group = self.add_argument_group("help")
        group.add_argument("--help", action=_Help, nargs=0, help="Show this text.")
        if USER_MODULE not in self._names:
            self._names.add(USER_MODULE)
            action = group.add_argument(f"--{USER_MODULE}", metavar="FILE", help=USER_MODULE_HELP)
            self._others += [action] if main else []
        group.add_argument("--help_all", action=_Help, nargs=0, help=f"Show all {len(items)} flags.")

    def _add_groups(self, items: Sequence[tuple[type, Field]], titles: Mapping[type, str], mark: str = "") -> None:
        groups: dict[str, Any] = {}
        for each, item in items:
            title = titles.get(each) or _title(each, item)
            if title not in groups:
                groups[title] = self.add_argument_group(f"{title}{mark}")
            self._add_flag(groups[title], item, self._hints[each][item.name])

    def _add_flag(self, group: Any, item: Field, hint: Any) -> None:
        """Add the flag of a field, whose type may be a union with None, and with str for text that is parsed later."""
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        kind = hint if not kinds or get_origin(hint) in (list, Literal) else str if str in kinds else kinds[0]
        default = item.default if item.default_factory is MISSING else item.default_factory()
        keywords: dict[str, Any] = {"required": default is MISSING}
        if get_origin(kind) is Literal:
            keywords |= {"type": str, "choices": get_args(kind)}
        elif get_origin(kind) is list:
            keywords |= {"type": get_args(kind)[0], "nargs": "+", "action": "extend"}
        elif kind is bool:
            values = _BOOLEANS | (_AUTO if default is None else {})
            keywords |= {"type": partial(_to_bool, values), "nargs": "?", "const": True, "metavar": "BOOL"}
        else:
            keywords |= {"type": kind}
        keywords |= item.metadata
        if kind is bool:
            self._switches[f"--{item.name}"] = keywords.pop("is_value", lambda word: word.lower() in values)
        if "choices" not in keywords:
            keywords.setdefault("metavar", _VALUE_NAMES.get(keywords["type"], "TEXT"))
        for name in ("is_folder", "may_change"):
            keywords.pop(name, None)
        if keywords.pop("keeps_text", False):
            keywords["type"] = partial(_or_text, keywords["type"])
        keywords["help"] = _with_default(keywords["help"], default)
        group.add_argument(f"--{item.name}", **keywords)
        self._names.add(item.name)
        if kind is bool and default is True:
            off = f"no_{item.name}"
            group.add_argument(f"--{off}", action="store_false", dest=item.name, help=f"Turn off --{item.name}.")
            self._names.add(off)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ')}. See --help.")

    def build(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the dataclasses of values by name, with the defaults of all others, and import the user's module."""
        if values.get(USER_MODULE) is not None:
            use_user_module(values[USER_MODULE])
        names = {each: [item.name for item in fields(each) if item.init] for each in self._classes}
        return tuple(each(**{name: values[name] for name in names[each] if name in values}) for each in self._classes)

    def read(self, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the values of the given flags by name, and the arguments. All words after `--` are arguments."""
        words = list(words)
        end = words.index("--") if "--" in words else len(words)
        before = self._normalize(words[:end])
        given = [word[2:].partition("=")[0] for word in before if word.startswith("--")]
        check_names(given, self._names, "flag", exactly=True)
        namespace, rest = self.parse_known_args(before)
        return vars(namespace), [*rest, *words[end + 1 :]]

    def _normalize(self, words: list[str]) -> list[str]:
        """Write flags with underscores, and give each switch a value, so that it does not take an argument as one."""
        found: list[str] = []
        for place, word in enumerate(words):
            if place and found[-1] in self._switches:
                if self._switches[found[-1]](word):
                    found[-1] += f"={word}"
                    continue
                found[-1] += "=true"
            found.append("--help" if word == "-h" else with_underscores(word) if word.startswith("--") else word)
        return found


class _Help(Action):
    """Print the help and exit: that of the main flags for `--help`, that of all flags for `--help_all`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string == "--help":
            for each in parser._others:
                each.help = SUPPRESS
        sys.stdout.write(parser.format_help())  # argparse would ignore that it cannot be written
        sys.stdout.flush()
        parser.exit()


def format_table(rows: Mapping[str, str]) -> str:
    """Return names and their explanations in two columns, as argparse prints flags."""
    return "\n".join(
        textwrap.fill(
            text,
            _WIDTH,
            initial_indent=f"  {name:<{_COLUMN - 4}}  ",
            subsequent_indent=" " * _COLUMN,
            break_long_words=False,
        )
        for name, text in rows.items()
    )


def with_underscores(flag: str) -> str:
    """Return a flag, without or with a value, in the spelling of the fields."""
    name, equals, value = flag[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def _title(arguments_class: type, item: Field) -> str:
    """Return the first sentence about the dataclass that declares a field."""
    bases = reversed(arguments_class.__mro__)
    owner = next(each for each in bases if item.name in getattr(each, "__dataclass_fields__", ()))
    return " ".join((owner.__doc__ or "").split()).partition(". ")[0].removesuffix(".")


def _with_default(text: str, default: Any) -> str:
    """Return an explanation for argparse, which formats it by `%`, with the default if there is one."""
    if default is None or default is False or default is MISSING or default == "" or "default" in text.lower():
        return text.replace("%", "%%")
    return f"{text} (default: {default})".replace("%", "%%")


def _to_bool(values: Mapping[str, Any], text: str) -> Any:
    if text.lower() not in values:
        choices = "true, false or auto" if "auto" in values else "true or false"
        raise ArgumentTypeError(f"must be {choices}, got {text!r}")
    return values[text.lower()]


def _or_text(convert: Callable[[str], Any], text: str) -> Any:
    """Return a value of a type, or the text if it is none of it."""
    try:
        return convert(text)
    except (ValueError, ArgumentTypeError):
        return text
