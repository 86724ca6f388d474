"""Upload a checked model folder to the Hub in one commit, and its Marian form to the branch
`marian`.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    EvalResultEntry,
    HfApi,
    ModelCard,
)

# HTTPError is the error class of the HTTP client that this release of huggingface_hub is built on.
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.hashes import files_within, refuse_damage
from vanilla_transformer.loading.model_names import check_repo_id

from .checks import SENTENCES, CheckResult, check_staged, failed_checks
from .eval_results import write_eval_results
from .marian_branch import MARIAN, can_be_marian, write_marian
from .staging import CARD_NAME, refuse_own_class, stage

_COMPARISON = "## Comparison with the model before"  # heading in the card


def push_folder(
    folder: str | Path,
    repo_id: str,
    card: Callable[[Path], ModelCard] | None = None,
    *,
    compare: Callable[[], str] = str,
    eval_results: Sequence[EvalResultEntry] = (),
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    token: str | None = None,
    trust_remote_code: bool = False,
    report: Callable[[Sequence[CheckResult]], None] = lambda results: None,
    plan: Callable[[Mapping[str, int]], None] | None = None,
) -> str | None:
    """Publish a model folder: copy its files aside, check the copy, and upload it in one commit.

    A download gets all of the old model or all of the new one. Files on the Hub that the folder
    lacks are deleted. Before a push to `main`, the branch `marian` gets the same model as a
    `MarianMTModel`, if that can represent it.

    Args:
        repo_id: `"user/name"`. The repository is created if it does not exist.
        card: Renders the model card of the copy; by default the folder's own card is published.
        compare: Compares the model with another one before anything else is done, and returns what
            the card says about it, or raises an exception.
        eval_results: Scores for leaderboards, which become files of the copy; see
            [`find_eval_results`].
        private: Create a private repository; an existing one does not change.
        revision: Branch to push to, created if it does not exist; by default `main`.
        report: Called with the results of the checks before anything is uploaded.
        plan: Called with the sizes of the files in bytes, by name, instead of an upload. The Hub
            gets no request.

    Returns:
        The URL of the commit, or None with `plan`.
    """
    check_repo_id(repo_id)
    if repo_id.count("/") != 1:
        raise UserError(f"The repository must be named 'user/name', got {repo_id!r}.")
    refuse_damage(Path(folder))
    refuse_own_class(Path(folder))
    comparison = compare()
    with tempfile.TemporaryDirectory() as parent:
        staged = stage(folder, Path(parent) / "model")
        if card is not None:
            card(staged).save(staged / CARD_NAME)
        if comparison:
            with (staged / CARD_NAME).open("a", encoding="utf-8") as page:
                page.write(f"\n{_COMPARISON}\n\n{comparison}\n")
        write_eval_results(staged, eval_results)
        results = check_staged(folder, staged, trust_remote_code)
        report(results)
        failed = [f"{result.name} ({result.detail})" for result in failed_checks(results)]
        if failed:
            faults = f"{len(failed)} checks: {'; '.join(failed)}"
            raise UserError(f"{folder} was not published; it fails {faults}.")
        marian: Path | None = None
        if revision in (None, "main") and can_be_marian(staged):
            marian = write_marian(staged, Path(parent) / MARIAN, repo_id, SENTENCES)
        if plan is not None:
            sizes: dict[str, int] = {}
            for path in files_within(staged):
                sizes[path.relative_to(staged).as_posix()] = path.stat().st_size
            if marian is not None:
                for path in sorted(marian.iterdir()):
                    sizes[f"{MARIAN}/{path.name}"] = path.stat().st_size
            plan(sizes)
            return None
        message = message or f"Upload {repo_id.split('/')[-1]}"
        if marian is not None:
            # First, because the card of `main` names it.
            _upload(marian, repo_id, private, MARIAN, message, token)
        return _upload(staged, repo_id, private, revision, message, token)


def _upload(
    staged: Path, repo_id: str, private: bool, revision: str | None, message: str, token: str | None
) -> str:
    api = HfApi(token=token, library_name="vanilla-transformer")
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        # Not `upload_folder(delete_patterns=...)`: with hf_xet it splits an upload into several
        # commits after a failed or slow one (huggingface_hub 2.4), so that a download in between
        # would get a mixture of two models.
        obsolete = set(api.list_repo_files(repo_id, revision=revision)) - {".gitattributes"}
        operations: list[CommitOperationAdd | CommitOperationDelete] = []
        for path in files_within(staged):
            name = path.relative_to(staged).as_posix()
            operations.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=path))
            obsolete.discard(name)
        for name in sorted(obsolete):
            operations.append(CommitOperationDelete(path_in_repo=name))
        commit = api.create_commit(repo_id, operations, commit_message=message, revision=revision)
        return str(commit.commit_url)
    # A ConnectionError says that the library is in its offline mode.
    except (HfHubHTTPError, HTTPError, ConnectionError, RuntimeError) as error:
        # A failed upload raises a RuntimeError caused by an HTTPError; any other RuntimeError is
        # not the network's.
        fault = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(fault, HTTPError | ConnectionError):
            raise
        response = getattr(fault, "response", None)
        status = None if response is None else response.status_code
        is_missing = isinstance(fault, RepositoryNotFoundError | RevisionNotFoundError)
        if is_missing or status in (401, 403):
            hint = (
                "Log in with `hf auth login`, with a token that may write there, or choose "
                "another name."
            )
            reason = f"The Hub does not let you write to {repo_id} ({status}). {hint}"
        elif status is None:
            cause = f"{type(fault).__name__}: {fault}"
            problem = f"The Hub could not be reached, or the connection broke ({cause})"
            reason = f"{problem}. The content of {repo_id} has not changed; push again."
        else:
            reason = f"The Hub refused {repo_id} ({status}: {fault}). Its content has not changed."
        raise UserFileError(reason) from error
