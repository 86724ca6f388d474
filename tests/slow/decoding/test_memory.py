"""The memory of a long run on a CPU, whose batches of sources hardly repeat a shape."""

import os
import subprocess
import sys

import pytest
import torch

# Lets glibc return freed tensors at once. Otherwise gaps between them grow for some 500 batches
# more.
RETURNS_FREED = {"MALLOC_MMAP_THRESHOLD_": "131072"}
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
# Translates 300 batches of sources of up to 120 tokens, and prints the MiB in use after each 20 of
# them.
WORK = """
import random
import sys
import psutil
import torch
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import Engine, TranslationPipeline

torch.set_num_threads(1)
door, precision = sys.argv[1:]
sizes = {"d_model": 128, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
model = tiny_model(**sizes).to(getattr(torch, precision))
tokenizer, letters = tiny_tokenizer(), random.Random(0)
length = {"max_new_tokens": 1, "max_new_tokens_beyond_source": None, "num_beams": 2}
if door == "engine":
    engine = Engine(model, precision=precision, compile=False, **length)
    decode = engine.decode
elif door == "generate":
    def decode(batch):
        inputs = tokenizer.pad({"input_ids": batch}, return_tensors="pt")
        model.generate(**inputs, **length)
else:
    translate = TranslationPipeline(model, tokenizer, compile=False)
    def decode(batch):
        translate([" ".join(letters.choices("abcde", k=len(ids))) for ids in batch], **length)
for batch in range(300):
    longest, rows = letters.randint(1, 120), letters.randint(1, 32)
    decode([[*letters.choices(range(4, 40), k=longest), 2] for _ in range(rows)])
    if batch % 20 == 19:
        print(psutil.Process().memory_info().rss / 2**20)
"""


def growth(door: str, precision: str, **limits: str) -> float:
    """Return by what share the most memory in the last third of a run is above that of the second
    third.
    """
    kept = {
        name: value for name, value in os.environ.items() if name not in VARIABLES
    } | RETURNS_FREED
    command = [sys.executable, "-c", WORK, door, precision]
    answer = subprocess.run(command, env=kept | limits, capture_output=True, text=True, check=True)
    used = [*map(float, answer.stdout.split())]
    third = len(used) // 3
    return max(used[2 * third :]) / max(used[third : 2 * third]) - 1


needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN"
)
needs_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="bfloat16 is not multiplied by oneDNN on this processor",
)
CASES = [
    pytest.param("engine", "float32", id="engine-float32"),
    *(
        pytest.param(door, "bfloat16", id=f"{door}-bfloat16", marks=needs_bfloat16)
        for door in ("engine", "pipeline")
    ),
]


@needs_onednn
@pytest.mark.parametrize(("door", "precision"), CASES)
def test_memory_of_decoding_reaches_a_plateau(door, precision):
    assert growth(door, precision) < 0.03


@needs_onednn
@needs_bfloat16
def test_memory_of_generate_reaches_a_plateau():
    assert growth("generate", "bfloat16", **dict.fromkeys(VARIABLES, "64")) < 0.03


@needs_onednn
def test_memory_of_decoding_grows_with_larger_caches():
    # In bfloat16, in which sources are padded to a few lengths, it grows less.
    assert growth("engine", "float32", **dict.fromkeys(VARIABLES, "1024")) > 0.06
