"""The code blocks and commands of the docs pages, and a workspace to run them in."""

import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from glob import glob
from pathlib import Path

import yaml

from tests.corpora import write_aligned_corpus
from tests.processes import run_python
from tests.tiny import TINY_SIZES
from vanilla_transformer.cli import main

ROOT = Path(__file__).parents[1]
PROGRAMS = {
    "python": [],
    "accelerate": ["-m", "accelerate.commands.accelerate_cli"],
    "torchrun": ["-m", "torch.distributed.run"],
    "vanilla-transformer": ["-m", "vanilla_transformer"],
}
# Settings with which each recipe of this repository trains within seconds on the corpus of
# `write_workspace`.
SMALL = TINY_SIZES | {"vocab_size": 300, "max_tokens": 400}
SMALL |= {"max_steps": 4, "save_steps": 2, "eval_steps": 4, "logging_steps": 2}


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced code blocks in `language` of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def command_lines(page: Path) -> list[str]:
    """Return the shell commands of a page: lines of blocks, indented lines, and commands of this
    package in prose.
    """
    text = page.read_text().replace("\\\n", " ")
    fenced = list[str]()
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
        fenced += block.splitlines()
    indented = re.findall(r"^    (\w.*scripts/.*|vanilla-transformer .*)$", text, re.MULTILINE)
    prose = re.findall(r"(?<!`)`(vanilla-transformer [^`]+)`(?!`)", text)
    lines = map(str.strip, fenced + indented)
    return [*lines, *(" ".join(span.split()) for span in prose)]


def command_flags(line: str) -> Iterator[tuple[str, str]]:
    """Yield each flag of this package in a line of the shell: the command that takes it, and the
    flag's name.
    """
    words = shlex.split(line, comments=True)
    if not words or words[0] not in {*PROGRAMS, "sbatch"}:
        return
    command = None
    for before, word in zip(["", *words], words, strict=False):
        script = re.fullmatch(r"scripts/(\w+)\.py", word)
        if command is None and script:
            command = script[1].replace("_", "-")
        elif command is None and before in ("vanilla-transformer", "vanilla_transformer"):
            command = word
        elif command and word.startswith("--"):
            yield command, word[2:].split("=")[0].replace("-", "_")


@cache
def flags_of(command: str) -> frozenset[str]:
    """Return the names of all flags of a command, as its help shows them."""
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        main([command, "--help_all"])
    flags = re.findall(r"^  --(\w+)", shown.getvalue(), re.MULTILINE)
    return frozenset([*flags, "help", "help_all"])


def write_workspace(folder: Path) -> None:
    """Write the files that a reader of the docs has: scripts, recipes that end soon, and a small
    corpus.
    """
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "recipes").mkdir()
    for path in (ROOT / "recipes").glob("*.yaml"):
        recipe = yaml.safe_load(path.read_text())
        for name in [name for name in recipe if "_minutes" in name]:
            del recipe[name]
        (folder / "recipes" / path.name).write_text(yaml.safe_dump(recipe | SMALL))
    write_aligned_corpus(folder, train=60, valid=5, test=5)
    shutil.copy(folder / "test.de", folder / "theirs.de")


def run_in_shell(lines: str) -> str:
    """Run commands of Python in the working directory, and return their standard output."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    output = ""
    for line in filter(None, lines.replace("\\\n", " ").splitlines()):
        words = [path for word in shlex.split(line) for path in sorted(glob(word)) or [word]]
        finished = run_python(*PROGRAMS[words[0]], *words[1:], env=environment)
        assert finished.returncode == 0, f"{line}\n{finished.stderr}"
        output += finished.stdout
    return output
