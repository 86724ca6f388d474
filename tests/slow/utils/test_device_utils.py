"""How much oneDNN caches on a CPU."""

import os
import subprocess
import sys

import pytest
import torch

from vanilla_transformer.machine.cores import limit_onednn_cache

KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")

# Print the MiB that oneDNN keeps of products of 600 shapes, whose outputs are freed at once.
PRODUCTS = """
import sys
import psutil, torch
from vanilla_transformer.machine.cores import limit_onednn_cache

if sys.argv[1] == "limited":
    limit_onednn_cache()
weight, rows = torch.randn(256, 256, dtype=torch.bfloat16), torch.randn(1000, 256, dtype=torch.bfloat16)
torch.nn.functional.linear(rows, weight)
before = psutil.Process().memory_info().rss
for count in range(300, 900):
    torch.nn.functional.linear(rows[:count], weight)
print((psutil.Process().memory_info().rss - before) / 2**20)
"""


def cached_mib(how: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name not in KEPT}
    answer = subprocess.run(
        [sys.executable, "-c", PRODUCTS, how], env=environment, capture_output=True, check=True
    )
    return float(answer.stdout)


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="bfloat16 is not multiplied by oneDNN on this processor",
)
def test_limit_onednn_cache_frees_old_products():
    assert cached_mib("limited") < cached_mib("unlimited") / 2


def test_limit_onednn_cache_keeps_set_variables(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # undone after this test
    limit_onednn_cache()
    assert [os.environ[name] for name in KEPT] == ["64", "7"]
