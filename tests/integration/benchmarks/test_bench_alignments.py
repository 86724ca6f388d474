"""The benchmark of alignments prints its tables on the demo corpus and on a user's text."""

import pytest

pytest.importorskip("nltk")

from benchmarks.bench_alignments import main
from tests.tiny import tiny_model
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.file_utils import save_model_folder


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
    assert names[:2] == ["IBM model 2, intersection", "IBM model 2, grow-diag"]
    assert names[2].startswith(f"{folders[0]}: best head") and names[3] == f"{folders[1]}: the head (layer 1, head 0)"
    assert rates[0] < 50 and rates[1] < 50 < rates[2]  # the models are not trained


def test_bench_alignments_prints_agreement_on_a_text(folders, tmp_path, capsys):
    write_demo_corpus(tmp_path / "corpus", train=50, validation=1, test=8)
    text = [f"--{side}={tmp_path}/corpus/test.{name}" for side, name in (("source", "en"), ("target", "de"))]
    more = [f"--train_{side}={tmp_path}/corpus/train.{name}" for side, name in (("source", "en"), ("target", "de"))]
    main([*folders, *text, *more, "--iterations", "2"])
    header, _, *rows = table(capsys.readouterr().out)
    names = ["IBM model 2, intersection", "IBM model 2, grow-diag"]
    assert header == ["aligner", *(f"agreement with {name}" for name in names)]
    assert [row[0] for row in rows] == [rows[0][0], f"{folders[1]}: the head (layer 1, head 0)"]
    assert all(0 <= float(cell.rstrip("%")) < 60 for row in rows for cell in row[1:])


def test_bench_alignments_refuses_a_source_without_a_target(capsys):
    with pytest.raises(SystemExit):
        main(["--source", "test.en"])
    assert "--source and --target must be given together" in capsys.readouterr().err
