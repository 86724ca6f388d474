"""An option takes one declaration: its flag, its entry of a request and its check follow in all
doors.
"""

import sys
from importlib import import_module
from typing import Annotated

import pytest
from fastapi.testclient import TestClient
from pydantic import Field

import vanilla_transformer.cli
import vanilla_transformer.extensions.serving
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.decoding import options, translation_pipeline
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.loading.model_folders import save_model_folder

MESSAGE = "`politeness` must be an integer from 0 to 10,000, got -1."


class MoreOptions(options.TranslationOptions):
    """The options of a request, and another one."""

    politeness: Annotated[options.Size, options.FLAG, options.JSON] = Field(
        None, description="How polite translations are."
    )


@pytest.fixture
def new_option(monkeypatch):
    """Import the command line and the service after another option is declared."""
    for module in (options, translation_pipeline):
        monkeypatch.setattr(module, "TranslationOptions", MoreOptions)
    for package in ("cli", "extensions"):
        monkeypatch.setattr(vanilla_transformer, package, getattr(vanilla_transformer, package))
    for name in imported():
        monkeypatch.delitem(sys.modules, name)
    options.options_of.cache_clear()
    yield
    options.options_of.cache_clear()
    for (
        name
    ) in imported():  # also those that were not imported before, and would know the other option
        del sys.modules[name]


def imported():
    """Return the modules of the command line and of extensions, such as the service, that are
    imported.
    """
    return [
        name
        for name in sys.modules
        if name.startswith(("vanilla_transformer.cli", "vanilla_transformer.extensions"))
    ]


@pytest.fixture
def folder(tmp_path):
    return str(save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path / "model"))


def test_the_pipeline_knows_a_new_option(new_option, folder):
    translate = load_pipeline(folder)
    assert translate.begin({"politeness": 2}, 1).options.politeness == 2
    assert translate("A man.", politeness=2) == translate("A man.")
    with pytest.raises(options.OptionError) as error:
        translate("A man.", politeness=-1)
    assert str(error.value) == MESSAGE


def test_the_command_line_has_the_flag_of_a_new_option(new_option, folder, capsys):
    main = import_module("vanilla_transformer.cli").main
    for command in ("translate", "evaluate", "back-translate"):
        with pytest.raises(SystemExit):
            main([command, "--help_all"])
        assert "--politeness INT How polite translations are." in " ".join(
            capsys.readouterr().out.split()
        )
    assert main(["translate", folder, "A man.", "--quiet", "--politeness", "2"]) == 0
    assert main(["translate", folder, "A man.", "--quiet", "--politeness", "-1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {MESSAGE}"


def test_the_service_knows_and_describes_a_new_option(new_option, folder):
    service = import_module("vanilla_transformer.extensions.serving.service")
    pipeline = load_pipeline(folder)
    known = import_module("vanilla_transformer.extensions.serving.features").known_options(pipeline)
    application = service.create_service(service.translate_with(pipeline), known=known, docs=True)
    with TestClient(application) as client:
        assert (
            client.post("/translate", json={"text": "A man.", "politeness": 2}).status_code == 200
        )
        answer = client.post("/translate", json={"text": "A man.", "politeness": -1})
        assert (answer.status_code, answer.json()) == (422, {"detail": MESSAGE})
        body = client.get("/openapi.json").json()["components"]["schemas"]["TranslationRequest"]
    entry = body["properties"]["politeness"]
    assert entry["anyOf"] == [
        {"type": "integer", "minimum": 0, "maximum": 10_000},
        {"type": "null"},
    ]
    assert entry["description"] == "How polite translations are."
