"""Argument parsing shared by all commands."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from vanilla_transformer.import_utils import collection_paused, freeze_modules
from vanilla_transformer.training.parser import Parser
from vanilla_transformer.user_input import check_numbers

Arguments = TypeVar("Arguments")
MODEL = {"MODEL": "Folder of a model, or its name on the Hugging Face Hub."}
PRECISION_HELP = (
    "float32 (exact), bfloat16 (faster where the processor multiplies it), int8 (by torchao), or auto (the fastest "
    "that `compile --precision auto` measured to lose at most 0.1 BLEU); by default the checkpoint's."
)
WORKERS_HELP = (
    "Processes that divide the cores among them, for long texts on machines with many cores; auto is the number that "
    "`compile --workers auto` measured to be the fastest."
)


def parse(
    arguments_class: type[Arguments],
    words: Sequence[str],
    usage: str,
    arguments: Mapping[str, str] | None = None,
    main: Sequence[str] = (),
) -> tuple[list[str], Arguments]:
    """Return the arguments of a command, and its flags, parsed as `arguments_class`.

    Args:
        arguments: Explanations of the arguments, by name.
        main: Names of the flags that `--help` shows; by default all.

    Raises:
        ValueError: a flag does not exist (the message names the nearest one) or its value is invalid.
    """
    parser = Parser([arguments_class], f"vanilla-transformer {usage}", arguments, main)
    found, (parsed,) = parser.parse(words)
    check_numbers(vars(parsed))
    register_models()
    return found, parsed


def register_models() -> None:
    """Import torch and transformers, and register the models, which a command needs once its flags are right."""
    with collection_paused():
        from vanilla_transformer import registration  # noqa: F401
    freeze_modules()


def parse_workers(text: str) -> int | str:
    """Return the number of worker processes that a flag names, or "auto".

    Raises:
        ValueError: it is neither that nor a number from 1 to the number of cores.
    """
    from vanilla_transformer.decoding.engine_workers import check_workers

    workers = int(text) if text.isdecimal() else text
    if workers != "auto":
        check_workers(workers)
    return workers


def require_one_model(words: Sequence[str]) -> str:
    """Return the model that `words` names.

    Raises:
        ValueError: `words` holds no name or more than one.
    """
    if len(words) != 1:
        raise ValueError(f"Name one model (its folder or Hub name), got {len(words)} names.")
    return words[0]


def require_no_words(words: Sequence[str]) -> None:
    """Check that a command without positional arguments got none.

    Raises:
        ValueError: it got one.
    """
    if words:
        raise ValueError(f"This command takes flags only, got {words[0]!r}.")


def check_record_name(name: str) -> None:
    """Check a name under which a record is saved in the model's folder for its card.

    Raises:
        ValueError: it has other characters than a file name and a heading may have.
    """
    if not re.fullmatch(r"[\w .-]+", name):
        raise ValueError(f"--name may hold letters, digits, spaces, '.', '_' and '-', got {name!r}.")


def read_keys(path: str) -> list[str]:
    """Read secret keys from a file, one per line; blank lines are skipped. Other users could see flags in `ps`.

    Raises:
        ValueError: the file has no key, or it is not text.
        OSError: there is no such file.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a text file with one key per line, but it is not UTF-8.") from error
    if not lines:
        raise ValueError(f"{path} must hold a key, but it is empty.")
    return lines
