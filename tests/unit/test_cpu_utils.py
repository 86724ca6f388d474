"""The cores that a process may use, with cgroups of version 1 and 2, and whether they multiply bfloat16."""

import os

import pytest
import torch

from vanilla_transformer import cpu_utils
from vanilla_transformer.cpu_utils import multiplies_bfloat16, usable_cores

V2 = "0::/box/inner\n"
V1 = "4:memory:/box\n3:cpu,cpuacct:/box\n0::/box\n"


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Return a function that writes files of cgroups, for a process with eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cpu_utils, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cpu_utils, "_MEMBERSHIP", tmp_path / "membership")

    def write(membership, files):
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        (V2, {}, 8),
        (V2, {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        (V2, {"box/inner/cpu.max": "max 100000\n", "box/cpu.max": "350000 100000\n"}, 3),
        (V2, {"box/inner/cpu.max": "50000 100000\n", "box/cpu.max": "350000 100000\n"}, 1),
        (V2, {"box/inner/cpu.max": "3200000 100000\n"}, 8),
        (V2, {"other/cpu.max": "100000 100000\n"}, 8),
        (V2, {"box/cpu.max": "x"}, 8),
        (V1, {"cpu/box/cpu.cfs_quota_us": "-1\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, 8),
        (V1, {"cpu/box/cpu.cfs_quota_us": "400000\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, 4),
        (V1, {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_usable_cores_follow_the_quotas_of_cgroups(cgroups, membership, files, cores):
    cgroups(membership, files)
    assert usable_cores() == cores


def test_usable_cores_follow_the_affinity_without_cgroups(cgroups):
    assert usable_cores() == 8


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ({"avx2": True}, False),
        ({"avx512_f": True, "avx512_vnni": True, "avx512_bf16": False, "amx_bf16": False}, False),  # Cascade Lake
        ({"avx512_bf16": True, "amx_bf16": False}, True),  # Zen 4
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"neon": True, "bf16": False}, False),
        ({"neon": True, "bf16": True}, True),
    ],
)
def test_multiplies_bfloat16_reads_instructions(monkeypatch, instructions, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    assert multiplies_bfloat16() is expected


def test_multiplies_bfloat16_knows_names_of_torch():
    names = torch.cpu.get_capabilities().keys()
    assert names & set(cpu_utils._BFLOAT16)
