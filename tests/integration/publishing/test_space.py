"""A Space translates with transformers alone."""

import json

import pytest
from huggingface_hub import SpaceCard

from tests.processes import run_python
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing.space import create_space


@pytest.fixture
def model_folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


@pytest.mark.sweep
def test_space_translates_without_the_package(model_folder, tiny_model, tiny_tokenizer, tmp_path):
    words = [str(model_folder), "--output_dir", str(tmp_path / "space")]
    words += ["--title", "A title", "--examples", "one two"]
    assert main(["create-space", *words]) == 0
    card = SpaceCard.load(tmp_path / "space" / "README.md")
    assert (card.data.sdk, card.data.title) == ("gradio", "A title")
    assert card.data.app_file == "app.py"
    text = "one {name}. two\nthree"
    translate = TranslationPipeline(
        tiny_model, tiny_tokenizer, split_sentences=True, sentence_splitter="simple"
    )
    hidden = "sys.modules['vanilla_transformer'] = None"
    for start, protect in ((hidden, False), ("", True)):
        code = f"import sys; {start}\nimport app; print(repr(app.answer({text!r})))"
        ran = run_python("-c", code, cwd=tmp_path / "space")
        assert ran.returncode == 0, ran.stderr
        expected = translate(text, protect=protect)[0]["translation_text"]
        assert eval(ran.stdout.splitlines()[-1]) == expected
        assert ("{name}" in expected) == protect


def test_space_carries_the_code_that_its_model_lacks(model_folder, tmp_path):
    modules = [*model_folder.glob("*.py")]
    for module in modules:
        module.unlink()
    config = json.loads((model_folder / "config.json").read_text())
    del config["auto_map"]
    (model_folder / "config.json").write_text(json.dumps(config))
    create_space(model_folder, tmp_path / "space")
    assert modules and not [*model_folder.glob("*.py")]
    for module in modules:
        assert (tmp_path / "space" / "model" / module.name).exists()


def test_space_of_a_hub_model_names_it(tmp_path, capsys):
    words = ["user/name", "--output_dir", str(tmp_path / "space")]
    assert main(["create-space", *words]) == 0
    settings = json.loads((tmp_path / "space" / "space.json").read_text())
    assert settings == {"model": "user/name", "title": "name", "examples": []}
    assert SpaceCard.load(tmp_path / "space" / "README.md").data.models == ["user/name"]


@pytest.mark.parametrize(
    ("model", "output", "message"),
    [
        ("no such/name/here", "space", "Repo id must"),
        ("runs/none", "space", "There is no model folder runs/none"),
        ("empty", "space", "empty must be a model folder, but it has no"),
        ("user/name", ".", "must be a new or an empty folder, but . is not empty"),
        ("user/name", "file", "must be a new or an empty folder, but file is a file"),
    ],
)
def test_space_refuses_mistakes_in_one_line(model, output, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert main(["create-space", model, "--output_dir", output]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1
    assert not (tmp_path / "space").exists()
