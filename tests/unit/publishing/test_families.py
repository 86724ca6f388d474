"""Checks of decoder-only, encoder-only and long models, without the ones in a new process."""

import pytest

from tests import tiny
from tests.publishable import FAMILIES, family_folder
from vanilla_transformer.errors import UserError
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.staging import TASKS, find_task, missing_files


@pytest.fixture(autouse=True)
def without_new_process(monkeypatch):
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])


def failed(folder):
    return {result.name: result.detail for result in checks.failed_checks(checks.check_folder(folder))}


@pytest.mark.parametrize("family", FAMILIES)
def test_check_folder_passes_the_files_of_every_family(family, tmp_path):
    folder = family_folder(family, tmp_path)
    assert not failed(folder)
    assert f"pipeline_tag: {FAMILIES[family][1]}\n" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["source.spm", "merges.txt", "sentencepiece.bpe.model"])
def test_publishable_files_has_the_tokenizers_of_converted_models(name, folder):
    """They are of Marian, FSMT and M2M-100."""
    (folder / "tokenizer.json").unlink()
    assert missing_files(folder) == ["tokenizer.json"]
    (folder / name).touch()
    assert missing_files(folder) == [] and folder / name in checks.publishable_files(folder)


def test_check_folder_names_a_model_without_a_head(tmp_path):
    folder = family_folder("encoder-only", tmp_path)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        config.replace("VanillaTransformerForMaskedLM", "VanillaTransformerEncoderModel", 1)
    )
    assert "`architectures` must name a model that ends with one of" in failed(folder)["weights"]


def test_class_of_a_user_that_translates_may_have_any_name():
    assert find_task(tiny.tiny_config(architectures=["Gated"])) == TASKS["ForConditionalGeneration"]
    with pytest.raises(UserError, match="must name a model that ends with one of .* got 'Gated'"):
        find_task(tiny.tiny_encoder_config(architectures=["Gated"]))


def test_check_folder_leaves_out_the_state_of_trainer(folder):
    """`Trainer.save_model` writes its arguments, a pickle, beside the model."""
    (folder / "training_args.bin").write_bytes(b"pickle")
    results = checks.check_folder(folder)
    assert not checks.failed_checks(results)
    (note,) = [result.detail for result in results if result.name == "no pickle"]
    assert "training_args.bin of transformers' Trainer is left out" in note
    assert "training_args.bin" not in {path.name for path in checks.publishable_files(folder)}
    (folder / "pytorch_model.bin").touch()
    assert [result.name for result in checks.failed_checks(checks.check_folder(folder))] == ["no pickle"]
