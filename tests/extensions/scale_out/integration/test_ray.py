"""`--engine ray` without Ray, and how many workers fit on the machines of a cluster."""

import re
import sys

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.extensions.scale_out.ray_shards import count_workers


def test_engine_ray_names_the_extra_to_install(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "text").write_text("A man is sleeping.\n")
    words = [
        "--input",
        str(tmp_path / "text"),
        "--output",
        str(tmp_path / "out"),
        "--engine",
        "ray",
    ]
    assert main(["translate", str(folder), *words]) == 2
    assert "pip install 'vanilla-transformer[ray]'" in capsys.readouterr().err
    assert not any(tmp_path.glob("out*"))


def test_count_workers_fills_machines_that_live():
    nodes = [
        {"Alive": alive, "Resources": {"CPU": cpus}}
        for alive, cpus in ((True, 7.0), (True, 2.0), (False, 64.0))
    ]
    assert [count_workers(nodes, threads) for threads in (1, 2, 3)] == [9, 4, 2]
    message = "A machine of the cluster must have 8 CPUs, but the largest one has 7."
    with pytest.raises(ValueError, match=re.escape(message)):
        count_workers(nodes, 8)
