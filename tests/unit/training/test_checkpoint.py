"""Checkpoints are listed, pruned and averaged; the output folder is checked."""

import json
import shutil

import pytest
import torch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.averaging import (
    average_checkpoints,
    average_model_folders,
    average_state_dicts,
)
from vanilla_transformer.training.checkpoint import (
    list_checkpoints,
    load_model_weights,
    weight_files,
)
from vanilla_transformer.training.run_folder import check_is_writable


def test_list_checkpoints_lists_oldest_steps_first(tmp_path):
    for step in (900, 1000, 20, 300):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == [f"checkpoint-{step}" for step in (20, 300, 900, 1000)]


def test_check_is_writable_refuses_files_and_read_only_folders(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_text("weights")
    check_is_writable(tmp_path)
    message = r"must be a folder, but .*model\.safetensors is a file"
    for name in ("model.safetensors", "model.safetensors/below"):
        with pytest.raises(ValueError, match=message):
            check_is_writable(tmp_path / name)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(OSError, match=f"but {tmp_path} is not writable"):
        check_is_writable(tmp_path / "new" / "run")


MEANS = [((1.0, 2.0, 6.0), [], 3.0), ((1.0, 2.0), [[1.0, 3.0]], 1.75)]


@pytest.mark.parametrize(("values", "weights", "mean"), MEANS)
def test_average_state_dicts_is_weighted_mean_of_each_parameter(values, weights, mean):
    states = [{"w": torch.full((2,), value)} for value in values]
    assert average_state_dicts(states, *weights)["w"].tolist() == [mean, mean]
    state = {"w": torch.randn(5), "half": torch.randn(5).bfloat16()}
    average = average_state_dicts([state, state, state])
    for name, tensor in state.items():
        assert torch.equal(average[name], tensor)
        assert average[name].dtype == tensor.dtype


def test_averaging_refuses_other_models(tiny_model, tiny_config, tiny_tokenizer, tmp_path):
    with pytest.raises(ValueError, match="w differs"):
        average_state_dicts([{"w": torch.zeros(2)}, {"w": torch.zeros(3)}])
    with pytest.raises(ValueError, match="got none"):
        average_state_dicts([])
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    tiny_config.encoder_layers += 1
    other = VanillaTransformerForConditionalGeneration(tiny_config)
    with pytest.raises(ValueError, match="belong to another model"):
        average_checkpoints(other, [folder])


def test_averaging_interpolates_and_ties_weights(tiny_model, tiny_tokenizer, tmp_path):
    folders = []
    for number in (1, 3):
        torch.nn.init.constant_(tiny_model.lm_head.weight, float(number))
        folders.append(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / str(number)))
    folder = average_model_folders(folders, tmp_path / "mean", [0.25, 0.75])
    weights = load_model_weights(folder)
    assert torch.all(weights["model.encoder.embed_tokens.weight"] == 2.5)
    message = "`weights` must be 2 positive numbers, one for each model, got"
    for weights in ([1.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match=message):
            average_model_folders(folders, tmp_path / "other", weights)
    average_checkpoints(tiny_model, folders)
    assert tiny_model.lm_head.weight is tiny_model.model.decoder.embed_tokens.weight
    assert torch.all(tiny_model.model.encoder.embed_tokens.weight == 2.0)


def test_averaging_refuses_another_vocabulary(tiny_model, tiny_tokenizer, tmp_path):
    first = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "first")
    second = shutil.copytree(first, tmp_path / "second")
    content = json.loads((second / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (second / "tokenizer.json").write_text(json.dumps(content))
    message = "Models to average must have one vocabulary, but '[ab]' is token"
    with pytest.raises(ValueError, match=message):
        average_model_folders([first, second], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_averaging_reads_sharded_weights(tiny_model, tiny_tokenizer, tmp_path):
    whole = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "whole")
    several = shutil.copytree(whole, tmp_path / "several")
    tiny_model.save_pretrained(several, max_shard_size="20KB")
    (several / "model.safetensors").unlink()
    folder = average_model_folders([whole, several], tmp_path / "mean")
    expected, mean = load_model_weights(whole), load_model_weights(folder)
    assert len(weight_files(several)) > 1
    assert expected.keys() == mean.keys()
    assert all(torch.equal(tensor, mean[name]) for name, tensor in expected.items())
    weight_files(several)[0].unlink()
    message = r"several is incomplete: model-00001-of-.* is missing"
    with pytest.raises(FileNotFoundError, match=message):
        average_model_folders([whole, several], tmp_path / "other")
