"""`evaluate --report` writes a page that has the scores it prints, or one line for each mistake and
no file.
"""

import errno
import shlex
from pathlib import Path

import html5lib
import pytest
import sacrebleu

from vanilla_transformer.cli import main
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.loading.model_folders import save_model_folder

SOURCE = ["A man is sleeping.", "Two dogs.", "", "A man runs <b>& 3 dogs</b>."]
TARGET = ["Ein Mann schläft.", "Zwei Hunde.", "", "Ein Mann läuft <b>& 3 Hunde</b>."]
OURS = ["Ein Mann schläft.", "Zwei Hunde.", "", "Ein Mann läuft <b>& 4 Hunde</b>."]
THEIRS = ["Ein Mann.", "Hunde.", "", "Ein Mann läuft."]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"a.en": SOURCE, "a.de": TARGET, "ours.de": OURS, "theirs.de": THEIRS}
    files["terms.tsv"] = ["man\tMann"]
    for name, lines in files.items():
        Path(name).write_text("\n".join(lines) + "\n")
    return tmp_path


def read(path):
    """Return the text of a valid page."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    document = parser.parse(Path(path).read_text())
    return " ".join(" ".join(document.find("body").itertext()).split())


def run(*words):
    return main(["evaluate", *words, "--target", "a.de", "--bootstrap_samples", "20"])


def test_report_of_a_model(tiny_model, tiny_tokenizer, texts, capsys):
    save_model_folder(tiny_model, tiny_tokenizer, texts / "mine")
    Path("mine/machine.json").write_text('{"hardware": "a fast machine"}')
    words = ["mine", "--source", "a.en", "--output_file", "out.de"]
    words += ["--report", "new/report.html"]
    for flags in ([], ["--overwrite"]):
        assert run(*words, *flags) == 0
        assert capsys.readouterr().out.endswith("\nThe report is new/report.html.\n")
    shown = read("new/report.html")
    assert shown.startswith("Translation quality mine 3 test sentences of a.en")
    assert all(" ".join(text.split()) in shown for text in SOURCE + TARGET)
    translations = Path("out.de").read_text().splitlines()
    bleu = sacrebleu.corpus_bleu(translations, [TARGET]).score
    assert f"BLEU {bleu:.1f} " in shown
    command = ["vanilla-transformer", "evaluate", *words, "--overwrite"]
    assert shlex.join([*command, "--target", "a.de"]) in shown
    weights = hash_file(Path("mine/model.safetensors"))
    assert f"mine/model.safetensors {weights}" in shown
    assert hash_file(Path("a.de")) in shown
    assert "Speed" in shown and "sentences a second" in shown
    assert "Trained on a fast machine" in shown
    assert "Compared with" not in shown
    assert [path.name for path in Path("new").iterdir()] == ["report.html"]


def test_report_of_translations_and_a_baseline(texts, capsys):
    words = ["--hypotheses", "ours.de", "--source", "a.en"]
    words += ["--compare_with", "theirs.de", "--metric", "ter"]
    assert run(*words, "--report", "report.html") == 0
    printed, shown = capsys.readouterr().out, read("report.html")
    for line in [line for line in printed.splitlines() if " against " in line]:
        name, ours, _, theirs, *_ = line.split()
        assert f"{name} {float(ours):.1f} {float(theirs):.1f} " in shown
    assert "Compared with theirs.de" in shown
    assert "Became worse" not in shown and "sentences a second" not in shown
    assert "A number differs from the source: 1 translation (33.3 %)" in shown
    assert hash_file(Path("theirs.de")) in shown


def test_report_of_translations_alone_has_no_sources(texts):
    assert run("--hypotheses", "ours.de", "--report", "report.HTM") == 0
    shown = read("report.HTM")
    assert "Add --source FILE to the command" in shown
    assert SOURCE[0] not in shown


def test_report_compares_with_the_model_without_its_glossary(tiny_model, tiny_tokenizer, texts):
    save_model_folder(tiny_model, tiny_tokenizer, texts / "mine")
    words = ["mine", "--source", "a.en", "--glossary", "terms.tsv"]
    assert run(*words, "--report", "report.html") == 0
    shown = read("report.html")
    assert "Compared with the same model without the glossary" in shown
    assert "(2 terms in 2 sentences)" in shown


def test_report_keeps_the_old_file_if_writing_fails(texts, monkeypatch, capsys):
    Path("report.html").write_text("old")

    def fail(*args):
        raise OSError(errno.EIO, "disk full")

    monkeypatch.setattr("vanilla_transformer.files.atomic.os.replace", fail)
    assert run("--hypotheses", "ours.de", "--report", "report.html", "--overwrite") == 2
    assert "disk full" in capsys.readouterr().err
    assert Path("report.html").read_text() == "old" and not [*texts.glob(".report*")]


def test_report_of_a_checkpoint_names_its_run(tiny_model, tiny_tokenizer, texts):
    save_model_folder(tiny_model, tiny_tokenizer, texts / "strings-1" / "checkpoint-90")
    words = ["strings-1/checkpoint-90", "--source", "a.en", "--max_new_tokens", "4"]
    assert run(*words, "--report", "report.html") == 0
    beginning = "Translation quality strings-1/checkpoint-90 3 test"
    assert read("report.html").startswith(beginning)
