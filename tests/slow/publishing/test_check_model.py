"""`check-model` passes every kind of model, in a process without this package."""

import copy

import pytest

from tests.model_variants import build_variant
from tests.publishable import FAMILIES, add_card
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags

LAYERS = ["full_attention", "linear_attention", "lsh_attention", "transfo_xl_attention"]
MODELS = {family: build for family, (build, _) in FAMILIES.items()}
MODELS |= {
    layers: lambda layers=layers: build_variant(f"AutoModelForSeq2SeqLM-{layers}")
    for layers in LAYERS
}


@pytest.mark.parametrize("kind", [*MODELS, "several languages"])
def test_check_model_passes_every_kind_of_model(kind, tiny_tokenizer, tmp_path, capsys):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    if kind == "several languages":
        add_language_tags(tokenizer, [Direction("en", "de"), Direction("de", "en")])
    model = MODELS[kind]() if kind in MODELS else tiny_model(vocab_size=len(tokenizer))
    folder = add_card(save_model_folder(model, tokenizer, tmp_path / "model"))
    assert main(["check-model", str(folder)]) == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert "FAIL" not in shown and "same translations" in shown
