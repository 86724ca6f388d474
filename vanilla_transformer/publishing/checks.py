"""Checks that a model folder must pass before it is published."""

import json
import os
import re
import site
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub import ModelCard
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils import logging as library_logging

from vanilla_transformer.compatibility_vanilla_transformer import CompatibleModel, classes_by_name
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.text.languages import TARGET_TAG, find_languages
from vanilla_transformer.utils.file_utils import hash_file
from vanilla_transformer.utils.user_input import refuse_pipes

from . import behavior
from .behavior import BEHAVIOR_CHECKS, CheckFailed, find_task, run_check
from .card import hashes_in_card
from .staging import (
    CARD_NAME,
    INSTALLED_CODE,
    PICKLE_SUFFIXES,
    TRAINER_STATE,
    code_names,
    foreign_code,
    missing_files,
    publishable_files,
    required_names,
    walk_json,
)

_SENTENCES = ("A man is sleeping.", "Two dogs run across the green grass.", "Ein Mann schläft.", "1 2 3")
# The environment of the checks in a new process. All other variables may be secrets.
_KEPT_VARIABLES = {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
_KEPT_VARIABLES |= {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "CUDA_VISIBLE_DEVICES"}
_KEPT_VARIABLES |= {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS"}
# Metadata of the card that the Hub needs to list the model.
_METADATA = ("language", "license", "library_name", "pipeline_tag")
# Access tokens of the Hub, GitHub, AWS and OpenAI, and private keys.
_SECRET = re.compile(
    r"\b(?:hf_|api_org_|gh[pousr]_|sk-)[A-Za-z0-9_-]{30,}|\bAKIA[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_KEYS = {"token", "hub_token", "auth_token", "use_auth_token", "access_token", "api_key", "password", "secret"}
_PYTHON = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRIVATE_FOLDER = re.compile(r"(?<![\w.:/])/(?:home|Users|root|tmp|mnt)/[^\s\"'`]*|[^\s\"'`]*\.cache/[^\s\"'`]*")


class CheckResult(NamedTuple):
    """Result of one check; `detail` describes the finding."""

    name: str
    passed: bool
    detail: str


def check_folder(folder: str | Path, trust_remote_code: bool = False) -> list[CheckResult]:
    """Check the files of a model folder, and the model's behavior in a new process that cannot import this package.

    Args:
        trust_remote_code: Run the folder's code even if it differs from this package's.
    """
    folder = Path(folder)
    if folder.is_dir():
        refuse_pipes(folder)
    publishable_files(folder)
    results = [CheckResult(**run_check(name, check, folder)) for name, check in _FILE_CHECKS.items()]
    results.append(CheckResult(**run_check("code", _check_code, folder, trust_remote_code)))
    return [*results, *(_check_in_new_process(folder) if results[-1].passed else _skipped("the folder's code"))]


def failed_checks(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results of the checks that failed."""
    return [result for result in results if not result.passed]


def format_results(results: Sequence[CheckResult]) -> str:
    """Format results as a table for a terminal, one line per check."""
    width = max(len(result.name) for result in results)
    return "\n".join(
        f"{'ok  ' if result.passed else 'FAIL'}  {result.name:<{width}}  {result.detail}" for result in results
    )


def _check_files(folder: Path) -> str:
    missing = missing_files(folder)
    if missing:
        raise CheckFailed(f"{', '.join(missing)} is missing")
    names = [path.name for path in publishable_files(folder)]
    return f"{len(names)} files to publish: {', '.join(names)}"


def check_pickle(folder: Path) -> str:
    """Check that no file may be a pickle, except Trainer's own, which [`stage`] leaves out."""
    pickles = [path.name for path in sorted(folder.iterdir()) if path.suffix in PICKLE_SUFFIXES]
    dangerous = [name for name in pickles if name not in TRAINER_STATE]
    if dangerous:
        raise CheckFailed(f"delete {', '.join(dangerous)}, which may be pickle and run code when loaded")
    return f"none to publish; {', '.join(pickles)} of transformers' Trainer is left out" if pickles else "none"


def _check_weights(folder: Path) -> str:
    """Check that each tensor of the model is in the files once, with the model's shape, and finite."""
    paths = [path for path in publishable_files(folder) if path.suffix == ".safetensors"]
    if not paths:
        raise CheckFailed("there are no .safetensors files")
    shapes: dict[str, torch.Size] = {}
    for path in paths:
        for name, tensor in _tensors(path):
            if not torch.isfinite(tensor).all():
                raise CheckFailed(f"{name} in {path.name} holds values that are not finite")
            shapes[name] = tensor.shape
    _compare_shapes(shapes, _expected_shapes(folder))
    return f"{sum(shape.numel() for shape in shapes.values()):,} parameters, all finite"


def _tensors(path: Path) -> Any:
    try:
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                yield name, weights.get_tensor(name)
    except SafetensorError as error:
        raise CheckFailed(f"{path.name} is truncated or damaged ({error})") from error


def _expected_shapes(folder: Path) -> dict[str, torch.Size]:
    """Return the shapes of the tensors that the configuration needs, tied ones once."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    find_task(config)
    classes = classes_by_name(CompatibleModel)
    if (name := config.architectures[0]) not in classes:
        raise CheckFailed(f"`architectures` must name a class of this package or of --user_module, got {name!r}")
    with torch.device("meta"):
        model = classes[name](config)
    tied = model.all_tied_weights_keys
    return {name: tensor.shape for name, tensor in model.state_dict().items() if name not in tied}


def _compare_shapes(found: dict[str, torch.Size], expected: dict[str, torch.Size]) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            raise CheckFailed(f"{name} is missing from the files")
        if name not in expected:
            raise CheckFailed(f"{name} is in the files, but not in the configuration, or tied there")
        if found[name] != expected[name]:
            raise CheckFailed(f"{name} has shape {tuple(found[name])}, not {tuple(expected[name])}")


def _check_hashes(folder: Path) -> str:
    """Check that the card lists each file with its SHA-256."""
    if not (folder / CARD_NAME).exists():
        raise CheckFailed("there is no card to list the files")
    listed = hashes_in_card((folder / CARD_NAME).read_text(encoding="utf-8"))
    files = [path for path in publishable_files(folder) if path.name != CARD_NAME]
    for path in files:
        if path.name not in listed:
            raise CheckFailed(f"the card does not list {path.name}; render the card again")
        if listed[path.name] != hash_file(path):
            raise CheckFailed(f"{path.name} is not the file that the card lists; render the card again")
    gone = listed.keys() - {path.name for path in files}
    if gone:
        raise CheckFailed(f"the card lists {min(gone)}, which is missing; render the card again")
    return f"{len(files)} files match the card"


def _check_card(folder: Path) -> str:
    if not (folder / CARD_NAME).exists():
        raise CheckFailed(f"there is no {CARD_NAME}; render it with `vanilla-transformer render-card`")
    card = ModelCard.load(folder / CARD_NAME)
    lacking = [name for name in _METADATA if not getattr(card.data, name, None)]
    if lacking:
        raise CheckFailed(f"the metadata lacks {', '.join(lacking)}")
    task, _ = find_task(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    if card.data.pipeline_tag != task:
        raise CheckFailed(f"`pipeline_tag` must be {task!r}, got {card.data.pipeline_tag!r}")
    unfilled = re.search(r"\{\{.*?\}\}|\[More Information Needed\]", card.text)
    if unfilled:
        raise CheckFailed(f"a placeholder of the template is not filled: {unfilled.group()}")
    _check_python(card.text)
    return f"{', '.join(card.data.language)}; {len(card.data.eval_results or [])} scores"


def _check_python(text: str) -> None:
    """Check that each block of Python in a card compiles, except sessions, whose lines begin with a prompt."""
    for code in _PYTHON.findall(text):
        try:
            with warnings.catch_warnings(action="ignore"):
                compile("" if code.startswith(">>>") else code, CARD_NAME, "exec")
        except (SyntaxError, ValueError) as error:
            line = (getattr(error, "text", None) or code.splitlines()[0]).strip()
            raise CheckFailed(f"its Python does not compile: {line!r} ({error}); render the card again") from error


def _check_private_data(folder: Path) -> str:
    """Check that the texts to publish hold no access tokens and no folders of the user's machine."""
    for path in publishable_files(folder):
        if path.suffix in (".json", ".md", ".py"):
            text = path.read_text(encoding="utf-8")
            if _SECRET.search(text):  # the finding must not repeat the secret
                raise CheckFailed(f"{path.name} holds an access token or a private key; revoke and delete it")
            _check_folders(path.name, text)
        if path.suffix == ".json":
            for key, value in walk_json(json.loads(text)):
                if key in _SECRET_KEYS and value and isinstance(value, str):
                    raise CheckFailed(f"{path.name} has the entry {key!r}, which may be a secret; delete it")
    return "none"


def _check_folders(name: str, text: str) -> None:
    if name != "tokenizer.json" and not name.startswith("vocab"):  # whose entries may look like paths
        home = os.path.expanduser("~")
        found = _PRIVATE_FOLDER.search(text)
        if found or (home.count("/") > 1 and home in text):
            raise CheckFailed(f"{name} names the folder {found.group() if found else home} of your machine; remove it")


def _check_generation_config(folder: Path) -> str:
    if GENERATION_CONFIG_NAME not in required_names(folder):
        return "none, since the model does not generate"
    GenerationConfig.from_pretrained(folder).validate(strict=True)
    return "valid"


def _check_code(folder: Path, trust_remote_code: bool) -> str:
    """Check that the code which the next checks run is this package's, or trusted and in the folder."""
    references = foreign_code(folder)
    outside = [reference.text for reference in references if not reference.is_inside]
    if outside:
        raise CheckFailed(f"the folder runs code or loads models from elsewhere: {', '.join(outside)}")
    differing = [reference.text for reference in references]
    differing += [
        name
        for name in code_names(folder)
        if not (folder / name).exists() or (folder / name).read_bytes() != (INSTALLED_CODE / name).read_bytes()
    ]
    if differing and not trust_remote_code:
        raise CheckFailed(
            f"{', '.join(differing)} differs from this package's. Save the model again with this package, or run and "
            "publish the folder's own code with --trust_remote_code"
        )
    return "the folder's own, trusted" if differing else "the installed package's"


_FILE_CHECKS: dict[str, Callable[[Path], str]] = {
    "files": _check_files,
    "no pickle": check_pickle,
    "weights": _check_weights,
    "generation config": _check_generation_config,
    "private data": _check_private_data,
    "card": _check_card,
    "hashes": _check_hashes,
}


def _check_in_new_process(folder: Path) -> list[CheckResult]:
    """Run `behavior.py`, then compare its answers with this package's."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [sys.executable, behavior.__file__, str(folder.resolve())],
            input=json.dumps(_sentences(folder)),
            capture_output=True,
            text=True,
            cwd=modules,
            env=_environment_without_secrets(Path(modules)),
        )
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        return [CheckResult("loads without the package", False, last[0]), *_skipped("the check before")[1:]]
    answer = json.loads(process.stdout)
    results = [CheckResult(**result) for result in answer["results"]]
    if answer["answers"] is None:
        return [*results, *_skipped("'loads without the package'")[1:]]
    same = run_check("same translations", _check_answers, folder, answer["answers"])
    return [*results, CheckResult(**same)]


def _sentences(folder: Path) -> list[str]:
    """Return the sentences to run a model on, with a tag of the target language if it has several."""
    languages = find_languages(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    if languages is None or languages.is_forced:
        return [*_SENTENCES]
    return [TARGET_TAG.format(next(iter(languages.targets))) + sentence for sentence in _SENTENCES]


def _environment_without_secrets(home: Path) -> dict[str, str]:
    """Return the variables of a process that may run untrusted code: no tokens, and a home folder without any."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES}
    # transformers copies the folder's code into the cache before it imports it. The user's cache may hold older code.
    own = {"HOME": str(home), "HF_HOME": str(home), "PYTHONUSERBASE": site.getuserbase(), "HF_HUB_OFFLINE": "1"}
    return kept | own


def _check_answers(folder: Path, answers: Sequence[str]) -> str:
    """Check that this package translates, continues, fills or classifies sentences as the folder's own code does."""
    task, auto_class = find_task(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    library_logging.disable_progress_bar()
    try:
        model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        loaded = {"task": task, "model": model, "tokenizer": tokenizer}
        if task == "translation":
            loaded["pipeline"] = TranslationPipeline(model, tokenizer, task="translation")
    finally:
        library_logging.enable_progress_bar()
    sentences = _sentences(folder)
    expected = behavior.answer(loaded, sentences)
    for sentence, ours, theirs in zip(sentences, expected, answers, strict=True):
        if ours != theirs:
            raise CheckFailed(f"{sentence!r} becomes {ours!r} with this package and {theirs!r} without it")
    return f"{len(expected)} sentences, run with and without this package"


def _skipped(cause: str) -> list[CheckResult]:
    """Return a failure for each check that could not run because `cause` failed."""
    names = ("loads without the package", *BEHAVIOR_CHECKS, "same translations")
    return [CheckResult(name, False, f"not run, because {cause} failed") for name in names]
