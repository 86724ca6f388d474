"""`precision="int8"` with torchao, installed for these tests only: its import prints lines about
GPUs.
"""

import json

import pytest

from vanilla_transformer.machine.compiler import find_compiler

COMPARISON = """
import json, sys
import torch
from tests.tiny_engines import engine_of, translate
from vanilla_transformer.decoding.engine import precision
precision.multiplies = lambda *_: True  # torchao's products, also where others are faster
engines = [engine_of(4, precision="int8", compile=compile) for compile in (False, True)]
exact = engine_of(4, compile=False)
weights = [type(engine.steps.step.decoders[0].lm_head.weight).__name__ for engine in (*engines, exact)]
is_compiled = [engine.steps.find(engine.buffers.arguments) is not engine.steps.step for engine in engines]
print(json.dumps([engines[0].steps.identity, weights, is_compiled, *map(translate, engines), translate(exact)]))
"""
COMMANDS = """
import sys
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig
from transformers import AutoModelForSeq2SeqLM, TorchAoConfig
from vanilla_transformer.cli import main
folder, copy = sys.argv[1:]
assert main(["translate", folder, "A man.", "--precision", "int8"]) == 0
assert main(["evaluate", folder, "--source", copy + ".txt", "--target", copy + ".txt", "--precision", "int8"]) == 0
config = TorchAoConfig(Int8DynamicActivationInt8WeightConfig())
model = AutoModelForSeq2SeqLM.from_pretrained(folder, quantization_config=config)
model.save_pretrained(copy)
ids = torch.tensor([[5, 6, 7, 2]])
again = AutoModelForSeq2SeqLM.from_pretrained(copy)
assert type(again.model.decoder.layers[0].fc1.weight).__name__ == "Int8Tensor"
assert torch.equal(again.generate(ids), model.generate(ids))
from vanilla_transformer import TranslationPipeline
try:
    TranslationPipeline(model, None, precision="int8")._engines.find(model, {})
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_compiled_steps_multiply_integers_as_eager_ones(run_with_torchao):
    first, again = (json.loads(run_with_torchao(COMPARISON)[-1]) for _ in range(2))
    identity, weights, is_compiled, eager, compiled, exact = first
    assert weights == ["Int8Tensor", "Int8Tensor", "Parameter"] and is_compiled == [False, True]
    assert eager == compiled and len(eager) == len(exact)
    assert again == first  # with the package of the first process


def test_commands_and_checkpoints_work_with_int8(run_with_torchao, folder, tmp_path):
    (tmp_path / "copy.txt").write_text("A man is sleeping.\nTwo dogs.\n")
    lines = run_with_torchao(COMMANDS, folder, tmp_path / "copy")
    assert lines[-1].startswith("With `precision`, the model must be an unchanged")
    assert (tmp_path / "copy" / "model.safetensors").is_file()
