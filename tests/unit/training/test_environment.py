"""The description of a machine."""

from types import SimpleNamespace

import pytest
import torch

from vanilla_transformer.training import environment


@pytest.mark.parametrize(("count", "said"), [(1, "1 CPU core ("), (2, "2 CPU cores (")])
def test_describe_machine_counts_cores(count, said, monkeypatch):
    monkeypatch.setattr(environment, "usable_cores", lambda: count)
    machine = environment.describe_machine(SimpleNamespace(device=torch.device("cpu"), num_processes=1))
    assert machine["hardware"].startswith(said) and machine["processes"] == 1 and machine["versions"]["torch"]
