"""Fixtures that all tests share, and unit, integration and slow tests by the name of a folder.

Unit tests that start a process or open a network connection fail. Slow tests get the mark `slow`.
"""

import gc
import os
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import datasets
import matplotlib.font_manager  # noqa: F401 - asks `fc-list` for the fonts when a machine first imports it
import pytest
import torch
from accelerate.state import AcceleratorState
from huggingface_hub import constants
from hypothesis import settings
from matplotlib.figure import Figure
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.utils import logging

from tests import tiny
from tests.browser import install_axe, open_browser
from tests.local_hub import running_hub
from tests.opennmt_files import write_opennmt_text
from tests.publishable import add_card
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
    modeling_vanilla_transformer,
    paper_generation_config,
)
from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.evaluation import plots
from vanilla_transformer.loading.model_folders import save_model_folder

# Property tests draw the same examples in every run. `make test-slow` draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")
DRAW_PICTURE, SAVE_PICTURE = plots.draw_picture, Figure.savefig
THREADS = int(os.environ.get("TEST_THREADS", "1"))  # which `make test-processors` varies
torch.set_num_threads(THREADS)


def pytest_collection_finish():
    """Exempt the libraries from garbage collection, which ends each run of training and takes 0.3 s
    with them.

    It is rare, too: parsing a package while its trees are kept takes half the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(autouse=True)
def _same_threads():
    """Undo the number of threads of a test.

    Small models gain nothing from two, and sums differ in bits.
    """
    yield  # fixtures of a module or a session precede the next test
    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def _warnings_of_packages():
    """Undo `--quiet` of an earlier test, the verbosity that one has chosen, and what one was warned
    of once.
    """
    logger = logging.get_logger("vanilla_transformer")
    logger.setLevel(0)
    logger.warning_once.__func__.cache_clear()
    logging.set_verbosity_warning()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory):
    """Keep the caches of the tests, and of the processes that they start, out of the user's
    home.
    """
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_CACHE", str(folder))
        patch.setenv("VANILLA_TRANSFORMER_CACHE", str(folder / "vanilla_transformer"))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_compilation_in_the_background():
    """Leave the cores to the tests.

    An engine compiles its steps after three seconds, in another process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_steps, "EAGER_SECONDS", float("inf"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_pictures():
    """Leave out pictures of commands and trainings, and write only the first bytes of others.

    Drawing takes longer than training a tiny model.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw_picture", lambda *_: None)
        patch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b"\x89PNG\r\n\x1a\n"))
        yield


@pytest.fixture
def real_figures(monkeypatch):
    """Draw figures in this process, too, except pictures of commands and trainings.

    Forked processes draw all.
    """
    monkeypatch.setattr(Figure, "savefig", SAVE_PICTURE)


@pytest.fixture
def real_pictures(monkeypatch, real_figures):
    """Draw all pictures in this process, too."""
    monkeypatch.setattr(plots, "draw_picture", DRAW_PICTURE)


@pytest.fixture(scope="session", autouse=True)
def _no_syncs():
    """Leave files of the tests in memory: waiting for a disk takes milliseconds for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _tables_of_positions():
    """Compute the sinusoids of Marian once for each size, in which the library takes most of the
    time of a tiny model.
    """
    tables, create = {}, MarianSinusoidalPositionalEmbedding.create_weight

    def create_once(module):
        kind = (*module.weight.shape, module.weight.dtype, torch.empty(0).device)
        if kind not in tables:
            tables[kind] = create(module)
        return tables[kind].clone()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarianSinusoidalPositionalEmbedding, "create_weight", create_once)
        yield


@pytest.fixture
def short_translations(monkeypatch):
    """Limit the translations of new models, which random weights hardly ever end, to 4 tokens
    beyond the source.
    """
    short = partial(paper_generation_config, max_new_tokens_beyond_source=4)
    monkeypatch.setattr(modeling_vanilla_transformer, "paper_generation_config", short)


