"""Two processes: the first prepares and verifies text and checkpoints, and the other takes its
word.
"""

import hashlib
import logging
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from tests.launchers import run_two_processes
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import flags, train_tiny
from vanilla_transformer.errors import UserError
from vanilla_transformer.training import distributed, trainer
from vanilla_transformer.training.recipe import parse_recipe

TIMEOUT = timedelta(seconds=5)
LONGER = 6.0  # seconds that preparation takes
TEXT = {"train.a", "train.b"}


class Messages(logging.Handler):
    """A handler of logs that keeps the messages."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def connect(rank, folder):
    """Connect the processes again, with a short time-out."""
    torch.distributed.destroy_process_group()
    options = {"store": torch.distributed.FileStore(f"{folder}/{TIMEOUT}", 2), "timeout": TIMEOUT}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2, **options)


def resume(rank, folder, results):
    """Prepare a run that resumes, slowly in the first process; then let each process see another
    checkpoint.
    """
    hashed, messages = [], Messages()
    file_digest, load_texts = hashlib.file_digest, trainer.load_texts

    def record_digest(file, name):
        hashed.append(Path(file.name).relative_to(folder))
        return file_digest(file, name)

    def load_slowly(data):
        time.sleep(LONGER if rank == 0 else 0.0)
        return load_texts(data)

    connect(rank, folder)
    logging.getLogger("vanilla_transformer").addHandler(messages)
    distributed._SECONDS_BETWEEN_MESSAGES = 2.0
    hashlib.file_digest, trainer.load_texts = record_digest, load_slowly
    output = Path(folder, "run")
    options = {"max_steps": 9, "cache_dir": f"{folder}/cache"}
    recipe = parse_recipe(flags(Path(folder), output, **options))
    run = trainer.prepare_run(recipe, trainer.RunFolder(recipe))
    results[f"hashed {rank}"] = {str(path) for path in hashed}
    results[f"messages {rank}"] = messages.texts
    results[f"step {rank}"] = run.state.step
    try:
        trainer.RunFolder(parse_recipe(flags(Path(folder), output / f"{rank}", **options)))
    except UserError as error:
        results[f"refusal {rank}"] = str(error)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Return what two processes have seen, by its name and the process."""
    folder = write_tiny_corpus(tmp_path_factory.mktemp("run"))
    run = train_tiny(folder, folder / "run")
    for rank, steps in enumerate([(3, 6), (3,)]):
        for step in steps:
            name = f"checkpoint-{step}"
            shutil.copytree(run / name, run / str(rank) / name)
    return run_two_processes(resume, folder)


def test_others_wait_as_long_as_the_first_process_prepares(resumed):
    waiting = [text for text in resumed["messages 1"] if "waits" in text]
    reason = "waits for the first process of each node, which still prepares the text"
    assert waiting[:2] == [f"Process 1 {reason} ({minutes} min)." for minutes in (1, 2)]
    assert not [text for text in resumed["messages 0"] if "waits" in text]


def test_others_hash_neither_text_nor_checkpoints(resumed):
    first, other = ({*map(Path, resumed[f"hashed {rank}"])} for rank in (0, 1))
    assert {path.name for path in first} >= TEXT
    assert Path("run/checkpoint-6/optimizer.safetensors") in first
    assert Path("run/checkpoint-3/optimizer.safetensors") not in first
    assert other == {Path("run/checkpoint-6/sha256.json")}
    assert resumed["step 0"] == resumed["step 1"] == 6


def test_process_that_sees_another_checkpoint_ends(resumed):
    words = resumed["refusal 1"]
    assert "process 1 sees checkpoint-3 (" in words and "process 0 sees checkpoint-6 (" in words
    assert "\n" not in words and "refusal 0" not in resumed
