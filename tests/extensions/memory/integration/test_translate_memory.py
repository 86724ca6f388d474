"""`translate --memory` reads files, for sentences and documents, and names what it cannot read."""

import json

import pytest

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder

SOURCE, TARGET = "A man is sleeping.", "Ein Mann ruht."
UNIT = f"<tu><tuv xml:lang='en'><seg>{SOURCE}</seg></tuv><tuv xml:lang='de'><seg>{TARGET}</seg></tuv></tu>"
LANGUAGES = ["--source_language", "en", "--target_language", "de"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    save_model_folder(tiny_model(), tiny_tokenizer(), folder / "model")
    (folder / "a.tmx").write_text(f"<tmx version='1.4'><body>{UNIT}</body></tmx>")
    (folder / "b.tsv").write_text("A dog.\tEin Hund.\n")
    (folder / "page.html").write_text(f"<p>{SOURCE}</p>")
    return folder


def translate(folder, *words):
    words = [word.format(folder=folder) for word in words]
    return main(["translate", str(folder / "model"), *words])


MEMORY = ["--memory", "{folder}/a.tmx", "{folder}/b.tsv"]


def test_translate_takes_sentences_from_a_memory(folder, capsys):
    assert translate(folder, SOURCE, "A dog.", *MEMORY, *LANGUAGES) == 0
    assert capsys.readouterr().out.splitlines() == [TARGET, "Ein Hund."]
    assert translate(folder, "A  dog.", "The A dog.", "--json", *MEMORY, *LANGUAGES) == 0
    exact, similar = map(json.loads, capsys.readouterr().out.splitlines())
    (answer,) = exact["translations"]
    assert answer["text"] == "Ein Hund."
    assert (answer["score"], answer["memory"]) == (0, 1)
    (answer,) = similar["translations"]
    assert answer["memory"] == 0.75
    assert answer["score"] < 0


def test_translate_uses_a_memory_in_documents(folder, capsys):
    flags = ["--input", "{folder}/page.html", *MEMORY, *LANGUAGES]
    assert translate(folder, *flags) == 0
    assert TARGET in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--memory", "{folder}/none.tmx"], "none.tmx: No such file or directory."),
        (["--memory", "{folder}/a.tmx"], "`source_language` must be given for "),
        (
            ["--memory", "{folder}/a.tmx", *LANGUAGES[:3], "fr"],
            "with pairs in the languages en and fr, but it has de, en.",
        ),
        (["--memory", "{folder}/page.html", *LANGUAGES], "The name of a `file` must end with"),
    ],
)
def test_translate_names_mistakes_of_a_memory(folder, capsys, flags, message):
    assert translate(folder, SOURCE, "--quiet", *flags) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
