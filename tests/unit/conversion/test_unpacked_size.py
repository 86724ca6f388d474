"""Archives that unpack to far more than their size are refused before anything is read into memory."""

import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from vanilla_transformer.conversion.marian_npz import _read_arrays
from vanilla_transformer.conversion.utils import load_pickled_checkpoint

MANY_ZEROS = 30_000_000  # 120 MB of float32, which compress to 120 kB


def compress(source, target):
    with zipfile.ZipFile(source) as read, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as write:
        for entry in read.infolist():
            write.writestr(entry.filename, read.read(entry))


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Return a folder with a checkpoint of torch and an archive of NumPy, both of zeros and compressed."""
    folder = tmp_path_factory.mktemp("archives")
    torch.save({"model": {"weight": torch.zeros(MANY_ZEROS)}}, folder / "plain.pt")
    compress(folder / "plain.pt", folder / "bomb.pt")
    (folder / "plain.pt").unlink()
    np.savez_compressed(folder / "bomb.npz", weight=np.zeros(MANY_ZEROS, np.float32))
    return folder


@pytest.mark.parametrize(
    ("name", "read"),
    [("bomb.pt", lambda path: load_pickled_checkpoint(path, "fairseq", "model")), ("bomb.npz", _read_arrays)],
)
def test_check_unpacked_size_refuses_a_compressed_archive(name, read, archives):
    path = archives / name
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="must unpack to at most 10 times its size, got 120,.* bytes from 1"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_check_unpacked_size_accepts_small_and_uncompressed_archives(tmp_path):
    np.savez_compressed(tmp_path / "small.npz", weight=np.zeros(1_000_000, np.float32))
    assert _read_arrays(tmp_path / "small.npz")["weight"].shape == (1_000_000,)
    torch.save({"model": torch.zeros(10)}, tmp_path / "model.pt")
    assert load_pickled_checkpoint(tmp_path / "model.pt", "fairseq", "model")["model"].shape == (10,)


def test_read_arrays_refuses_an_array_that_declares_too_much(tmp_path):
    header = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % 10**17
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("weight.npy", header.ljust(127) + b"\n")
    with pytest.raises(ValueError, match="is not a complete NumPy archive"):
        _read_arrays(tmp_path / "model.npz")
