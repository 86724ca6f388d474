"""A checked model folder onto the Hub, in one commit."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard

# HTTPError is that of whichever client this release of the library is built on.
from huggingface_hub.errors import HfHubHTTPError, HTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils import validate_repo_id

from .checks import Outcome, check_folder, failures
from .staging import CARD_NAME, publishable_files, stage


def push_folder(
    folder: str | Path,
    repo_id: str,
    card: Callable[[Path], ModelCard] | None = None,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    token: str | None = None,
    trust_remote_code: bool = False,
    report: Callable[[Sequence[Outcome]], None] = lambda outcomes: None,
) -> str:
    """
    Publishes a model folder: its files are copied aside, checked there, and uploaded as one commit, so that whoever
    downloads gets all of the old model or all of the new one. What is on the Hub and not in the folder is deleted.

    Args:
        repo_id: `"user/name"`. It is created where there is none.
        card: Makes the model card of the copy; by default the folder's own is published.
        private: Create it so that only you see it; without effect on one that exists.
        revision: A branch other than `main`; created where there is none.
        trust_remote_code: See [`check_folder`].
        report: Is given the outcome of the checks before anything is sent.

    Returns:
        The address of the commit.

    Raises:
        ValueError: a check failed, and nothing has been sent; or `repo_id` is not a name.
        OSError: there is no such folder; or the Hub was not reached, or refused. Nothing is changed there then, except
            that the repository may have been created.
    """
    _check_name(repo_id)
    with tempfile.TemporaryDirectory() as parent:
        staged = stage(folder, Path(parent) / "model")
        if card is not None:
            card(staged).save(staged / CARD_NAME)
        outcomes = check_folder(staged, trust_remote_code)
        report(outcomes)
        failed = [f"{one.name} ({one.detail})" for one in failures(outcomes)]
        if failed:
            raise ValueError(f"{folder} is not published, since it fails {len(failed)} checks: {'; '.join(failed)}.")
        return _upload(staged, repo_id, private, revision, message or f"Upload {repo_id.split('/')[-1]}", token)


def _check_name(repo_id: str) -> None:
    validate_repo_id(repo_id)
    if repo_id.count("/") != 1:
        raise ValueError(f"The name of a repository must be like 'user/name', got {repo_id!r}.")


def _upload(staged: Path, repo_id: str, private: bool, revision: str | None, message: str, token: str | None) -> str:
    api = HfApi(token=token, library_name="vanilla-transformer")
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        files = publishable_files(staged)
        kept = {path.name for path in files} | {".gitattributes"}
        there = api.list_repo_files(repo_id, revision=revision)
        operations = [
            *(CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path) for path in files),
            *(CommitOperationDelete(path_in_repo=name) for name in there if name not in kept),
        ]
        return str(api.create_commit(repo_id, operations, commit_message=message, revision=revision).commit_url)
    except (HfHubHTTPError, HTTPError, RuntimeError) as error:
        # An upload that fails comes wrapped in a RuntimeError; another kind of those is nobody's network.
        fault = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(fault, HTTPError):
            raise
        raise OSError(_explain(fault, repo_id)) from error


def _explain(error: Exception, repo_id: str) -> str:
    """What went wrong between here and the Hub, and what to do."""
    response = getattr(error, "response", None)
    status = None if response is None else response.status_code
    if isinstance(error, RepositoryNotFoundError | RevisionNotFoundError) or status in (401, 403):
        return (
            f"The Hub does not let you write to {repo_id} ({status}). Log in with `hf auth login`, with a token that "
            "may write there, or choose a name of your own."
        )
    if status is None:
        return (
            f"The Hub could not be reached, or the connection broke ({type(error).__name__}: {error}). Nothing of "
            f"{repo_id} has changed; push again."
        )
    return f"The Hub refused to take {repo_id} ({status}: {error}). Nothing there has changed."
