"""`translate --resume` continues a run that was killed after its last whole shard."""

import pytest

from tests.processes import run_until_killed
from tests.tiny import write_tiny_corpus
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder

TRANSLATE = """
from vanilla_transformer.cli import lines, main

lines.BATCHES = 2
main(words)
"""


@pytest.mark.parametrize("calls", [1, 3])
def test_translate_resumes_a_killed_run(tiny_model, tiny_tokenizer, tmp_path, calls):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    text = write_tiny_corpus(tmp_path) / "train.a"
    words = ["translate", str(tmp_path / "model"), "--input", str(text), "--format", "text"]
    words += ["--batch_size", "8", "--output"]
    assert main([*words, str(tmp_path / "straight")]) == 0
    words.append(str(tmp_path / "killed"))
    shards = "vanilla_transformer.decoding.corpus_shards"
    run_until_killed(TRANSLATE, words, shards, "CorpusShards.write", calls)
    assert not (tmp_path / "killed").exists()
    assert main([*words, "--resume"]) == 0
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "straight").read_bytes()
    assert not (tmp_path / "killed.partial").exists()
