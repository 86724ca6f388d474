"""The checks before publishing, on long models with each attention."""

import pytest

from tests.model_variants import build_variant
from tests.publishable import add_card
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder


@pytest.mark.parametrize("layer_type", ["full_attention", "linear_attention", "lsh_attention", "transfo_xl_attention"])
def test_check_model_passes_long_translation_models(layer_type, tiny_tokenizer, tmp_path, capsys):
    model = build_variant(f"AutoModelForSeq2SeqLM-{layer_type}")
    folder = add_card(save_model_folder(model, tiny_tokenizer, tmp_path / "model"))
    assert main(["check-model", str(folder)]) == 0, capsys.readouterr().out
