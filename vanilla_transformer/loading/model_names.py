"""Check names and sizes of models before anything is loaded."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.model_folders import TOKENIZER_FILES
from vanilla_transformer.loading.model_files import check_model_files

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)


def check_local_model(name: str | Path) -> None:
    """Check that the folder of a local name exists, before the Hub gets a request, and that reading
    it is bounded.

    Names are local that begin with `runs/`, `.`, `~` or `/`; no name on the Hub does.
    """
    path = Path(name)
    if path.is_dir():
        refuse_pipes(path)
        check_model_files(path)
    is_path = path.is_absolute() or str(name).startswith((".", "~"))
    is_local = is_path or path.parts[:1] == ("runs",)
    if is_local and not path.exists():
        command = "train small --train_source FILE --train_target FILE"
        if path.name == "demo":
            command = "demo"
        command = f"vanilla-transformer {command} --output_dir {name}"
        raise MissingFileError(f"There is no model folder {name}. To make it: `{command}`.")


def check_repo_id(name: str) -> None:
    """Refuse a name that no repository on the Hub can have."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UserError(str(error)) from error


def check_hub(name: str | Path) -> None:
    """Check of a name that is no folder that the Hub answers, or that its cache holds the model,
    which alone is read then; the Hub's library would try again for half a minute for each file.
    """
    if Path(name).is_dir():
        return
    name = str(name)
    from huggingface_hub import constants, get_session, try_to_load_from_cache
    from huggingface_hub.errors import HTTPError

    from vanilla_transformer.user_input.reasons import first_line

    try:
        check_repo_id(name)
    except UserError as error:
        raise MissingFileError(
            f"There is no model folder {name}, and the Hub has no such names."
        ) from error
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (HTTPError, ConnectionError) as error:  # ConnectionError: offline mode
        reason = first_line(error).rstrip(".")
        files = ("config.json", *TOKENIZER_FILES)
        paths = [try_to_load_from_cache(name, file) for file in files]
        if not any(isinstance(path, str) for path in paths):
            problem = f"There is no model folder {name}, and the Hub cannot be reached: {reason}."
            if name.startswith("models/"):
                problem += " Our models/ is in the repository, not in the wheel: clone it."
            raise MissingFileError(problem) from error
        if not constants.HF_HUB_OFFLINE:
            logger.warning("The Hub cannot be reached (%s), so its cache is read.", reason)
        constants.HF_HUB_OFFLINE = True


def refuse_pipes(folder: str | Path) -> None:
    """Refuse a folder with a pipe or a device, since reading one would wait for a writer."""
    for path in sorted(Path(folder).iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(
                f"{path} must be a file or a folder, but it is a pipe or a device. Delete it."
            )


def least_parameters(config: "PreTrainedConfig") -> int:
    """Return a lower bound of the parameters of a model with an encoder, a decoder or both, before
    it is built.
    """

    def size(name: str) -> int:
        return getattr(config, name, None) or 0

    width, parameters = size("d_model"), 0
    for side, attentions in (("encoder", 1), ("decoder", 2)):
        heads = size(f"{side}_attention_heads")
        keys = heads * size("attention_key_dim") or width
        values = heads * size("attention_value_dim") or width
        rows = 2 * attentions * (keys + values) + 2 * size(f"{side}_ffn_dim")
        parameters += size(f"{side}_layers") * width * rows
    # Formats may share embeddings and lack the row of the padding.
    vocabulary = max(size("vocab_size"), size("decoder_vocab_size"))
    return parameters + width * (vocabulary - 1)


@contextmanager
def reporting_panics(failure: str) -> Iterator[None]:
    """Raise a `ValueError` that begins with `failure` for a panic of a library in Rust, which is no
    `Exception`.
    """
    try:
        yield
    except BaseException as error:
        # The type is of `pyo3_runtime`, which no one can import.
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{failure}: {error}.") from error
