"""The doors through which golden tests call the library; only this module names internals, which
may move.
"""

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fastapi.testclient import TestClient

from vanilla_transformer import Engine, TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.requests import DecodeRequest
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.loading.model_folders import save_model_folder

from . import models


class Doors:
    """
    Answer cases by models whose weights have relative noise; each one is built, saved and served at
    most once.

    Each public method is a door: it takes the keyword arguments of a case and returns an answer as
    JSON holds it.
    """

    def __init__(self, folder: Path, noise: float = 0.0, noise_seed: int = 0):
        self.folder, self._noise = folder, {"noise": noise, "noise_seed": noise_seed}
        self._models: dict[str, Any] = {}
        self._pipelines: dict[str, TranslationPipeline] = {}
        self._clients: dict[str, TestClient] = {}
        self._resources = contextlib.ExitStack()

    def close(self) -> None:
        """Stop the services."""
        self._resources.close()

    def generate(
        self,
        model: str,
        ids: Sequence[Sequence[int]],
        seed: int = 0,
        mask: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the tokens of `model.generate()`, and the scores of beam search."""
        inputs: dict[str, Any] = {"input_ids": torch.tensor(ids)}
        inputs |= {} if mask is None else {"attention_mask": torch.tensor(mask)}
        torch.manual_seed(seed)
        plain = self._model(model).generate(**inputs, **options)
        torch.manual_seed(seed)
        options |= {"return_dict_in_generate": True, "output_scores": True}
        scored = self._model(model).generate(**inputs, **options, output_logits=False)
        assert torch.equal(plain, scored.sequences)
        answer = {"tokens": plain.tolist()}
        scores = getattr(scored, "sequences_scores", None)
        if scores is not None:
            answer["scores"] = _plain(scores.tolist())
        return answer

    def engine(
        self,
        model: str,
        ids: Sequence[Sequence[int]],
        count: int = 1,
        requests: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Return the hypotheses of the engine: tokens, score and the log-probability of each
        token.
        """
        engine = Engine(self._model(model), compile=False, **options)
        further = dict(requests or {})
        prefixes = further.pop("prefixes", [()] * len(ids))
        answers = list[Any]()
        for row in engine.decode(map(DecodeRequest, ids, prefixes), count, **further):
            answers.append([])
            for best in row:
                answers[-1].append([best.tokens, best.score, best.token_log_probabilities])
        return _plain(answers)

    def score(
        self, model: str, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Any]:
        """Return the log-probability of each target token."""
        return _plain(score_tokens(self._model(model), ids, targets))

    def pipeline(
        self, model: str, texts: object, pipeline: Mapping[str, Any] | None = None, **options: Any
    ) -> list[Any]:
        """Return the answers of the pipeline; `pipeline` has arguments of its constructor."""
        return _plain(self._pipeline(model, pipeline or {})(texts, **options))

    def document(self, model: str, text: str, format: str, **options: Any) -> str:
        """Return a translated document."""
        translate = DocumentTranslator(self._pipeline(model, {}))
        (translated,) = translate([text], format, **options)
        return translated

    def command(
        self, arguments: Sequence[str], files: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """
        Return the status, the standard output and the last line of errors of a command.

        `{name}` in an argument is the path of a file, of which `files` has the text, or of the
        folder of a model.
        """
        paths = _Paths(self)
        for name, text in (files or {}).items():
            self.folder.mkdir(parents=True, exist_ok=True)
            paths[name] = str(self.folder / name)
            Path(paths[name]).write_text(text, encoding="utf-8")
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as error,
        ):
            status = main([argument.format_map(paths) for argument in arguments])
        if status != 0:
            return {"status": status, "error": self._hide(error.getvalue().splitlines()[-1])}
        return {"status": status, "output": [*map(_read_line, out.getvalue().splitlines())]}

    def service(
        self,
        model: str,
        body: Mapping[str, Any] | None = None,
        path: str = "/translate",
        flags: Sequence[str] = (),
        raw: str | None = None,
    ) -> list[Any]:
        """
        Return the status and the content of the answer of a service, which `serve` starts with some
        flags.

        `raw` has the bytes of a body, as characters of Latin-1.
        """
        key = " ".join([model, *flags])
        if key not in self._clients:
            started = TestClient(self._serve(model, flags))
            self._clients[key] = self._resources.enter_context(started)
        client = self._clients[key]
        if raw is not None:
            answer = client.post(path, content=raw.encode("latin-1"))
        elif body is not None:
            answer = client.post(path, json=body)
        else:
            answer = client.get(path)
        is_json = answer.headers["content-type"].startswith("application/json")
        content = answer.json() if is_json else _read_events(answer.text)
        return [answer.status_code, _plain(content)]

    def error(self, of: str, **arguments: Any) -> list[str]:
        """Return the type and the message of the exception that the door `of` raises."""
        try:
            getattr(self, of)(**arguments)
        except Exception as error:
            return [type(error).__name__, self._hide(str(error))]
        raise AssertionError("There was no error.")

    def model_folder(self, name: str) -> Path:
        """Return the folder of a model."""
        folder = self.folder / f"model-{name}"
        if not folder.exists():
            save_model_folder(self._model(name), models.build_tokenizer(name), folder)
        return folder

    def _model(self, name: str) -> Any:
        if name not in self._models:
            self._models[name] = models.build(name, **self._noise)
        return self._models[name]

    def _pipeline(self, model: str, options: Mapping[str, Any]) -> TranslationPipeline:
        key = f"{model} {options}"
        if key not in self._pipelines:
            further = dict(options)
            if "ensemble" in further:
                further["ensemble"] = [self.model_folder(name) for name in further["ensemble"]]
            if "rerank_reverse" in further:
                further["rerank_reverse"] = self.model_folder(further["rerank_reverse"])
            parts = self._model(model), models.build_tokenizer(model)
            self._pipelines[key] = TranslationPipeline(*parts, device="cpu", **further)
        return self._pipelines[key]

    def _serve(self, model: str, flags: Sequence[str]) -> Any:
        services: list[Any] = []
        paths = _Paths(self)
        arguments = [str(self.model_folder(model))]
        arguments += [flag.format_map(paths) for flag in flags]
        arguments += ["--port", "0", "--hosts", "testserver"]
        keeping = patch.object(server, "run_server", lambda service, *_: services.append(service))
        with (
            keeping,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            assert main(["serve", *arguments]) == 0
        return services[0]

    def _hide(self, text: str) -> str:
        return text.replace(str(self.folder), "FOLDER")


class _Paths(dict[str, str]):
    """Paths by name; by default the folder of a model."""

    def __init__(self, doors: Doors):
        super().__init__()
        self._doors = doors

    def __missing__(self, name: str) -> str:
        return str(self._doors.model_folder(name))


def _plain(value: object) -> Any:
    """Return a value as JSON holds it, with short numbers, and tokens and links as lists."""
    if isinstance(value, Mapping):
        if value.keys() == {"text", "log_probability"} and not isinstance(value["text"], Mapping):
            return [value["text"], _plain(value["log_probability"])]
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _read_line(line: str) -> Any:
    """Return a line of output: a JSON object, a number, a number before a tab and a text, or a
    text.
    """
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            return _plain(json.loads(line))
    number, tab, text = line.partition("\t")
    with contextlib.suppress(ValueError):
        return [_plain(float(number)), text] if tab else _plain(float(number))
    return line


def _read_events(text: str) -> list[Any]:
    """Return the data of server-sent events in the order of their texts."""
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    return sorted(events, key=lambda event: event["position"])
