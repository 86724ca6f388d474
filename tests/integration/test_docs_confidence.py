"""The page about confidence is true: its commands and its Python run."""

import json
import shlex
from pathlib import Path

import pytest

from tests.docs_pages import ROOT, blocks
from vanilla_transformer.cli import main
from vanilla_transformer.publishing import checks
from vanilla_transformer.utils.file_utils import save_model_folder

PAGE, SECTION = ROOT / "docs" / "scores.md", "Confidence and warnings"


@pytest.fixture
def _workspace(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])  # takes seconds
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    for text, count in (("validation", 50), ("test", 1)):
        Path(f"{text}.en").write_text("Dogs.\nTwo dogs.\n" * count)
        Path(f"{text}.de").write_text("Hunde.\nZwei Hunde.\n" * count)


def test_docs_commands_and_python_about_confidence_run(_workspace, capsys):
    calibrate, translate, check = (shlex.split(block)[1:] for block in blocks(PAGE, "bash", SECTION))
    assert main(calibrate) == 0
    assert main(translate) == 0
    (translation,) = json.loads(capsys.readouterr().out.splitlines()[-1])["translations"]
    with pytest.raises(SystemExit, match="cannot be published: 2 of 8 checks failed"):  # there is no card yet
        main(check)
    assert "\nplain " in capsys.readouterr().out and Path("runs/mine/stress_tables/test.json").is_file()
    (block,), names = blocks(PAGE, "python", SECTION), {}
    exec(block, names)
    assert names["answer"]["confidence"] == pytest.approx(translation["confidence"])
    assert 0 <= translation["confidence"] <= 1
    assert names["answer"]["warnings"] == translation["warnings"]
