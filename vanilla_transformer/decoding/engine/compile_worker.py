"""
Compile a step of the engine for another process, which decodes meanwhile.

    python -m vanilla_transformer.decoding.engine.compile_worker NAME KIND < STEP

Reads the step, arguments for it, their dimensions that may vary and the number of threads as bytes
of `torch.save`. Writes the entry NAME of the cache. KIND is of [`StepCompiler.compile`].
"""

import sys

import torch

from .compiled_steps import write_packages


def main(name: str, kind: str) -> None:
    step, arguments, dimensions, threads = torch.load(sys.stdin.buffer, weights_only=False)
    torch.set_num_threads(threads)
    write_packages(step, arguments, dimensions, {kind: name})


if __name__ == "__main__":
    main(*sys.argv[1:])
