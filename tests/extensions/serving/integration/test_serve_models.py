"""`serve --model`: several models of the command line."""

import copy
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.text.languages import Direction, add_language_tags, store_direction
from vanilla_transformer.utils.file_utils import save_model_folder

TEXT = "A man is sleeping."


@pytest.fixture
def served(monkeypatch):
    """Let `serve` build its service and stop before it runs; return the services."""
    services = []
    monkeypatch.setattr(server, "run_server", lambda service, listener, limits: services.append(service))
    return services


def save(model, tokenizer, folder):
    save_model_folder(model, tokenizer, folder)
    return TranslationPipeline(model, tokenizer)


def test_serve_loads_each_model_for_its_languages(served, tiny_tokenizer, tmp_path, capsys):
    pipelines = {"en-de": save(tiny_model(), tiny_tokenizer, tmp_path / "first")}
    tags = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tags, [Direction("en", "fr"), Direction("de", "en")])
    multilingual = save(tiny_model(vocab_size=len(tags)), tags, tmp_path / "second")
    flags = ["--model", f"en-de={tmp_path}/first", "--model", f"de-en={tmp_path}/second"]
    assert main(["serve", *flags, f"--model=en-fr={tmp_path}/second", "--port", "0"]) == 0
    assert "Serving en-de, de-en, en-fr at http://127.0.0.1:" in capsys.readouterr().out
    expected = {
        "en-de": pipelines["en-de"](TEXT),
        "de-en": multilingual(TEXT, tgt_lang="en"),
        "en-fr": multilingual(TEXT, tgt_lang="fr"),
    }
    with TestClient(served[0]) as client:
        for name, ((answer,)) in expected.items():
            source, target = name.split("-")
            found = client.post("/translate", json={"q": TEXT, "source": source, "target": target}).json()
            assert found == {"translatedText": answer["translation_text"]}
            found = client.post("/translate", json={"text": TEXT, "model": name, "return_scores": True}).json()
            assert found["translations"][0][0]["text"] == answer["translation_text"]


def test_serve_has_a_page_for_several_models(served, tmp_path):
    flags = ["--model", f"en-de={tmp_path}", f"de-en={tmp_path}"]
    assert main(["serve", *flags, "--port", "0"]) == 0
    with TestClient(served[0]) as client:
        page = client.get("/").text
    assert "<h1>vanilla-transformer</h1>" in page and '"models":{"en-de":"en-de","de-en":"de-en"}' in page


@pytest.mark.parametrize(("flags", "status"), [(["--page"], 200), (["--no_page"], 404), (["--page", "false"], 404)])
def test_serve_has_a_page_unless_a_flag_turns_it_off(flags, status, served, tmp_path):
    assert main(["serve", "--model", f"en-de={tmp_path}", *flags, "--port", "0"]) == 0
    with TestClient(served[0]) as client:
        assert client.get("/").status_code == status


def test_serve_offers_the_languages_of_a_pivot(served, tmp_path, capsys):
    flags = ["--model", f"de-en={tmp_path}", f"en-fr={tmp_path}", "--port", "0"]
    assert main(["serve", *flags, "--pivot", "en"]) == 0
    with TestClient(served[0]) as client:
        assert '"de-fr":"de-fr"' in client.get("/").text
        assert client.get("/languages").json()[0]["targets"] == ["en", "fr"]
    assert main(["serve", *flags, "--pivot", "de"]) == 2
    error = capsys.readouterr().err
    assert "`pivot` must be a language between two others" in error and error.count("\n") == 1


