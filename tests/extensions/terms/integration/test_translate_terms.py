"""`translate --glossary` reads TSV and TBX, for sentences, files and documents."""

import json
import sys

import pytest

from tests.model_variants import model_with_inline_terms
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder

TBX = """<tbx><text><body><conceptEntry id="1">
<langSec xml:lang="en"><termSec><term>MAN</term></termSec></langSec>
<langSec xml:lang="de-DE"><termSec><term>Mann</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""
PLAIN = "A man is sleeping."
ANNOTATED = "A <term> man <trans> Mann </term> is sleeping."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terms")
    save_model_folder(*model_with_inline_terms(), folder / "model")
    (folder / "terms.tsv").write_text("source\ttarget\nman\tMann\n")
    (folder / "terms.tbx").write_text(TBX)
    (folder / "plain.txt").write_text(f"{PLAIN}\n")
    (folder / "page.html").write_text(f"<p>{PLAIN}</p>")
    return folder


def translate(folder, *words):
    words = [word.format(folder=folder) for word in words]
    return main(["translate", str(folder / "model"), *words])


def test_translate_reads_a_glossary(folder, capsys):
    assert translate(folder, ANNOTATED) == 0
    expected = capsys.readouterr().out
    flags = ["--glossary", "{folder}/terms.tsv", "--term_mode", "soft"]
    assert translate(folder, PLAIN, *flags) == 0
    assert capsys.readouterr().out == expected
    flags = ["--glossary", "{folder}/terms.tbx", "--target_language", "de"]
    assert translate(folder, PLAIN, *flags, "--glossary_casefold") == 0
    assert capsys.readouterr().out == expected
    assert translate(folder, PLAIN, *flags) == 0
    assert capsys.readouterr().out != expected  # MAN is another term


def test_translate_warns_of_an_ignored_term(folder, capsys, monkeypatch):
    """In JSON and in a terminal"""
    flags = PLAIN, "--glossary", "{folder}/terms.tsv", "--term_mode"
    assert translate(folder, *flags, "soft", "--json") == 0
    assert "terms" in json.loads(capsys.readouterr().out)["translations"][0]["warnings"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert translate(folder, *flags, "soft") == 0
    warning = "a term is not translated as the glossary says (terms)"
    assert warning in capsys.readouterr().err
    assert translate(folder, *flags, "hard") == 0
    assert "(terms)" not in capsys.readouterr().err


def test_translate_uses_a_glossary_in_documents(folder, capsys):
    flags = ["--format", "html", "--input", "{folder}/page.html"]
    flags += ["--glossary", "{folder}/terms.tsv"]
    assert translate(folder, *flags, "--term_mode", "exact") == 0
    assert "Mann" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--glossary_casefold"], "`glossary_casefold` must be given with `--glossary FILE`"),
        (["--glossary", "{folder}/none.tsv"], "none.tsv: No such file or directory."),
        (
            ["--glossary", "{folder}/terms.tbx"],
            "`target_language` must name the target language of",
        ),
        (["--glossary", "{folder}/plain.txt"], "must have a term, a tab and its translation"),
    ],
)
def test_translate_names_mistakes_about_terms(folder, capsys, flags, message):
    assert translate(folder, PLAIN, *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
