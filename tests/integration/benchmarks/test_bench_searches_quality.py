"""Integration tests of `bench_searches_quality`: a row for each search, with the gains of some of them."""

import pytest

from benchmarks.bench_searches_quality import main
from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer.file_utils import save_model_folder


@pytest.fixture
def arguments(tiny_tokenizer, tmp_path):
    """Save two models and a text, and return flags for them."""
    folders = [str(save_model_folder(tiny_model(seed), tiny_tokenizer, tmp_path / str(seed))) for seed in (0, 1)]
    (tmp_path / "text").write_text("\n".join(TINY_SENTENCES) + "\n")
    files = ["--source", str(tmp_path / "text"), "--target", str(tmp_path / "text"), "--keep", str(tmp_path / "kept")]
    return [*folders, *files, "--mbr_samples", "2", "--resamples", "3", "--rerank_reverse", folders[1]]


def rows(printed):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]


def test_bench_searches_quality_has_a_row_for_each_search(arguments, tmp_path, capsys):
    main(arguments)
    header, _, *found = rows(capsys.readouterr().out)
    assert header == ["search", "BLEU", "chrF", "gain", "p"]
    assert [row[0].removeprefix(f"{tmp_path}/") for row in found] == [
        "0: beam search",
        "1: beam search",
        "ensemble: beam search",
        "0: MBR, 2 samples",
        "0: reranked",
    ]
    assert found[2][3].startswith("BLEU ") and " over the mean " in found[2][3]
    assert found[3][3].startswith("chrF ") and found[4][3].startswith("BLEU ")
    assert all(0 <= float(row[4]) <= 1 for row in found[2:])
    (tmp_path / "kept" / "beam-1.txt").write_text("\n".join(TINY_SENTENCES) + "\n")  # a kept text is not made again
    main(arguments)
    assert float(rows(capsys.readouterr().out)[2][1]) == 100.0


def test_bench_searches_quality_needs_several_models(arguments, capsys):
    with pytest.raises(SystemExit):
        main([arguments[0], *arguments[2:]])
    assert "there must be two models or more, got 1" in capsys.readouterr().err
