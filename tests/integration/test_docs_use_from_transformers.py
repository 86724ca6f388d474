"""The page for users of transformers is true: its Python runs from top to bottom, and it names the tested releases."""

import re

import pytest

from tests.docs_pages import ROOT, blocks
from tests.tiny import tiny_model
from vanilla_transformer.utils.file_utils import save_model_folder

PAGE = ROOT / "docs" / "use_from_transformers.md"


@pytest.mark.filterwarnings("error::FutureWarning", "ignore:`is_gradient_checkpointing`")
def test_page_runs_from_top_to_bottom(tiny_tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "runs" / "demo")
    names = {}
    for block in blocks(PAGE, "python"):
        exec(block, names)
    assert "trainable params" in capsys.readouterr().out


def test_page_names_the_releases_that_are_pinned_and_admitted():
    header, _, row = re.search(r"(\| transformers .*)\n(.*)\n(.*)\n", PAGE.read_text()).groups()
    tested = dict(
        zip((cell.strip() for cell in header.split("|")), (cell.strip() for cell in row.split("|")), strict=True)
    )
    pins = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    names = ["transformers", "torch", "accelerate", "datasets", "tokenizers", "peft"]
    assert {name: tested[name] for name in names} == {name: pins[name] for name in names}
    major, minor, _ = map(int, pins["transformers"].split("."))
    assert f'"transformers>={major}.{minor},<{major}.{minor + 1}"' in (ROOT / "setup.py").read_text()
    assert f"tested with transformers {pins['transformers']}" in (ROOT / "README.md").read_text()
