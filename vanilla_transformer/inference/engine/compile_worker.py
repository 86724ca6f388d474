"""
Compile a step of the engine for another process, which decodes meanwhile.

    python -m vanilla_transformer.inference.engine.compile_worker NAME < STEP

Reads the step, its arguments, their dimensions that may vary and the number of threads as bytes of `torch.save`, and
writes the entry NAME of the cache.
"""

import io
import sys

import torch

from .compiled_steps import write_package


def main(name: str) -> None:
    step, arguments, room_dimensions, threads = torch.load(io.BytesIO(sys.stdin.buffer.read()), weights_only=False)
    torch.set_num_threads(threads)
    write_package(step, arguments, room_dimensions, name)


if __name__ == "__main__":
    main(sys.argv[1])
