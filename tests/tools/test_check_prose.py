"""The check of prose finds banned turns of phrase in prose, and only there."""

import pytest

from tools import check_prose
from tools.check_prose import blank, check_file, find, main, prose_of_python


def phrases(text):
    return [phrase for _, phrase, _ in find(blank(text))]


@pytest.mark.parametrize(
    "text, phrase",
    [
        ("It is written behind the update.", "behind"),
        ("The file is read anew.", "anew"),
        ("the weights and those\nof the optimizer", "those of"),
        ("a tensor in the place of a list", "in the place of"),
        ("The user is told so.", "is told"),
        ("the run goes on", "goes on"),
        ("It prints what is missing.", "what is"),
        ("a folder of its own", "of its own"),
        ("a process of its own and a folder", "of its own"),
        ("the one is read, the other written", "the one is read, the other"),
        ("Normalise the rows", "Normalise"),
        ("Detokenised text", "Detokenised"),
        ("the model's behaviour", "behaviour"),
        ("LICENCE", "LICENCE"),
        ("labelled", "labelled"),
        ("        options: Of the search.", "options: Of"),
    ],
)
def test_find_reports_banned_phrases(text, phrase):
    assert phrases(text) == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        "What is a token? A piece of a word.",
        "Call `model.normalise()` and ``what is``.",
        "https://example.org/behaviour",
        "A precise, otherwise noisy exercise: revise the four hours of promised analysis.",
        "the one sentence. In the other file",
        "the path of your own recipe",
        "Modeling labels, tokenized and normalized.",
        "        options: Options of the search.",
        "        ValueError: As [`encode`].",
    ],
)
def test_find_leaves_plain_english_alone(text):
    assert phrases(text) == []


def test_prose_of_python_keeps_comments_strings_and_names():
    source = (
        'def goes_on(a):\n    """Those\n    of."""\n    # is\n    # told\n    return '
        'f"{anew} anew" "those"\n'
    )
    prose = prose_of_python(source)
    assert len(prose) == len(source) and [char == "\n" for char in prose] == [
        char == "\n" for char in source
    ]
    assert sorted(phrases(prose)) == ["Those of", "anew", "goes on", "is told"]


def test_check_file_gives_the_line_and_reads_the_name(tmp_path):
    path = tmp_path / "behaviour.py"
    path.write_text("first = 1\n# read anew\n")
    assert [(finding.line, finding.phrase) for finding in check_file(path)] == [
        (1, "behaviour"),
        (2, "anew"),
    ]


def test_main_allows_listed_phrases_and_reports_stale_ones(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("A colour.\n")
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    monkeypatch.setattr(check_prose, "ALLOWED", {})
    assert main([]) == 1
    assert capsys.readouterr().out == "README.md:1: 'colour' → -or: behavior, color\n"
    monkeypatch.setattr(check_prose, "ALLOWED", {"README.md": {"colour"}})
    assert main([]) == 0
    monkeypatch.setattr(check_prose, "ALLOWED", {"README.md": {"colour", "grey"}})
    assert main([]) == 1
    assert "ALLOWED has 'grey' for README.md, where it is not found" in capsys.readouterr().out


def test_main_rejects_an_unknown_path(capsys):
    with pytest.raises(SystemExit):
        main(["--paths", "nowhere"])
    assert "no such file or folder: nowhere" in capsys.readouterr().err
