"""Write a long output step by step beside its place, so that an interrupted run can be continued."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vanilla_transformer.file_utils import hash_file, write_text_atomically

_MODEL_FILES = {".safetensors", ".bin", ".json", ".txt", ".model"}


class PartialOutput:
    """
    The translated lines of an unfinished file, in `NAME.partial` beside it, and their origin in `NAME.partial.json`.

    Args:
        path: The file to be written.
        origin: What the lines depend on, as JSON: a run continues only lines with the same origin.
    """

    def __init__(self, path: str | Path, origin: Mapping[str, Any]):
        self.path, self.origin = Path(path), dict(origin)
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        self.progress = self.path.with_name(f"{self.path.name}.partial.json")
        self.sentences = 0

    def prepare(self, resume: bool) -> None:
        """
        Read how many sentences are done, and cut off text that was written after the last step.

        Raises:
            ValueError: There are lines and `resume` is False, or the lines have another origin.
            OSError: The files cannot be read or written.
        """
        if not (self.partial.exists() and self.progress.exists()):
            self._start()
            return
        state = self._read_progress()
        again = f"Delete {self.partial} to start again"
        if not resume:
            found = f"{self.partial} has {state['sentences']:,} sentences of an interrupted run"
            raise ValueError(f"{found}. Add --resume to continue it. {again}.")
        for name, value in self.origin.items():
            if state["origin"].get(name) != value:
                rule = f"--resume must continue with the same {name}"
                raise ValueError(f"{rule} as {self.partial}, but {self._describe(name, state)}. {again}.")
        os.truncate(self.partial, state["bytes"])
        self.sentences = state["sentences"]

    def write(self, steps: Iterable[tuple[int, str]]) -> None:
        """
        Append the text of each step, which translates so many sentences, and give the file its name at the end.

        If a step fails, the ones before it are kept.

        Raises:
            OSError: The file cannot be written.
        """
        try:
            with self.partial.open("ab") as file:
                for sentences, text in steps:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(file.fileno())
                    self._store(self.sentences + sentences, file.tell())
            os.replace(self.partial, self.path)
            self.progress.unlink(missing_ok=True)
        except KeyboardInterrupt as interruption:
            hint = f" after {self.sentences:,} sentences. Add --resume to continue." if self.sentences else "."
            raise KeyboardInterrupt(f"Interrupted{hint}") from interruption
        finally:
            if not self.sentences:  # nothing to continue
                self._delete()

    def _start(self) -> None:
        self._delete()
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        self.partial.touch()  # fails now if it cannot be written

    def _delete(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.progress.unlink(missing_ok=True)

    def _store(self, sentences: int, size: int) -> None:
        state = {"sentences": sentences, "bytes": size, "origin": self.origin}
        write_text_atomically(self.progress, json.dumps(state, indent=2) + "\n")
        self.sentences = sentences

    def _read_progress(self) -> dict[str, Any]:
        try:
            state = json.loads(self.progress.read_text(encoding="utf-8"))
            if state["bytes"] > self.partial.stat().st_size or state["sentences"] < 1:
                raise ValueError
            return {"origin": dict(state["origin"]), **state}
        except (ValueError, KeyError, TypeError) as error:
            hint = f"Delete {self.partial} to start again."
            raise ValueError(f"{self.progress} must describe {self.partial}, but it is damaged. {hint}") from error

    def _describe(self, name: str, state: Mapping[str, Any]) -> str:
        """Describe the difference; of options, the first one with its values."""
        old, new = state["origin"].get(name), self.origin[name]
        if name != "options" or not isinstance(old, dict):
            return f"the {name} is another one"
        option = next(each for each in {**old, **new} if old.get(each) != new.get(each))
        return f"`{option}` was {old.get(option)!r} and is {new.get(option)!r}"


def hash_model(name: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model that translations depend on. Models of the Hub must be loaded."""
    from huggingface_hub import try_to_load_from_cache
    from transformers.utils import CONFIG_NAME

    folder = Path(name)
    if not folder.is_dir():
        cached = try_to_load_from_cache(str(name), CONFIG_NAME)
        if not isinstance(cached, str):
            raise OSError(
                f"The model {name} must be a folder or in the cache, but it is not. Give the path of its folder."
            )
        folder = Path(cached).parent
    files = sorted(path for path in folder.iterdir() if path.suffix in _MODEL_FILES and path.is_file())
    return {path.name: hash_file(path) for path in files}
