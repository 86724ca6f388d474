"""The description of a machine."""

from types import SimpleNamespace

import pytest
import torch

from vanilla_transformer.training import environment


@pytest.mark.parametrize(("count", "said"), [(1, "1 CPU core ("), (2, "2 CPU cores (")])
def test_describe_machine_counts_cores(count, said, monkeypatch):
    monkeypatch.setattr(environment, "usable_cores", lambda: count)
    process = SimpleNamespace(device=torch.device("cpu"), num_processes=1, mixed_precision="bf16")
    machine = environment.describe_machine(process)
    assert machine["hardware"].startswith(said) and machine["versions"]["torch"]
    assert (machine["processes"], machine["mixed_precision"]) == (1, "bf16")
