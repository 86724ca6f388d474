"""The cores and the memory that a process may use, by its cgroups, and the numbers that a processor
multiplies.
"""

import os
from functools import partial

import pytest
import torch

from tests.tiny import tiny_model
from vanilla_transformer import Engine
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.machine import cores, memory
from vanilla_transformer.machine.cores import multiplies, usable_cores
from vanilla_transformer.machine.memory import total_memory

V2 = "0::/box/inner\n"
V1 = "4:memory:/box\n3:cpu,cpuacct:/box\n0::/box\n"


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Return a function that writes files of cgroups, for a process with eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")

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
    assert usable_cores() == 8  # without cgroups
    cgroups(membership, files)
    assert usable_cores() == cores


@pytest.mark.parametrize(
    ("membership", "files", "size"),
    [
        (V2, {}, None),
        (V2, {"box/memory.max": "max\n"}, None),
        (V2, {"memory.max": "4096\n"}, 4096),
        (V2, {"box/memory.max": "4096\n", "memory.max": "8192\n"}, 4096),
        (V2, {"box/inner/memory.max": "4096\n", "box/memory.max": "max\n"}, 4096),
        (V2, {"other/memory.max": "4096\n"}, None),
        (V1, {"memory/memory.limit_in_bytes": "4096\n"}, 4096),
        (V1, {"memory/box/memory.limit_in_bytes": "4096\n"}, 4096),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_total_memory_follows_the_limits_of_cgroups(cgroups, membership, files, size):
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cgroups(membership, files)
    assert total_memory(torch.device("cpu")) == (size or whole)


@pytest.mark.parametrize(
    ("instructions", "bfloat16", "int8"),
    [
        ({"avx2": True, "avx512_vnni": False}, False, False),  # Zen 3
        ({"avx2": True, "avx_vnni": True}, False, True),  # Alder Lake
        # Cascade Lake.
        ({"avx512_f": True, "avx512_vnni": True, "avx512_bf16": False}, False, True),
        ({"avx512_vnni": True, "avx512_bf16": True, "amx_bf16": False}, True, True),  # Zen 4
        ({"amx_bf16": True, "amx_int8": True}, True, True),
        ({"neon": True, "bf16": False, "i8mm": False, "dot": True}, False, True),
        ({"neon": True, "bf16": True, "i8mm": True}, True, True),
    ],
)
def test_multiplies_reads_instructions(monkeypatch, instructions, bfloat16, int8):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    cpu = torch.device("cpu")
    assert (multiplies("bfloat16", cpu), multiplies("int8", cpu)) == (bfloat16, int8)
    assert multiplies("float32", cpu)


@pytest.mark.parametrize("fast", [True, False])
def test_multiplies_leaves_out_bfloat16_that_a_gpu_emulates(monkeypatch, fast):
    asked = []

    def is_supported(**options):
        asked.append(options)
        return fast

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert multiplies("bfloat16", torch.device("cuda")) is fast
    assert asked == [{"including_emulation": False}]
    assert multiplies("float32", torch.device("cuda"))

    monkeypatch.setattr(cores, "is_bf16_available", lambda: fast)
    assert multiplies("bfloat16", torch.device("mps")) is fast
    known = torch.cpu.get_capabilities().keys()
    assert all(known & {*names} for names in cores._INSTRUCTIONS.values())


BUILDS = [partial(Engine, compile=False), EnginePool]


@pytest.mark.parametrize("build", BUILDS, ids=["engine", "pool"])
def test_decoding_limits_the_caches_of_products(build, monkeypatch):
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    others = {name: value for name, value in os.environ.items() if name not in names}
    monkeypatch.setattr(os, "environ", others)  # undone after this test
    build(tiny_model())
    assert [others.get(name) for name in names] == ["64", "64"]
