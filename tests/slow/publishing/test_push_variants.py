"""Every model class can be pushed to the Hub and loads without this package."""

from pathlib import Path

import torch

from tests.hub_client import read_answer, run_with_hub
from tests.model_variants import MODEL_VARIANTS, build_variant

SCRIPT = Path(__file__).parents[2] / "push_variants.py"


def test_push_to_hub_of_every_model_class_loads_without_this_package(hub, tmp_path):
    models = {name: build_variant(name) for name in MODEL_VARIANTS}
    for name, model in models.items():
        model.save_pretrained(tmp_path / "models" / name)
    read_answer(run_with_hub(hub, tmp_path, SCRIPT, "push", tmp_path / "models", "user"))
    found = read_answer(run_with_hub(hub, tmp_path, SCRIPT, "load", tmp_path / "models", "user"))
    assert found.keys() == models.keys()
    ids = torch.tensor([[5, 6, 7]])
    for name, model in models.items():
        class_name, output, generated = found[name]
        assert class_name == type(model).__name__
        expected = model(
            ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})
        )[0]
        torch.testing.assert_close(torch.tensor(output), expected.flatten(), atol=1e-5, rtol=1e-4)
        if model.can_generate():
            assert generated == model.generate(ids, max_new_tokens=4, do_sample=False).tolist()