@pytest.fixture(scope="session", autouse=True)
def _no_hub():
    """Let this process and others refuse to reach the Hub; `tests/local_hub.py` reaches the local
    one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield


@pytest.fixture
def tiny_config() -> VanillaTransformerConfig:
    return tiny.tiny_config()


@pytest.fixture
def tiny_model() -> VanillaTransformerForConditionalGeneration:
    """Return a model with random weights that decodes as in the paper."""
    return tiny.tiny_model()


@pytest.fixture(scope="session")
def tiny_tokenizer() -> VanillaTransformerTokenizer:
    return tiny.tiny_tokenizer()


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    """Return a folder with text, a SentencePiece model and its pieces, for files of OpenNMT-py and
    eole.
    """
    return write_opennmt_text(tmp_path_factory.mktemp("text"))


@pytest.fixture
def corpus(tmp_path):
    """Write parallel sentences of letters whose translation is in capitals, and return their
    folder.
    """
    return tiny.write_tiny_corpus(tmp_path)


@pytest.fixture
def alignments(corpus):
    """Write the alignments of the corpus, where each word is translated at its place, and return
    their file.
    """
    lines = []
    for text in (corpus / "train.a").read_text().splitlines():
        words = range(len(text.split()))
        lines.append(" ".join(f"{word}-{word}" for word in words))
    (corpus / "train.align").write_text("\n".join(lines) + "\n")
    return corpus / "train.align"


@pytest.fixture(autouse=True)
def _reset_accelerate():
    """Reset Accelerate, which keeps the first precision that a process requested."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(autouse=True)
def _enable_progress_bars():
    """Show progress bars again, which some commands turn off for the whole process."""
    yield
    logging.enable_progress_bar()


@pytest.fixture(scope="session")
def _saved_folder(tiny_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    return add_card(save_model_folder(tiny.tiny_model(), tiny_tokenizer, folder))


@pytest.fixture
def folder(tiny_model, _saved_folder, tmp_path):
    """Return a complete checkpoint folder of `tiny_model`: weights, configurations, tokenizer, code
    and card.
    """
    return Path(shutil.copytree(_saved_folder, tmp_path / "model"))


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub


TESTS = Path(__file__).parent
FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
FORBIDDEN |= {"socket.bind", "socket.connect", "socket.getaddrinfo"}
_running_test = None  # node id of the unit test in progress


def _refuse(event, arguments):
    """Fail the test in progress at a forbidden audit event (PEP 578)."""
    if _running_test and event in FORBIDDEN:
        # This exception is a BaseException, so `except Exception` in a library does not hide it.
        pytest.fail(
            f"{_running_test} causes {event!r}, which unit tests must not; move it to "
            "tests/integration.",
            False,
        )


@cache
def begin_to_refuse():
    """Look at all events of this process, which takes 2 % of the time of other tests."""
    sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _running_test
    _running_test = item.nodeid if is_in(item, "unit") else None
    if _running_test:
        begin_to_refuse()
    try:
        return (yield)
    finally:
        _running_test = None


def is_in(item, tier):
    """Return whether a test is in a folder with the name of a tier."""
    return tier in item.path.relative_to(TESTS).parts


def pytest_collection_modifyitems(items):
    for item in items:
        if is_in(item, "slow"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    return install_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="session")
def run_with_torchao(tmp_path_factory):
    """Return a function that runs code in a process that has torchao, whose import prints lines
    about GPUs.
    """
    target = tmp_path_factory.mktemp("torchao")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        "torchao==0.18.0",
    ]
    subprocess.run(pip, check=True, capture_output=True)

    def run(code, *arguments):
        paths = {"PYTHONPATH": os.pathsep.join([str(target), os.getcwd()])}
        paths["VANILLA_TRANSFORMER_CACHE"] = str(target / "cache")
        command = [sys.executable, "-c", code, *map(str, arguments)]
        ended = subprocess.run(
            command, env=os.environ | paths, capture_output=True, text=True, timeout=500
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    return run
