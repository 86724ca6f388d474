"""`back-translate` writes pairs that training reads."""

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.data.readers import CorpusSpec, open_corpus, read_pairs
from vanilla_transformer.loading.model_folders import save_model_folder

LINES = ["Ein Mann schläft.", "Ein Mann schläft.", "Zwei Hunde."]


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "mono.de").write_text("\n".join(LINES) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["out.tsv", "out.jsonl"])
def test_back_translate_writes_a_corpus(folder, capsys, name):
    flags = ["--do_sample", "--keep_warnings", "--tag", "<BT>"]
    assert main(["back-translate", "model", "--input", "mono.de", "--output", name, *flags]) == 0
    assert capsys.readouterr().out == f"3 pairs of 3 lines are in {name}. Dropped: none.\n"
    with open_corpus(CorpusSpec(file=name)) as corpus:
        pairs = [*read_pairs(corpus)]
    assert [pair.target for pair in pairs] == LINES and all(
        pair.source.startswith("<BT> ") for pair in pairs
    )
    assert pairs[0].source != pairs[1].source  # another sample
