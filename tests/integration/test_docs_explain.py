"""The page about explanations is true: its command and its Python run."""

import shlex
from pathlib import Path

from tests.docs_pages import ROOT, blocks
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

PAGE, SECTION = ROOT / "docs" / "alignments.md", "See how a translation came about"


def test_docs_command_and_python_of_explain_write_the_same_page(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    (command,), (program,), names = blocks(PAGE, "bash", SECTION), blocks(PAGE, "python", SECTION), {}
    assert main(shlex.split(command)[1:]) == 0
    exec(program, names)
    text, other = names["explanation"].source, "A young boy in a red shirt is jumping over a small fence."
    assert Path("page.html").read_text().count(text) and other not in Path("page.html").read_text()
    assert names["least_likely"].probability < 0.5
