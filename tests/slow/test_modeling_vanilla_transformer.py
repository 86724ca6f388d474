"""Compiled attention, compiled training steps and tensor parallelism of the encoder-decoder
model.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.launchers import torchrun
from tests.uneven_models import (
    SEPARATE,
    SHALLOW,
    assert_training_step_compiles_to_one_graph,
    padded_batch,
    tokens,
    uneven_model,
)


@pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile writes C++ on this machine, which has no g++"
)
def test_flex_attention_matches_eager_attention():
    model = uneven_model(attn_implementation="eager", **SHALLOW)
    source, mask = padded_batch([tokens(1, 7)[0], tokens(1, 3)[0]])
    inputs = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": tokens(2, 5)}
    with torch.no_grad():  # flex attention has no backward on the CPU
        expected = model(**inputs).logits
        model.set_attn_implementation("flex_attention")
        torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_inductor_takes_a_step_as_one_graph(implementation):
    assert_training_step_compiles_to_one_graph(implementation, "inductor")


TENSOR_PARALLEL_RUN = """
import sys
import torch
from transformers.distributed import DistributedConfig
from vanilla_transformer import VanillaTransformerForConditionalGeneration

folder = sys.argv[1]
model = VanillaTransformerForConditionalGeneration.from_pretrained(
    folder, distributed_config=DistributedConfig(tp_plan="auto", tp_size=2)
).eval()
assert model.model.decoder.layers[0].fc1.weight.to_local().shape[0] == model.config.decoder_ffn_dim // 2
saved = torch.load(folder + "/inputs.pt")
logits = model(**saved["inputs"]).logits
logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
torch.testing.assert_close(logits, saved["logits"], atol=1e-5, rtol=1e-5)
"""


@pytest.mark.parametrize(
    "changes", [{}, {"attention_bias": True, "lm_head_bias": True}, SEPARATE], ids=str
)
def test_tensor_parallel_logits_match_single_process(tmp_path, changes):
    model = uneven_model(**changes)
    model.save_pretrained(tmp_path)
    inputs = {"input_ids": tokens(2, 6), "decoder_input_ids": tokens(2, 5, 30)}
    torch.save(
        {"inputs": inputs, "logits": model(**inputs).logits.detach()}, tmp_path / "inputs.pt"
    )
    script = tmp_path / "run.py"
    script.write_text(TENSOR_PARALLEL_RUN)
    launcher = [sys.executable, "-m", *torchrun(2)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    run = subprocess.run(
        [*launcher, script, tmp_path], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "not sharded" not in run.stderr and "not applied" not in run.stderr
