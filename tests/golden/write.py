"""Store the answers of today: `python -m tests.golden.write [SUBJECT ...]`, on purpose only.

It refuses a case whose answer changes with relative noise on the weights: another processor might
answer otherwise.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from .cases import SUBJECTS
from .comparison import answer, find_difference, write_answers
from .doors import Doors
from .interface import write_interface

_NOISE, _NOISY_MODELS = 3e-6, 3


def main(subjects: list[str]) -> int:
    """Write the answers of some subjects, and return the number of refused cases."""
    if "interface" in subjects:
        write_interface()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VANILLA_TRANSFORMER_CACHE"] = str(Path(folder) / "cache")
        os.environ["HF_HUB_OFFLINE"] = "1"
        noises = [0.0] + [_NOISE] * _NOISY_MODELS
        several = []
        for seed, noise in enumerate(noises):
            several.append(Doors(Path(folder) / f"{seed}", noise, seed))
        for subject in [name for name in subjects if name in SUBJECTS]:
            answers = {}
            for name in SUBJECTS[subject]:
                try:
                    answers[name] = _answer(several, subject, name)
                except Exception as error:
                    refused += 1
                    message = f"{type(error).__name__}: {str(error)[:300]}"
                    sys.stderr.write(f"refused {subject}-{name}: {message}\n")
            write_answers(subject, answers)
        for doors in several:
            doors.close()
    return refused


def _answer(several: list[Doors], subject: str, name: str) -> Any:
    """Return the answer of the first doors to a case.

    Raises:
        ValueError: Others, whose models have noise, answer otherwise.
    """
    first, *noisy = (answer(doors, subject, name) for doors in several)
    for other in noisy:
        difference = find_difference(other, first)
        if difference is not None:
            raise ValueError(f"Noise changes the answer, {difference}")
    return first


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:] or [*SUBJECTS, "interface"]), 1))
