"""Check what users write: names, YAML and numbers; and what libraries in Rust do not survive."""

import difflib
import logging
import os
import re
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from vanilla_transformer.errors import MissingFileError, UserError

from .file_utils import TOKENIZER_FILES
from .model_files import check_model_files
from .reasons import MOST_REASONS, Key, Reasons

logger = logging.getLogger(__name__)


def check_names(names: Iterable[Any], known: Iterable[str], what: str) -> None:
    """Refuse unknown names, each with the nearest known one."""
    unknown = (str(name) for name in names if name not in known)
    with Reasons() as reasons:
        for name in islice(unknown, MOST_REASONS):
            reasons.add(f"There is no {what} {name!r}.{did_you_mean(name, known)}", name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the nearest of the known names, with a space before it, or nothing if
    none is near.
    """
    nearest = find_nearest(name, known)
    return "" if nearest is None else f" Did you mean {nearest!r}?"


# Words of a name that do not tell it from others.
_FILLERS = {"n", "num", "number", "count", "size", "file", "path", "dir", "folder"}


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that somebody meant by an unknown one, or None if none is near.

    The same letters are near, and so is a name with the same words in any order, each perhaps
    misspelled or short: `nbest` and `n_best`, `beam` and `num_beams`, `max_len` and `max_length`.
    It may have one more than several.
    """
    near = [known_name for known_name in known if _are_near(name.lower(), known_name.lower())]

    def similarity(known_name: str) -> tuple[float, str]:
        return difflib.SequenceMatcher(None, name, known_name).ratio(), known_name

    return max(near, key=similarity, default=None)


def _are_near(name: str, known: str) -> bool:
    parts = re.findall("[^-_. ]+", name)
    known_parts = re.findall("[^-_. ]+", known)
    if "".join(parts) == "".join(known_parts):
        return True
    words = [part for part in parts if part not in _FILLERS] or parts
    left = [part for part in known_parts if part not in _FILLERS] or known_parts
    if not 0 <= len(left) - len(words) <= (len(words) > 1):
        return False
    for word in words:
        matches = [known_word for known_word in left if _is_same_word(word, known_word)]
        if not matches:
            return False
        left.remove(matches[0])
    return True


def _is_same_word(first: str, second: str) -> bool:
    """Tell whether one word begins with the other one, differs by a letter or two, or has another
    ending.
    """
    start = len(os.path.commonprefix([first, second]))
    endings = sorted([len(first) - start, len(second) - start])
    is_form = (start >= 3 and endings[0] == 0) or (start >= 4 and endings[1] <= 3)
    return is_form or difflib.SequenceMatcher(None, first, second).ratio() >= 0.75


def check_local_model(name: str | Path) -> None:
    """Check that the folder of a local name exists, before the Hub gets a request, and that reading
    it is bounded.

    Names are local that begin with `runs/`, `.`, `~` or `/`; no name on the Hub does.
    """
    path = Path(name)
    if path.is_dir():
        refuse_pipes(path)
        check_model_files(path)
    is_local = path.is_absolute() or path.parts[:1] == ("runs",) or str(name).startswith((".", "~"))
    if is_local and not path.exists():
        command = (
            "demo" if path.name == "demo" else "train small --train_source FILE --train_target FILE"
        )
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

    from .device_utils import first_line

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
        paths = [try_to_load_from_cache(name, file) for file in ("config.json", *TOKENIZER_FILES)]
        if not any(isinstance(path, str) for path in paths):
            is_ours = name.startswith("models/")
            raise MissingFileError(
                f"There is no model folder {name}, and the Hub cannot be reached: {reason}."
                + " Our models/ is in the repository, not in the wheel: clone it." * is_ours
            ) from error
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


def find_lines(text: str) -> dict[Key, int]:
    """Return the lines of the keys and entries of YAML that [`load_yaml`] parses, from 1."""
    lines = dict[Key, int]()
    nodes: list[tuple[Key, yaml.Node | None]] = [((), yaml.compose(text, _StrictLoader))]
    while nodes:
        parent, node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                key = (*parent, str(name.value))
                lines[key] = name.start_mark.line + 1
                nodes.append((key, value))
        elif isinstance(node, yaml.SequenceNode):
            for position, value in enumerate(node.value):
                key = (*parent, position)
                lines[key] = value.start_mark.line + 1
                nodes.append((key, value))
    return lines


def load_yaml(text: str) -> Any:
    """Parse YAML of plain values."""
    try:
        return yaml.load(text, _StrictLoader)
    except RecursionError as error:
        raise UserError("it is nested too deeply") from error
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # also for integers and dates that Python lacks
        raise UserError(str(error)) from error


_BOOLEAN = "tag:yaml.org,2002:bool"


class _StrictLoader(yaml.SafeLoader):
    """Refuse keys that a mapping has twice, of which PyYAML would use the last, and aliases, which
    may recurse.

    Booleans are true and false alone, as in YAML 1.2: `no` is a language, and a value of
    `mixed_precision`.
    """

    yaml_implicit_resolvers = {
        first: [resolver for resolver in resolvers if resolver[0] != _BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                problem=f"aliases are not supported{self.peek_event().start_mark}"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = (self.construct_object(key, deep=True) for key, _ in node.value)
        seen = set[Any]()
        for key in (key for key in keys if isinstance(key, Hashable)):
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is there twice{node.start_mark}"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)  # which refuses lists as keys


_StrictLoader.add_implicit_resolver(_BOOLEAN, re.compile("(?i:true|false)$"), [*"tTfF"])


def least_parameters(config: Any) -> int:
    """Return a lower bound of the parameters of a model with an encoder, a decoder or both, before
    it is built.
    """

    def size(name: str) -> int:
        return getattr(config, name, None) or 0

    width, parameters = size("d_model"), 0
    for side, attentions in (("encoder", 1), ("decoder", 2)):
        heads = size(f"{side}_attention_heads")
        keys, values = (heads * size(f"attention_{part}_dim") or width for part in ("key", "value"))
        layer = width * (2 * attentions * (keys + values) + 2 * size(f"{side}_ffn_dim"))
        parameters += size(f"{side}_layers") * layer
    # Formats may share embeddings and lack the row of the padding.
    return parameters + width * (max(size("vocab_size"), size("decoder_vocab_size")) - 1)


@contextmanager
def reporting_panics(failure: str) -> Iterator[None]:
    """Raise a `ValueError` that begins with `failure` for a panic of a library in Rust, which is no
    `Exception`.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of `pyo3_runtime`, which no one can import
            raise
        raise UserError(f"{failure}: {error}.") from error
