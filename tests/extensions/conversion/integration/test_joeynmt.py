"""Conversion from JoeyNMT: folders that cannot be converted."""

import pytest
import torch
import yaml

from tests.joeynmt_files import joey_folder
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.joeynmt import model_from_joeynmt, read_joeynmt


def test_from_joeynmt_lists_every_reason_and_writes_nothing(tmp_path, capsys):
    folder = joey_folder(tmp_path / "joey", alpha=0.5, activation="tanh")
    torch.save({"model_state": {}}, folder / "best.ckpt")
    with pytest.raises(
        ValueError, match=r"activation function is 'tanh'; its residual connections are weighted \(`alpha`\)"
    ):
        model_from_joeynmt(read_joeynmt(folder))
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "joeynmt"]) == 2
    assert "'tanh'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]


def test_read_joeynmt_refuses_another_tokenizer(tmp_path):
    folder = joey_folder(tmp_path / "joey")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["src"] |= {"level": "word", "lowercase": True}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError, match="level of src is 'word', not 'bpe'; src is lowercased"):
        read_joeynmt(folder)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("best.ckpt", "best.ckpt"), ("trg_vocab.txt", "trg_vocab"), ("sp.model", "elsewhere/sp.model")],
)
def test_read_joeynmt_names_a_missing_file(missing, message, tmp_path):
    folder = joey_folder(tmp_path / "joey")
    torch.save({"model_state": {}}, folder / "best.ckpt")
    (folder / missing).unlink()
    with pytest.raises(OSError, match=message):
        read_joeynmt(folder)
