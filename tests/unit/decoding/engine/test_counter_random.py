"""Random numbers from counters: uniform, independent, and the same for a row alone and in a
batch.
"""

import math

import pytest
import torch

from tests.closeness import LIKELY, p_value
from vanilla_transformer.decoding.engine.sampling import (
    LARGEST_SEED,
    gumbel_noise,
    hash_bits,
    random_bits,
)

ROWS, NUMBERS = 64, 512


def bits_of(first_seed=0, time=3, stream=0):
    seeds = torch.arange(first_seed, first_seed + ROWS)
    return random_bits(seeds, torch.full((ROWS,), time), stream, torch.arange(NUMBERS))


def test_hash_bits_is_lowbias32():
    def lowbias32(value):
        value = ((value ^ value >> 16) * 0x7FEB352D) % 2**32
        value = ((value ^ value >> 15) * 0x846CA68B) % 2**32
        return value ^ value >> 16

    values = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xDEADBEEF, 2**32 - 1]
    assert hash_bits(torch.tensor(values)).tolist() == [lowbias32(value) for value in values]


SEEDS = [0, 2**31, LARGEST_SEED - ROWS]


@pytest.mark.parametrize("first_seed", SEEDS, ids=["small", "middle", "large"])
def test_random_bits_are_uniform(first_seed):
    bits = bits_of(first_seed)
    assert bits.min() >= 0
    assert bits.max() < 2**32
    for shift in (0, 8, 16, 24):
        counts = torch.bincount((bits >> shift & 255).flatten(), minlength=256)
        assert p_value(counts, torch.full((256,), bits.numel() / 256)) > LIKELY


OTHERS = {
    "time": bits_of(time=4),
    "stream": bits_of(stream=1),
    "seed": bits_of(first_seed=1),
    "high-seed": bits_of(first_seed=2**32),
    "counter": bits_of().roll(1, 1),
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_random_bits_are_independent(others):
    cells = (bits_of() >> 28) * 16 + (others >> 28)
    table = torch.bincount(cells.flatten(), minlength=256).reshape(16, 16)
    independent = table.sum(dim=1, keepdim=True) * table.sum(dim=0) / table.sum()
    assert p_value(table.flatten(), independent.flatten(), fitted=30) > LIKELY


def test_random_bits_of_a_row_do_not_depend_on_other_rows():
    alone = random_bits(torch.tensor([5]), torch.tensor([3]), 0, torch.arange(NUMBERS))
    assert torch.equal(alone[0], bits_of()[5])
    counters = torch.tensor([[7, 3]]).expand(ROWS, -1)
    few = random_bits(torch.arange(ROWS), torch.full((ROWS,), 3), 0, counters)
    assert torch.equal(few, bits_of()[:, [7, 3]])


def test_gumbel_noise_has_the_gumbel_distribution():
    times = torch.zeros(ROWS, dtype=torch.long)
    noise = gumbel_noise(torch.arange(ROWS), times, 0, torch.arange(NUMBERS))
    assert noise.isfinite().all()
    # The distribution function maps to [0, 1].
    shares = torch.exp(-torch.exp(-noise))
    cells = (shares * 200).long().clamp(max=199)
    counts = torch.bincount(cells.flatten(), minlength=200)
    assert p_value(counts, torch.full((200,), noise.numel() / 200)) > LIKELY
    error = math.pi / math.sqrt(6 * noise.numel())
    assert noise.mean().item() == pytest.approx(0.5772, abs=4 * error)