def test_serve_survives_a_folder_without_a_model(served, tmp_path, caplog):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    assert main(["serve", "--model", f"en-de={tmp_path}/first", f"de-en={tmp_path}/second", "--port", "0"]) == 0
    with TestClient(served[0]) as client:
        answer = client.post("/translate", json={"text": TEXT, "model": "de-en"})
        assert answer.status_code == 500 and "The model de-en cannot be loaded (" in answer.json()["detail"]
        assert str(tmp_path) not in answer.text and str(tmp_path) in caplog.text
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "first"], "`model` must be languages and a folder, such as en-de=runs/en-de, got 'first'."),
        (["--model", "de=first"], "`model` must be languages and a folder"),
        (["--model", "en-de="], "`model` must be languages and a folder"),
        (["--model", "en-de=first", "--model", "en-de=first"], "must have other languages, got en-de twice."),
        (["--model", "en-de=missing"], "There is no folder missing. `model` must be the folder of a model"),
        (["--model"], "expected at least one argument"),
        (["--model", "en-de=first", "--direction", "en-de"], "`direction` is for one MODEL. Leave it out"),
        (["--model", "en-de=first", "--ensemble", "first"], "`ensemble` is for one MODEL"),
        (["--model", "en-de=first", "--max_loaded", "0"], "`max_loaded` must be 1 or more, got 0."),
        (["--max_loaded", "1"], "`max_loaded` is for several models."),
        ([], "Name one model"),
    ],
)
def test_serve_refuses_wrong_models_in_one_line(flags, said, served, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first").mkdir()
    assert main(["serve", *flags, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not served


def test_serve_refuses_one_model_beside_several(served, tmp_path, capsys):
    assert main(["serve", "mine", "--model", f"en-de={tmp_path}", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "Name one MODEL or several by --model, got 'mine' and --model en-de=" in error and error.count("\n") == 1


def xliff(target):
    unit = "<trans-unit id='1'><source>A man.</source></trans-unit>"
    return f"<xliff version='1.2'><file source-language='en' target-language='{target}'>{unit}</file></xliff>"


@pytest.mark.parametrize(
    ("trained", "flags", "named"),
    [
        ("", ["{folder}"], "en"),
        ("", ["{folder}", "--direction", "en-de"], "de"),
        ("", ["--model", "en-de={folder}"], "de"),
        ("en-de", ["{folder}"], "de"),
        ("en-de", ["{folder}", "--direction", "en-de_AT"], "de-AT"),
        ("en-de", ["--model", "en-de_AT={folder}"], "de-AT"),
        ("en-de en-fr", ["{folder}", "--target_language", "de"], "de"),
        ("en-de fr-de", ["{folder}"], "de"),
    ],
)
def test_serve_tells_documents_the_languages(trained, flags, named, served, tiny_tokenizer, tmp_path):
    tokenizer, directions = copy.deepcopy(tiny_tokenizer), [Direction(*each.split("-")) for each in trained.split()]
    if len(directions) > 1:
        add_language_tags(tokenizer, directions)
    else:
        store_direction(tokenizer, directions)
    save(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "model")
    flags = [flag.format(folder=tmp_path / "model") for flag in flags]
    assert main(["serve", *flags, "--port", "0"]) == 0
    with TestClient(served[0], raise_server_exceptions=False) as client:

        def ask(text, form):
            return client.post("/translate", json={"text": text, "format": form})

        page = ask("<html lang=en><p>A man.</p>", "html").json()["translations"][0][0]
        assert page.startswith(f"<html lang={named}><p>")
        other, own = ask(xliff("fr"), "xliff"), ask(xliff("de"), "xliff")
        assert own.status_code == 200 and "</source><target " in own.json()["translations"][0][0]
        if named == "en":
            assert other.status_code == 200
        else:
            rule = f"The target language of the file must be {named.replace('-', '_')}, as of the model, but it is fr."
            assert other.status_code == 422 and rule in other.json()["detail"]


def test_serve_refuses_other_languages_than_the_model_was_trained_with(
    served, tiny_tokenizer, tmp_path, capsys, caplog
):
    tokenizer, folder = copy.deepcopy(tiny_tokenizer), tmp_path / "model"
    store_direction(tokenizer, [Direction("en", "de")])
    save(tiny_model(), tokenizer, folder)
    rule = "The target language must be de, as of the model, got fr."
    assert main(["serve", str(folder), "--direction", "en-fr", "--port", "0"]) == 2
    assert capsys.readouterr().err.endswith(f"\nerror: {rule}\n") and not served
    assert main(["serve", "--model", f"en-fr={folder}", "--port", "0"]) == 0
    with TestClient(served[0]) as client:
        assert client.post("/translate", json={"text": TEXT}).status_code == 500
    assert f"The model en-fr cannot be loaded: UserError: {rule}" in caplog.text


def test_serve_names_the_only_model(served, monkeypatch):
    pipeline = SimpleNamespace(tokenizer=lambda texts: {"input_ids": [list(text) for text in texts]}, model=None)
    monkeypatch.setattr("vanilla_transformer.decoding.loading.load_pipeline", lambda *_: pipeline)
    for flags in ([], ["--direction", "en-de"]):
        assert main(["serve", "runs/mine", *flags, "--port", "0"]) == 0
    assert [[model.name for model in service.state.models] for service in served] == [["mine"], ["en-de"]]
