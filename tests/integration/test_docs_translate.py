"""The page about translating is true: its Python runs."""

from tests.docs_pages import ROOT, blocks
from tests.tiny import tiny_model
from vanilla_transformer.utils.file_utils import save_model_folder


def test_docs_python_about_paragraphs_runs(tiny_tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "runs" / "mine")
    (block,) = blocks(ROOT / "docs" / "translate.md", "python", "Paragraphs")
    exec(block, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 and len({*printed}) == 1
