"""Every model class can be pushed to the Hub and loads without this package."""

from pathlib import Path

import torch

from tests.local_hub import read_answer, run_with_hub
from tests.model_variants import MODEL_VARIANTS, build_variant

TESTS = Path(__file__).parents[2]


def test_every_model_class_loads_without_this_package(hub, tmp_path):
    models = {name: build_variant(name) for name in MODEL_VARIANTS}
    for name, model in models.items():
        model.save_pretrained(tmp_path / "models" / name)
    words = ["variants", tmp_path / "models", "user"]
    pushed = run_with_hub(hub, tmp_path, TESTS / "push_with_library.py", *words)
    assert pushed.returncode == 0, pushed.stderr
    loaded = read_answer(run_with_hub(hub, tmp_path, TESTS / "without_package.py", *words))
    assert loaded.keys() == models.keys()
    ids = torch.tensor([[5, 6, 7]])
    for name, model in models.items():
        class_name, output, generated = loaded[name]
        assert class_name == type(model).__name__
        inputs = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        expected = model(ids, **inputs)[0]
        torch.testing.assert_close(torch.tensor(output), expected.flatten(), atol=1e-5, rtol=1e-4)
        if model.can_generate():
            assert generated == model.generate(ids, max_new_tokens=4, do_sample=False).tolist()
