"""Command line: `vanilla-transformer COMMAND ...`, or the same with
`python -m vanilla_transformer`.

Each group of commands is a module, and each extension has one. A command parses its arguments,
makes one library call and prints the result. A user's mistake ends with one line on standard error
and status 2; so does a lack of memory or a standard output that cannot be written, with status 1.
Any other exception is a bug: a traceback, and status 1. Slow imports are inside functions, so that
`--help` and mistakes are answered at once.
"""

import errno
import importlib
import io
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from vanilla_transformer.errors import UserError, UserErrors, is_refusal
from vanilla_transformer.extensions import EXTENSIONS
from vanilla_transformer.files.inputs import forget_pipes
from vanilla_transformer.machine.imports import hide_import_messages

_LONGEST_MESSAGE = 900  # characters
_TRACKER = "https://github.com/vanilla-transformer/vanilla-transformer/issues"
# How often a thread of OpenMP looks for work before it sleeps. By libgomp's default, 300,000 times,
# threads take the cores of those that they wait for if other processes take cores, too. After a
# tenth of these, some operations of idle cores wait for a thread to wake: a step of training took
# 1.2 times as long.
_SPIN_COUNT = "10000"
# The commands of the core. Each group is a module. Extensions add theirs to these groups, or new
# groups.
GROUPS = {
    "train": {
        "train": "train a model from a recipe, text files or a dataset",
        "average-checkpoints": "average the weights of several checkpoints or models",
        "demo": "train on short sentences of Tatoeba, score, translate and plot, in a few minutes",
    },
    "translate": {
        "translate": "translate sentences, files or documents with a trained model",
        "compile": "compile the decoding steps of a model for this machine",
    },
    "evaluate": {
        "evaluate": "compute BLEU and chrF of a model or of a file of translations",
        "compare-models": "compare a new model with an old one, and fail if it is worse",
        "compare-runs": (
            "print the scores of several training runs as a table, and draw their curves"
        ),
        "evaluate-directions": (
            "compute BLEU and chrF of each direction of a model with several languages"
        ),
        "score": "compute the log-probability of given translations",
    },
    "publish": {
        "render-card": "write the model card of a trained model",
        "check-model": "check a model folder before publishing it",
        "push-to-hub": "check a model folder and publish it on the Hugging Face Hub",
        "create-space": "write a page to try a model, for Hugging Face Spaces",
    },
    "data": {
        "download-data": "download a public parallel corpus into data/",
        "write-corpus": "write the English-German demo corpus as text files",
        "train-tokenizer": "train a joint subword vocabulary on text files",
    },
}
_MODULES: dict[str, str] = {}
for _title, _texts in GROUPS.items():
    _MODULES |= dict.fromkeys(_texts, f".{_title}")
