"""Archives that would fill more memory than their own size are refused before anything is read into
memory.
"""

import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from vanilla_transformer.decoding.pickled_checkpoint import (
    check_unpacked_size,
    load_pickled_checkpoint,
)
from vanilla_transformer.extensions.conversion.marian_npz import read_marian_folder

MANY_ZEROS = 3_000_000  # 12 MB of float32, which compress to 12 kB


def compress(source, target):
    with (
        zipfile.ZipFile(source) as read,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as write,
    ):
        for entry in read.infolist():
            write.writestr(entry.filename, read.read(entry))


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Return a folder with a checkpoint of torch and an archive of NumPy, both of zeros and
    compressed.
    """
    folder = tmp_path_factory.mktemp("archives")
    torch.save({"model": {"weight": torch.zeros(MANY_ZEROS)}}, folder / "plain.pt")
    compress(folder / "plain.pt", folder / "bomb.pt")
    (folder / "plain.pt").unlink()
    np.savez_compressed(folder / "bomb.npz", weight=np.zeros(MANY_ZEROS, np.float32))
    return folder


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("bomb.pt", lambda path: load_pickled_checkpoint(path, "fairseq", "model")),
        ("bomb.npz", lambda path: read_marian_folder(path.parent)),
    ],
)
def test_check_unpacked_size_refuses_a_compressed_archive(name, read, archives):
    path = archives / name
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="must not be compressed, got 12,.* bytes in a file of 1"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_check_unpacked_size_accepts_uncompressed_archives(tmp_path):
    np.savez(tmp_path / "model.npz", weight=np.zeros(1_000_000, np.float32))
    check_unpacked_size(tmp_path / "model.npz")
    torch.save({"model": torch.zeros(10)}, tmp_path / "model.pt")
    assert load_pickled_checkpoint(tmp_path / "model.pt", "fairseq", "model")["model"].shape == (
        10,
    )
    with pytest.raises(ValueError, match="must be a fairseq checkpoint with the entry 'weights'"):
        load_pickled_checkpoint(tmp_path / "model.pt", "fairseq", "weights")


MANY_NAMES = dict.fromkeys("abcde", torch.zeros(100))
EXPANDED = {"half": torch.zeros(4)[:2], "weight": torch.zeros(1).expand(100_000, 100_000)}
INCOMPLETE = "all values of its tensors, but"


@pytest.mark.parametrize(
    ("weights", "old_format", "message"),
    [
        (EXPANDED, False, f"{INCOMPLETE} one declares 40,000,000,000 bytes and has 4"),
        (EXPANDED, True, f"{INCOMPLETE} one declares 40,000,000,000 bytes and has 4"),
        (MANY_NAMES, False, f"{INCOMPLETE} they declare 2,000 bytes and have 400"),
        ({"weight": torch.zeros(2, 2).to_sparse()}, False, "must contain dense tensors"),
    ],
    ids=["expanded", "expanded, old format", "many names of one tensor", "sparse"],
)
def test_load_pickled_checkpoint_refuses_tensors_without_their_values(
    weights, old_format, message, tmp_path
):
    path = tmp_path / "model.pt"
    torch.save({"model": weights}, path, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(ValueError, match=message):
        load_pickled_checkpoint(path, "fairseq", "model")
