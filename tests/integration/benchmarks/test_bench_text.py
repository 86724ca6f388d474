"""Integration tests of `bench_text`: a row for each stage."""

from benchmarks import bench_text


def test_bench_text_has_a_row_for_each_stage(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_text, "_VOCAB_SIZE", 300)
    (tmp_path / "texts").write_text("A man is sleeping.\n\nTwo dogs run.\n")
    bench_text.main(["--file", str(tmp_path / "texts"), "--rounds", "1"])
    first, *lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert first.startswith("2 sentences of 3.5 words and ")
    assert [row[0] for row in rows] == ["stage", "split", "tokenize", "detokenize", "together"]
    assert all(float(row[1]) > 0 for row in rows[1:])
