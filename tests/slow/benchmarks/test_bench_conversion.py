"""Integration tests of `bench_conversion`: its table has a row for each format and direction."""

import pytest

from benchmarks.bench_conversion import main
from vanilla_transformer.conversion import WRITERS
from vanilla_transformer.file_utils import save_model_folder


def test_bench_conversion_table_has_all_directions(tiny_model, tiny_tokenizer, tmp_path, capsys, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "text").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    monkeypatch.delitem(WRITERS, "onnx")  # its export takes ten seconds, and `test_onnx.py` has it
    table = tmp_path / "table.md"
    main([str(folder), "--sentences", str(tmp_path / "text"), "--count", "2", "--output_file", str(table)])
    text = capsys.readouterr().out
    assert text == table.read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| out", "| in"))]
    assert [row[0] for row in rows] == [*(f"| out: {name}" for name in WRITERS), "| in: marian"]
    assert rows[0][1] == rows[-1][1] == "2 of 2"


def test_bench_conversion_refuses_a_missing_folder():
    with pytest.raises(ValueError, match="got 0 names"):
        main(["--sentences", "text"])
