"""Every class that is no translation model of the paper goes to the Hub and comes back where this package is not."""

from pathlib import Path

import pytest
import torch
import transformers

from tests.integration.publishing.test_push import answer_of, run
from tests.publishable import add_card
from vanilla_transformer.cli import main
from vanilla_transformer.training.checkpoint import save_model_folder

SCRIPT = Path(__file__).parents[2] / "push_variants.py"
SIZES = {"vocab_size": 300, "d_model": 16, "init_std": 0.3, "normalize_before": True}
SIZES |= {f"{side}_layers": 1 for side in ("encoder", "decoder")}
SIZES |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
SIZES |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
ATTENTIONS = ("softmax", "linear", "lsh", "relative")
# What each folder is called, after the Auto class that finds it: type of configuration and fields.
MODELS = {
    "AutoModelForCausalLM-alone": ("vanilla_transformer_decoder", {}),
    "AutoModelForMaskedLM-alone": ("vanilla_transformer_encoder", {}),
    "AutoModelForSequenceClassification-alone": ("vanilla_transformer_encoder", {}),
}
for attention in ATTENTIONS:
    fields = {"attention": attention, "reversible": attention in ("softmax", "lsh")}
    MODELS[f"AutoModelForCausalLM-{attention}"] = ("vanilla_transformer_long_decoder", fields)
    MODELS[f"AutoModelForSeq2SeqLM-{attention}"] = ("vanilla_transformer_long", fields)


def build(name):
    kind, fields = MODELS[name]
    config = transformers.AutoConfig.for_model(kind, **SIZES | fields)
    torch.manual_seed(0)
    return getattr(transformers, name.split("-")[0]).from_config(config).eval()


def test_each_is_pushed_and_loads_without_this_package(hub, tmp_path):
    models = {name: build(name) for name in MODELS}
    for name, model in models.items():
        model.save_pretrained(tmp_path / "models" / name)
    answer_of(run(hub, tmp_path, SCRIPT, "push", tmp_path / "models", "user"))
    found = answer_of(run(hub, tmp_path, SCRIPT, "load", tmp_path / "models", "user"))
    assert found.keys() == models.keys()
    ids = torch.tensor([[5, 6, 7]])
    for name, model in models.items():
        class_name, output, generated = found[name]
        assert class_name == type(model).__name__
        expected = model(ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}))[0]
        torch.testing.assert_close(torch.tensor(output), expected.flatten(), atol=1e-5, rtol=1e-4)
        if model.can_generate():
            assert generated == model.generate(ids, max_new_tokens=4, do_sample=False).tolist()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "attention", ["lsh", "relative", pytest.param("linear", marks=SLOW), pytest.param("softmax", marks=SLOW)]
)
def test_a_translation_model_for_long_sequences_passes_the_gate(attention, tiny_tokenizer, tmp_path, capsys):
    model = build(f"AutoModelForSeq2SeqLM-{attention}")
    folder = add_card(save_model_folder(model, tiny_tokenizer, tmp_path / "model"))
    assert main(["check-model", str(folder)]) == 0, capsys.readouterr().out
