"""Checkpoints are found by what they hold, and the average is the mean."""

import shutil

import pytest
import torch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.averaging import average_checkpoints, average_model_folders, average_state_dicts
from vanilla_transformer.training.checkpoint import (
    list_checkpoints,
    load_model_weights,
    save_model_folder,
    weight_files,
)
from vanilla_transformer.training.run_folder import check_output_dir, prune_checkpoints


def test_checkpoints_are_listed_by_step_and_pruned_from_the_oldest(tmp_path):
    for step in (900, 1000, 20, 300):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        f"checkpoint-{step}" for step in (20, 300, 900, 1000)
    ]
    prune_checkpoints(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-900", "checkpoint-1000"]


def test_a_folder_with_a_model_is_not_overwritten_unasked(tmp_path):
    check_output_dir(tmp_path, overwrite=False)
    (tmp_path / "model.safetensors").write_text("weights")
    with pytest.raises(ValueError, match="already holds a model"):
        check_output_dir(tmp_path, overwrite=False)
    check_output_dir(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="must be a folder"):
        check_output_dir(tmp_path / "model.safetensors", overwrite=True)
    with pytest.raises(ValueError, match=r"must be a folder, but .*model\.safetensors is a file"):
        check_output_dir(tmp_path / "model.safetensors" / "below", overwrite=True)


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=f"but {tmp_path} is not writable"):
        check_output_dir(tmp_path / "new" / "run", overwrite=False)


def test_the_average_is_the_mean_of_each_parameter():
    states = [{"w": torch.full((2,), value)} for value in (1.0, 2.0, 6.0)]
    assert average_state_dicts(states)["w"].tolist() == [3.0, 3.0]


def test_the_average_of_equals_is_the_same():
    state = {"w": torch.randn(5), "half": torch.randn(5).bfloat16()}
    average = average_state_dicts([state, state, state])
    assert all(torch.equal(average[name], state[name]) and average[name].dtype == state[name].dtype for name in state)


def test_different_models_are_not_averaged():
    with pytest.raises(ValueError, match="w differs"):
        average_state_dicts([{"w": torch.zeros(2)}, {"w": torch.zeros(3)}])
    with pytest.raises(ValueError, match="got none"):
        average_state_dicts([])


def test_averaged_folders_reach_tied_weights_too(tiny_model, tiny_tokenizer, tmp_path):
    folders = []
    for number in (1, 3):
        torch.nn.init.constant_(tiny_model.lm_head.weight, float(number))
        folders.append(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / str(number)))
    average_checkpoints(tiny_model, folders)
    assert tiny_model.lm_head.weight is tiny_model.model.decoder.embed_tokens.weight
    assert torch.all(tiny_model.model.encoder.embed_tokens.weight == 2.0)


def test_weights_of_another_model_are_refused(tiny_model, tiny_config, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    tiny_config.encoder_layers += 1
    with pytest.raises(ValueError, match="of another model"):
        average_checkpoints(VanillaTransformerForConditionalGeneration(tiny_config), [folder])


def test_a_model_in_several_files_is_averaged_unless_one_is_missing(tiny_model, tiny_tokenizer, tmp_path):
    whole = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "whole")
    several = shutil.copytree(whole, tmp_path / "several")
    tiny_model.save_pretrained(several, max_shard_size="20KB")
    (several / "model.safetensors").unlink()
    folder = average_model_folders([whole, several], tmp_path / "mean")
    expected, mean = load_model_weights(whole), load_model_weights(folder)
    assert len(weight_files(several)) > 1
    assert all(torch.equal(expected[name], mean[name]) for name in expected.keys() | mean.keys())
    weight_files(several)[0].unlink()
    with pytest.raises(FileNotFoundError, match=r"several is incomplete: model-00001-of-.* is missing"):
        average_model_folders([whole, several], tmp_path / "other")