for _extension, _row in EXTENSIONS.items():
    for _group, _commands in _row.commands.items():
        GROUPS.setdefault(_group, {}).update(_commands)
        _MODULES |= dict.fromkeys(_commands, f"..extensions.{_extension}.commands")
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sub-command named by the first argument and return the exit status."""
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        return run(_print_usage, [])
    if arguments[0] == "--version":
        from vanilla_transformer import __version__

        return run(lambda _: print(f"vanilla-transformer {__version__}"), [])
    name, *rest = arguments
    if name not in COMMANDS:
        from vanilla_transformer.user_input.names import did_you_mean  # which imports PyYAML

        known = ", ".join(COMMANDS)
        hint = did_you_mean(name, COMMANDS)
        return _refuse(f"There is no command {name!r}.{hint} Commands: {known}.", 2)
    # Within `run`, since Ctrl-C may come while the command is imported
    return run(lambda words: find_command(name)(words), rest)


def find_command(name: str) -> Callable[[Sequence[str]], None]:
    """Return the function of a command, such as `train.average_checkpoints_command`."""
    module = importlib.import_module(_MODULES[name], __name__)
    function_name = name.replace("-", "_") + "_command"
    return getattr(module, function_name)


def run(command: Callable[[Sequence[str]], None], arguments: Sequence[str] | None = None) -> int:
    """
    Run one command and return its exit status.

    It is 0, 1 for a bug, for a result that cannot be printed or too little memory, 2 for a user's
    mistake, 3 for a loss that is not finite, and 130 for Ctrl-C. If the reader of a pipe ends
    first, such as `head`, it is 0.
    """
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    hide_import_messages()
    _limit_libraries()
    forget_pipes()
    try:
        for argument in arguments:
            # Python reads bytes that are no text as surrogates.
            if any("\ud800" <= character <= "\udfff" for character in argument):
                raise UserError(f"Arguments must be UTF-8, got {ascii(argument)}.")
        command(arguments)
        sys.stdout.flush()
    except OutputError as error:
        # Otherwise Python would fail to flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 0
        reason = "it is closed"
        if error.strerror:
            reason = f"it cannot be written ({error.strerror})"
        return _refuse(f"Standard output must take the result, but {reason}.", 1)
    except FloatingPointError as error:
        return _refuse(_on_one_line(error), 3)
    except Exception as error:
        if (line := _explain_lack(error)) is not None:
            return _refuse(line, 1)
        if is_refusal(error):
            return _refuse(_on_one_line(error), 2)
        traceback.print_exc()
        sys.stderr.write(
            "This is a bug of vanilla-transformer. Please report it, with these lines: "
            f"{_TRACKER}\n"
        )
        return 1
    except KeyboardInterrupt as interruption:
        sys.stderr.write(f"{str(interruption) or 'Interrupted.'}\n")
        return getattr(interruption, "exit_status", 130)  # training sets its own status
    return 0


class OutputError(OSError):
    """Standard output cannot be written."""


class _StandardOutput(io.TextIOWrapper):
    """Standard output with errors of its own type."""

    replaced: TextIO | None = None  # which would close the file with its own end

    def write(self, text: str) -> int:
        with _naming_output():
            return super().write(text)

    def flush(self) -> None:
        with _naming_output():
            super().flush()


@contextmanager
def _naming_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from error


def _open_streams() -> None:
    """Name the errors of standard output, and open what Python has left out because it was closed.

    Writing to a standard output that was closed is an error. It is open so that no other file gets
    its number.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = _StandardOutput(open(os.devnull, "rb"))  # type: ignore[type-var]  # noqa: SIM115
    elif type(sys.stdout) is io.TextIOWrapper:
        output = _StandardOutput(
            sys.stdout.buffer,
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.line_buffering,
        )
        output.replaced, sys.stdout = sys.stdout, output


def _limit_libraries() -> None:
    """Let threads of OpenMP sleep soon while they wait, and show progress bars of long work and in
    a terminal alone.

    The environment may say otherwise. This must precede the imports of torch, whose wheels for
    Linux have the libgomp that sleeps, and of tqdm.
    """
    is_set = "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ
    if "torch" not in sys.modules and not is_set:
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    os.environ.setdefault("TQDM_DELAY", "1")  # seconds
    # A log file would get a line for each step.
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def _refuse(line: str, status: int) -> int:
    sys.stderr.write(f"error: {line}\n")
    return status


_LACKS_OF_MEMORY = re.compile(
    r"can(no|')t allocate memory|not enough memory|failed to map segment"
    r"|could not create a primitive|std::bad_alloc",
    re.IGNORECASE,
)


def _explain_lack(error: Exception) -> str | None:
    """Return a line about too little memory or a C++ compiler that does not work, or None for
    another error.
    """
    if isinstance(error, MemoryError) or _LACKS_OF_MEMORY.search(str(error)):
        hint = (
            "Free some, raise the limit (`ulimit -v`), or choose smaller batches or a smaller model"
        )
        return f"The command must have more memory than the system gives it. {hint}."
    if not isinstance(error, RuntimeError):
        return None
    from vanilla_transformer.machine.compiler import explain_compiler_error

    return explain_compiler_error(error)


def _print_usage(arguments: Sequence[str]) -> None:
    width = max(map(len, COMMANDS))
    lines = [
        "usage: vanilla-transformer COMMAND [--help | --help_all] ...",
        "       vanilla-transformer --version",
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, text in commands.items():
            lines.append(f"  {name:<{width}}  {text}")
    sys.stdout.write("\n".join([*lines, ""]))


def _on_one_line(error: Exception) -> str:
    """Return the message of an error without line breaks, or with a line for each mistake; the
    system's has a number, which is left out.
    """
    if isinstance(error, UserErrors):
        return "\n".join(map(_on_one_line, error.mistakes))
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}."
        if error.filename is not None:
            text = f"{error.filename}: {text}"
    text = " ".join(filter(None, map(str.strip, text.splitlines())))
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return textwrap.shorten(text, _LONGEST_MESSAGE, placeholder=" …")
