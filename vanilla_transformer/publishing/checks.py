"""Checks that a model folder must pass before it is published."""

import json
import os
import re
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging as library_logging

from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.pretrained import load_pretrained
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.json_files import walk_json
from vanilla_transformer.loading.model_files import check_model_files
from vanilla_transformer.loading.model_names import refuse_pipes
from vanilla_transformer.text.languages import ISO_CODE, TARGET_TAG, find_languages

from . import standalone
from .card import hashes_in_card
from .staging import (
    CARD_NAME,
    INSTALLED_CODE,
    code_names,
    find_task,
    foreign_code,
    missing_files,
    publishable_files,
    refuse_own_class,
)

SENTENCES = (
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "Ein Mann schläft.",
    "1 2 3",
)
# Files that other libraries write with pickle, which runs arbitrary code when it is loaded.
_PICKLE_SUFFIXES = (".bin", ".ckpt", ".h5", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
# Pickles that transformers' Trainer saves beside a model, which are not published.
_TRAINER_STATE = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth")
# The environment of the checks in a new process. All other variables may be secrets.
_KEPT_VARIABLES = {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV"}
_KEPT_VARIABLES |= {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"}
_KEPT_VARIABLES |= {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
_KEPT_VARIABLES |= {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS"}
# Metadata of the card that the Hub needs to list the model.
_METADATA = ("language", "license", "library_name", "pipeline_tag")
# Access tokens of the Hub, GitHub, AWS and OpenAI, and private keys.
_SECRET = re.compile(
    r"\b(?:hf_|api_org_|gh[pousr]_|sk-)[A-Za-z0-9_-]{30,}|\bAKIA[0-9A-Z]{16}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_KEYS = {
    "token",
    "hub_token",
    "auth_token",
    "use_auth_token",
    "access_token",
    "api_key",
    "password",
    "secret",
}
_PRIVATE_FOLDER = re.compile(
    r"(?<![\w.:/])/(?:home|Users|root|tmp|mnt)/[^\s\"'`]*|(?<![^\s\"'`])[^\s\"'`]*\.cache/[^\s\"'`]*"
)


class CheckResult(NamedTuple):
    """Result of one check; `detail` describes the finding."""

    name: str
    passed: bool
    detail: str


def run_check(name: str, check: Callable[..., str | None], *arguments: Any) -> CheckResult:
    """Run a check.

    An exception of any kind is a failure, since a folder may be damaged anywhere.
    """
    try:
        return CheckResult(name, True, check(*arguments) or "")
    except Exception as error:
        reason = " ".join(str(error).split())
        if not isinstance(error, UserError | OSError):
            reason = f"{type(error).__name__}: {reason}"
        return CheckResult(name, False, reason)


def check_folder(folder: str | Path, trust_remote_code: bool = False) -> list[CheckResult]:
    """Check the files of a model folder, and run the model in a new process that cannot import this
    package.

    Args:
        trust_remote_code: Run the folder's code even if it differs from this package's.
    """
    folder = Path(folder)
    if folder.is_dir():
        refuse_pipes(folder)
    publishable_files(folder)
    settings = run_check("settings", check_model_files, folder)
    results = []
    if settings.passed:  # without sound settings, nothing of the folder is loaded
        refuse_own_class(folder)
        results = [run_check(name, check, folder) for name, check in _FILE_CHECKS.items()]
    results.append(run_check("code", _check_code, folder, trust_remote_code))
    if settings.passed and results[-1].passed:
        return results + _check_in_new_process(folder)
    if not settings.passed:
        results.append(settings)
    reason = "not run, because the folder's code or settings failed"
    for name in ("loads without the package", "same translations"):
        results.append(CheckResult(name, False, reason))
    return results


def check_staged(
    folder: str | Path, staged: Path, trust_remote_code: bool = False
) -> list[CheckResult]:
    """Check a copy by [`stage`], and name the pickles that it has left out."""
    pickles = run_check("no pickle", check_pickle, Path(folder))
    results = check_folder(staged, trust_remote_code)
    for index, result in enumerate(results):
        if result.name == pickles.name and pickles.passed:
            results[index] = pickles
    return results


def failed_checks(results: Sequence[CheckResult]) -> list[CheckResult]:
    return [result for result in results if not result.passed]


def format_results(results: Sequence[CheckResult]) -> str:
    """Format results as a table for a terminal, one line per check."""
    width = max(len(result.name) for result in results)
    lines = []
    for result in results:
        mark = "ok  " if result.passed else "FAIL"
        lines.append(f"{mark}  {result.name:<{width}}  {result.detail}")
    return "\n".join(lines)


def _check_files(folder: Path) -> str:
    missing = missing_files(folder)
    if missing:
        raise UserError(f"{', '.join(missing)} is missing")
    names = [path.name for path in publishable_files(folder)]
    return f"{len(names)} files to publish: {', '.join(names)}"


def check_pickle(folder: Path) -> str:
    """Check that no file may be a pickle, except Trainer's own, which [`stage`] leaves out."""
    paths = sorted(folder.iterdir())
    pickles = [path.name for path in paths if path.suffix in _PICKLE_SUFFIXES]
    dangerous = [name for name in pickles if name not in _TRAINER_STATE]
    if dangerous:
        names = ", ".join(dangerous)
        raise UserError(f"delete {names}, which may be pickle and run code when loaded")
    if not pickles:
        return "none"
    return f"none to publish; {', '.join(pickles)} of transformers' Trainer is left out"


def _check_weights(folder: Path) -> str:
    return f"{_load(folder).num_parameters():,} parameters, all finite"


def _task_of(folder: Path) -> tuple[str, str]:
    return find_task(AutoConfig.from_pretrained(folder, trust_remote_code=False))


def _load(folder: Path) -> Any:
    """Load the model by this package, which refuses other tensors than the configuration needs."""
    _, auto_class = _task_of(folder)
    library_logging.disable_progress_bar()
    try:
        return load_pretrained(getattr(transformers, auto_class), folder)
    finally:
        library_logging.enable_progress_bar()


def _check_hashes(folder: Path) -> str:
    """Check that the card lists each file with its SHA-256."""
    listed = hashes_in_card(_find_card(folder).read_text(encoding="utf-8"))
    hashes: dict[str, str] = {}
    for path in publishable_files(folder):
        if path.name != CARD_NAME:
            hashes[path.name] = hash_file(path)
    for name in sorted(hashes.keys() | listed.keys()):
        if hashes.get(name) != listed.get(name):
            raise UserError(f"{name} is not the file that the card lists; render the card again")
    return f"{len(hashes)} files match the card"


def _find_card(folder: Path) -> Path:
    path = folder / CARD_NAME
    if not path.exists():
        command = "vanilla-transformer render-card"
        raise UserError(f"there is no {CARD_NAME}; render it with `{command}`")
    return path


def _check_card(folder: Path) -> str:
    card = ModelCard.load(_find_card(folder))
    lacking = [name for name in _METADATA if not getattr(card.data, name, None)]
    if lacking:
        raise UserError(f"the metadata lacks {', '.join(lacking)}")
    languages = card.data.language or ()
    codes = [languages] if isinstance(languages, str) else [*map(str, languages)]
    for code in codes:
        if not ISO_CODE.fullmatch(code):
            raise UserError(
                f"`language` must be a code of ISO 639, such as de, got {code!r}. Correct the file "
                "of facts, and render the card again"
            )
    task, _ = _task_of(folder)
    tag = card.data.pipeline_tag
    if tag != task:
        raise UserError(f"`pipeline_tag` must be {task!r}, got {tag!r}")
    unfilled = re.search(r"\{\{.*?\}\}|\[More Information Needed\]", card.text)
    if unfilled:
        placeholder = unfilled.group()
        raise UserError(f"a placeholder of the template is not filled: {placeholder}")
    return f"{', '.join(codes)}; {len(card.data.eval_results or [])} scores"


def _check_private_data(folder: Path) -> str:
    """Check that the texts to publish hold no access tokens and no folders of the user's
    machine.
    """
    home = os.path.expanduser("~")
    for path in publishable_files(folder):
        if path.suffix not in (".json", ".md", ".py"):
            continue
        text = path.read_text(encoding="utf-8")
        if _SECRET.search(text):  # the finding must not repeat the secret
            raise UserError(
                f"{path.name} holds an access token or a private key; revoke and delete it"
            )
        # Entries of a vocabulary may look like paths.
        if path.name != "tokenizer.json" and not path.name.startswith("vocab"):
            private = _PRIVATE_FOLDER.search(text)
            if private or (home.count("/") > 1 and home in text):
                shown = private.group() if private else home
                problem = f"names the folder {shown} of your machine"
                raise UserError(f"{path.name} {problem}; remove it")
        if path.suffix == ".json":
            for key, value in walk_json(json.loads(text)):
                if key in _SECRET_KEYS and value and isinstance(value, str):
                    problem = f"has the entry {key!r}, which may be a secret"
                    raise UserError(f"{path.name} {problem}; delete it")
    return "none"


_FILE_CHECKS: dict[str, Callable[[Path], str]] = {
    "files": _check_files,
    "no pickle": check_pickle,
    "weights": _check_weights,
    "private data": _check_private_data,
    "card": _check_card,
    "hashes": _check_hashes,
}


def _check_code(folder: Path, trust_remote_code: bool) -> str:
    """Check that the code which the next checks run is this package's, or trusted and in the
    folder.
    """
    differing, elsewhere = [], []
    for text, is_elsewhere in foreign_code(folder):
        differing.append(text)
        if is_elsewhere:
            elsewhere.append(text)
    if elsewhere:
        listing = ", ".join(elsewhere)
        raise UserError(f"the folder runs code or loads models from elsewhere: {listing}")
    for name in code_names(folder):
        carried, installed = folder / name, INSTALLED_CODE / name
        if not carried.exists() or carried.read_bytes() != installed.read_bytes():
            differing.append(name)
    if differing and not trust_remote_code:
        raise UserError(
            f"{', '.join(differing)} differs from this package's. Save the model again with this "
            "package, or run and publish the folder's own code with --trust_remote_code"
        )
    return "the folder's own, trusted" if differing else "the installed package's"


def _check_in_new_process(folder: Path) -> list[CheckResult]:
    """Run the model by the folder's own code without this package, and compare its answers with
    this package's.
    """
    loads = run_check("loads without the package", _answer_without_package, folder)
    if not loads.passed:
        reason = "not run, because the check before failed"
        return [loads, CheckResult("same translations", False, reason)]
    answers = json.loads(loads.detail)
    same = run_check("same translations", _check_answers, folder, answers)
    detail = "loads with transformers alone and `trust_remote_code=True`"
    return [loads._replace(detail=detail), same]


def _answer_without_package(folder: Path) -> str:
    """Return the answers, a list in JSON, of a process that cannot import this package and knows no
    secrets.
    """
    task, auto_class = _task_of(folder)
    with tempfile.TemporaryDirectory() as home:
        environment = {}
        for name, value in os.environ.items():
            if name in _KEPT_VARIABLES:
                environment[name] = value
        # transformers copies the folder's code into the cache before it imports it. The user's may
        # hold older code.
        environment |= {
            "HOME": home,
            "HF_HOME": home,
            "PYTHONUSERBASE": site.getuserbase(),
            "HF_HUB_OFFLINE": "1",
        }
        script = standalone.__file__
        process = subprocess.run(
            [sys.executable, script, str(folder.resolve()), task, auto_class],
            input=json.dumps(_sentences(folder)),
            capture_output=True,
            text=True,
            cwd=home,
            env=environment,
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        raise UserError(lines[-1] if lines else f"exit status {process.returncode}")
    json.loads(process.stdout)  # code of the folder may print something else
    return process.stdout


def _sentences(folder: Path) -> list[str]:
    """Return the sentences to run a model on, with a tag of the target language if it has
    several.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    languages = find_languages(tokenizer)
    if languages is None or languages.is_forced:
        return [*SENTENCES]
    tag = TARGET_TAG.format(next(iter(languages.targets)))
    return [tag + sentence for sentence in SENTENCES]


def _check_answers(folder: Path, answers: Sequence[str]) -> str:
    """Check that this package translates, continues, fills or classifies sentences as the folder's
    own code does.
    """
    model = _load(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    task, _ = find_task(model.config)
    translate = None
    if task == "translation":
        translate = TranslationPipeline(model, tokenizer, task=task)
    sentences = _sentences(folder)
    expected = standalone.answer(task, model, tokenizer, translate, sentences)
    for sentence, ours, theirs in zip(sentences, expected, answers, strict=True):
        if ours != theirs:
            answers_of_both = f"{ours!r} with this package and {theirs!r} without it"
            raise UserError(f"{sentence!r} becomes {answers_of_both}")
    return f"{len(expected)} sentences, run with and without this package"
