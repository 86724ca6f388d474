"""Waiting threads lose little time on busy cores, and none on idle ones."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median

import pytest

from benchmarks.harness import run_command
from vanilla_transformer.machine.cores import usable_cores

USUAL = {"GOMP_SPINCOUNT": "300000"}  # libgomp's default
OURS = {"GOMP_SPINCOUNT": "10000"}  # of the command line
# Trains for some seconds, and prints updates a second.
WORK = """
import time
import torch
from benchmarks.revision_worker import build_model
model = build_model("small").train()
rows, length = 48, 14
batch = {name: torch.randint(4, 1000, (rows, length)) for name in ("input_ids", "labels")}
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
def update():
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(3):
    update()
updates, started = 0, time.perf_counter()
while time.perf_counter() - started < 3.0:
    update()
    updates += 1
print(updates / (time.perf_counter() - started))
"""


@pytest.mark.skipif(usable_cores() < 2, reason="threads wait for each other on several cores")
@pytest.mark.parametrize(
    ("per_core", "least"), [(0, 0.9), (1, 1.5)], ids=["idle cores", "busy cores"]
)
def test_waiting_threads_cost_little(monkeypatch, per_core, least):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if per_core == 0 and os.getloadavg()[0] > 0.5:
        pytest.skip("other programs use the cores")
    usual, ours = [], []
    with ExitStack() as stack:
        for _ in range(per_core * usable_cores()):
            burning = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
            )
            stack.callback(burning.kill)
        time.sleep(0.5)
        for _ in range(3):
            for rates, environment in ((usual, USUAL), (ours, OURS)):
                rates.append(
                    float(run_command([sys.executable, "-c", WORK], "the worker", environment))
                )
    assert median(ours) > least * median(usual), (usual, ours)
