"""The quickstart is true: its commands and its Python run one after the other."""

import shlex

from tests.docs_pages import ROOT, blocks, write_parallel_text
from tests.tiny_runs import TINY
from vanilla_transformer.cli import main

PAGE = ROOT / "docs" / "quickstart.md"


def test_quickstart_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    write_parallel_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    tiny_flags = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    lines = "".join(blocks(PAGE, "bash")).splitlines()
    commands = [shlex.split(line)[1:] for line in lines if "runs/demo" not in line]  # `make demo` runs that
    assert [words[0] for words in commands] == ["train", "translate", "evaluate"]
    for words in commands:
        assert main(words + (tiny_flags if words[0] == "train" else [])) == 0, capsys.readouterr().err
    for block in blocks(PAGE, "python"):
        exec(block, {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("[")
