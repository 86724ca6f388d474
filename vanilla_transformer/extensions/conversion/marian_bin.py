"""Marian's binary files (`*.bin`), which Bergamot decodes: little-endian arrays by their names,
options among them.

Weights in int8 have one factor for a matrix, and are stored as `(outputs, inputs)` but for the
embedding.
"""

import math
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vanilla_transformer.errors import UserError

EMBEDDING = "Wemb"
_ALIGNMENT = 256  # of the data of each array
_FLOAT32, _INT8, _QUANTIZED = 0x0404, 0x0101, 0x4101
_DTYPES = {_FLOAT32: "<f4", _INT8: "i1", _QUANTIZED: "i1"}


def read_bin(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file by their names; weights in int8 become float32,
    `(inputs, outputs)`.
    """
    content, position = bytearray(path.read_bytes()), 0

    def take(layout: str) -> tuple[Any, ...]:
        nonlocal position
        values = struct.unpack_from(f"<{layout}", content, position)
        position += struct.calcsize(f"<{layout}")
        return values

    arrays = dict[str, np.ndarray]()
    try:
        version, count = take("QQ")
        if version != 1:
            raise UserError(
                f"{path} must be a binary file of Marian of version 1, got version {version}."
            )
        headers = [take("4Q") for _ in range(count)]
        names = [take(f"{length}s")[0].rstrip(b"\0").decode() for length, *_ in headers]
        shapes = [take(f"{rank}i") for _, _, rank, _ in headers]
        take(f"{take('Q')[0]}x")
        for (_, kind, _, length), name, shape in zip(headers, names, shapes, strict=True):
            if kind not in _DTYPES:
                raise UserError(
                    f"{path} must hold float32 or the int8 of Bergamot, got type {kind:#x} of "
                    f"{name}."
                )
            start, size = position, math.prod(shape)
            take(f"{length}x")
            values = np.frombuffer(content, _DTYPES[kind], size, start)
            if kind == _QUANTIZED:
                (factor,) = struct.unpack_from("<f", content, start + size)
                values = values / np.float32(factor)
                if name != EMBEDDING:
                    values = values.reshape(shape[::-1]).T
            arrays[name] = values.reshape(shape)
    except struct.error as error:
        raise UserError(
            f"{path} must be a binary file of Marian, but it is truncated or corrupt ({error})."
        ) from error
    return arrays


def write_bin(
    path: Path, arrays: Mapping[str, np.ndarray], quantized: Collection[str] = ()
) -> None:
    """Write arrays of float32 and int8.

    Args:
        quantized: The names of weights that are rounded to int8.
    """
    kinds, contents = [], []
    for name, array in arrays.items():
        if name in quantized:
            kinds.append(_QUANTIZED)
        else:
            kinds.append(_INT8 if array.dtype == np.int8 else _FLOAT32)
        if name in quantized:
            factor = np.float32(127) / (np.abs(array).max() or np.float32(1))
            oriented = array if name == EMBEDDING else array.T
            rounded = np.rint(oriented * factor).clip(-127, 127)
            content = rounded.astype(np.int8).tobytes() + struct.pack("<f", factor)
        else:
            content = array.astype(_DTYPES[kinds[-1]]).tobytes()
        contents.append(content + bytes(-len(content) % _ALIGNMENT))
    encoded = [name.encode() + b"\0" for name in arrays]
    head = struct.pack("<QQ", 1, len(arrays))
    for title, kind, array, content in zip(encoded, kinds, arrays.values(), contents, strict=True):
        head += struct.pack("<4Q", len(title), kind, array.ndim, len(content))
    shapes = [struct.pack(f"<{array.ndim}i", *array.shape) for array in arrays.values()]
    head += b"".join(encoded) + b"".join(shapes)
    # 256 rather than none, as Marian writes it.
    gap = _ALIGNMENT - (len(head) + 8) % _ALIGNMENT
    with path.open("wb") as file:
        file.writelines([head, struct.pack("<Q", gap), bytes(gap), *contents])
