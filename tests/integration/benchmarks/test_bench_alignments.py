"""The benchmark of alignments prints its tables on the demo corpus and on a user's text."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nltk")

from benchmarks import eflomal_links
from benchmarks.bench_alignments import main
from tests.tiny import tiny_model
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.file_utils import save_model_folder

ALIGNERS = ["IBM model 2, intersection", "IBM model 2, grow-diag", "`write-alignments`"]


@pytest.fixture
def folders(tiny_tokenizer, tmp_path):
    """Save a model without alignment heads, and one with."""
    model = tiny_model(decoder_layers=2)
    plain = save_model_folder(model, tiny_tokenizer, tmp_path / "plain")
    model.config.alignment_heads = [[1, 0]]
    return [str(plain), str(save_model_folder(model, tiny_tokenizer, tmp_path / "named"))]


def table(printed):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()]


def test_bench_alignments_prints_error_rates_on_the_demo_corpus(folders, capsys):
    main([*folders, "--train_pairs", "150", "--test_pairs", "8", "--iterations", "2"])
    header, _, *rows = table(capsys.readouterr().out)
    assert header == ["aligner", "AER", "precision", "recall"]
    names, rates = [row[0] for row in rows], [float(row[1].rstrip("%")) for row in rows]
    assert names[:3] == ALIGNERS
    assert (
        names[3].startswith(f"{folders[0]}: best heads")
        and names[4] == f"{folders[1]}: the heads (layer and head 1-0)"
    )
    assert max(rates[:3]) < 50 < rates[3]  # the models are not trained


def test_bench_alignments_prints_agreement_on_a_text(folders, tmp_path, capsys):
    write_demo_corpus(tmp_path / "corpus", train=50, validation=1, test=8)
    text = [f"--{side}={tmp_path}/corpus/test.{name}" for side, name in (("source", "en"), ("target", "de"))]
    more = [f"--train_{side}={tmp_path}/corpus/train.{name}" for side, name in (("source", "en"), ("target", "de"))]
    main([*folders, *text, *more, "--iterations", "2"])
    header, _, *rows = table(capsys.readouterr().out)
    assert header == ["aligner", *(f"agreement with {name}" for name in ALIGNERS)]
    assert [row[0] for row in rows] == [*ALIGNERS, rows[3][0], f"{folders[1]}: the heads (layer and head 1-0)"]
    assert all(0 <= float(cell.rstrip("%")) < 60 for row in rows[3:] for cell in row[1:])
    for place, row in enumerate(rows[:3]):  # each aligner agrees with itself
        assert row[place + 1] == "100.0%" and all(float(cell.rstrip("%")) > 40 for cell in row[1:])


def test_bench_alignments_adds_eflomal_where_it_is_installed(monkeypatch, capsys):
    class Aligner:
        def align(self, source, target, links_filename_fwd, links_filename_rev):
            lines = ["0-0 1-1\n" if len(text.split()) > 1 else "0-0\n" for text in source]
            Path(links_filename_fwd).write_text("".join(lines))
            Path(links_filename_rev).write_text("0-0\n" * len([*target]))

    monkeypatch.setattr(eflomal_links, "is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "eflomal", SimpleNamespace(Aligner=Aligner))
    main(["--train_pairs", "1", "--test_pairs", "8", "--iterations", "1"])
    _, _, *rows = table(capsys.readouterr().out)
    assert [row[0] for row in rows[2:4]] == ["eflomal, intersection", "eflomal, grow-diag"]
    assert float(rows[2][3].rstrip("%")) < float(rows[3][3].rstrip("%")) < 50  # recall of one and of two links


def test_bench_alignments_refuses_a_source_without_a_target(capsys):
    with pytest.raises(SystemExit):
        main(["--source", "test.en"])
    assert "--source and --target must be given together" in capsys.readouterr().err
