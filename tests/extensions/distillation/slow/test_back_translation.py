"""A back-translation that is killed continues after its last whole shard, with the same samples."""

import pytest

from tests.processes import run_until_killed
from tests.tiny import write_tiny_corpus
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.distillation import back_translation
from vanilla_transformer.loading.model_folders import save_model_folder

BACK_TRANSLATE = """
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.distillation import back_translation

back_translation.SHARD_LINES = 16
main(words)
"""


@pytest.mark.parametrize("search", [["--num_beams", "2"], ["--do_sample", "--top_k", "0"]])
def test_back_translate_resumes_a_killed_run(
    tiny_model, tiny_tokenizer, tmp_path, monkeypatch, search
):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    text = write_tiny_corpus(tmp_path) / "train.b"
    monkeypatch.setattr(back_translation, "SHARD_LINES", 16)
    words = [
        "back-translate",
        str(tmp_path / "model"),
        "--input",
        str(text),
        "--keep_warnings",
        *search,
        "--output",
    ]
    assert main([*words, str(tmp_path / "straight.tsv")]) == 0
    words.append(str(tmp_path / "killed.tsv"))
    run_until_killed(
        BACK_TRANSLATE, words, "vanilla_transformer.decoding.corpus_shards", "CorpusShards.write", 2
    )
    assert not (tmp_path / "killed.tsv").exists()
    assert main(words) == 2 and main([*words, "--resume"]) == 0
    assert (tmp_path / "killed.tsv").read_bytes() == (tmp_path / "straight.tsv").read_bytes()
