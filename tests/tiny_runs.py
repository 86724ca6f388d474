"""Runs of a tiny model on a tiny corpus, in this process or in others."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tiny import TINY_SIZES

ROOT = Path(__file__).parents[1]
TINY = TINY_SIZES | {
    "vocab_size": 280,
    "max_tokens": 64,
    "dropout": 0.0,
    "warmup_steps": 10,
    "max_steps": 6,
    "logging_steps": 2,
    "eval_steps": 4,
    "save_steps": 3,
    "average_checkpoints": 2,
}


def flags(corpus, output, **changes):
    options = {
        f"{name}_{side}": corpus / f"{name}.{end}"
        for name in ("train", "validation")
        for side, end in (("source", "a"), ("target", "b"))
    }
    options |= {"output_dir": output} | TINY | changes
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def no_scores(model, tokenizer, pairs, **generate_kwargs):
    return {"bleu": float(generate_kwargs.get("num_beams", model.generation_config.num_beams))}


def entries(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def launch(launcher, arguments):
    """Starts the training script as a user does, by a launcher if there is one, in a process group of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *(["-m", *launcher] if launcher else []), str(ROOT / "scripts" / "train.py"), *arguments],
        env=environment,
        text=True,
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
