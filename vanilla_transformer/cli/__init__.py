"""
The command line: `vanilla-transformer COMMAND …`, or `python scripts/COMMAND.py …`.

Each module here parses, makes one call of the library, and prints. A user's mistake ends with one line and status 2.
What takes seconds to import is imported where it is used, so that `--help` and mistakes are answered at once.
"""

import importlib
import sys
from collections.abc import Callable, Sequence

COMMANDS = {
    "train": "train a model from raw text or a dataset",
    "train-tokenizer": "learn a joint vocabulary from text files",
    "translate": "translate text with a trained model",
    "evaluate": "BLEU and chrF of a model, or of a file of translations, on a test set",
    "average-checkpoints": "write the mean of several checkpoints or models",
    "render-card": "write the model card of a trained folder",
    "check-model": "what must hold of a model folder before others get it",
    "push-to-hub": "check a model folder and publish it",
    "convert": "from and to the formats of other toolkits",
    "serve": "offer a model over HTTP",
    "write-corpus": "write the embedded English-German corpus",
    "demo": "train on the embedded corpus, score, translate and draw, in a few minutes",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The console command: runs the sub-command named first."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(_usage())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        sys.stderr.write(f"error: There is no command {name!r}.\n\n{_usage()}")
        return 2
    module = importlib.import_module(f".{name.replace('-', '_')}", __name__)
    return run(module.main, rest)


def run(command: Callable[[Sequence[str]], None], arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status: 0, 2 for a mistake, 3 for an infinite loss, 130 for Ctrl-C."""
    try:
        command(sys.argv[1:] if arguments is None else arguments)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {_on_one_line(error)}\n")
        return 2
    except FloatingPointError as error:
        sys.stderr.write(f"error: {_on_one_line(error)}\n")
        return 3
    except KeyboardInterrupt as interruption:
        sys.stderr.write(f"{str(interruption) or 'Interrupted.'}\n")
        return getattr(interruption, "exit_status", 130)  # training has one of its own
    return 0


def _on_one_line(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines())


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: vanilla-transformer COMMAND [--help] ...", "", *lines, ""])
