"""Memory on a CPU is mapped once."""

import platform
import subprocess
import sys

import pytest

_COUNT_FAULTS = """
import resource, torch
from vanilla_transformer.training.memory import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has the switch")
def test_training_on_a_cpu_does_not_map_the_memory_of_freed_tensors_anew():
    counted = subprocess.run([sys.executable, "-c", _COUNT_FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, counted.stdout.split())
    assert after < before / 10
