"""Memories are read from files, find equal and similar sources, and give no numbers but the text's."""

import logging
import re

import pytest

from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.memory import memory as memories
from vanilla_transformer.extensions.memory.memory import (
    EXACT,
    TranslationMemory,
    as_memory,
)
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.values import replace_values

DIRECTION = Direction("en", "de")
PAIRS = [("The house is old.", "Das Haus ist alt."), ("Save it", "Speichern")]
UNITS = "".join(
    f"<tu><tuv xml:lang='en-US'><seg>{source}</seg></tuv>"
    f"<tuv xml:lang='de'><seg>{target}</seg></tuv></tu>"
    for source, target in PAIRS
)
SEGMENTS = "".join(
    f"<trans-unit id='{source}'><source>{source}</source><target>{target}</target></trans-unit>"
    for source, target in PAIRS
)
MESSAGES = "".join(f'\nmsgid "{source}"\nmsgstr "{target}"\n' for source, target in PAIRS)
XLIFF = "<xliff version='1.2'><file source-language='en' target-language='{}' original='a'>{}"
FILES = {
    "a.tsv": "".join(f"{source}\t{target}\n" for source, target in PAIRS),
    "a.tmx": f"<tmx version='1.4'><body>{UNITS}</body></tmx>",
    "a.xlf": XLIFF.format("de", f"<body>{SEGMENTS}</body></file></xliff>"),
    "a.po": f'msgid ""\nmsgstr "Language: de\\n"\n{MESSAGES}\nmsgid "New"\nmsgstr ""\n',
}


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", FILES)
def test_memory_reads_files(tmp_path, name):
    path = write(tmp_path, name, FILES[name])
    memory = as_memory(path, DIRECTION)
    assert len(memory) == 2
    for source, target in PAIRS:
        assert memory.find(f" {source.replace(' ', '  ')}") == (source, target, EXACT)
    assert memory.find("New") is None
    assert as_memory([str(path)], DIRECTION) is memory  # which is not read again
    both = as_memory([path, write(tmp_path, "b.tsv", "New\tNeu\n")], DIRECTION)
    assert len(both) == 3
    path.write_text(FILES[name].replace("alt", "neu"))
    assert as_memory(path, DIRECTION).find("The house is old.").target == "Das Haus ist neu."


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tmx", FILES["a.tmx"].replace("'de'", "'fr'"), "a.tmx must be TMX .* has en-US, fr"),
        ("a.xlf", FILES["a.xlf"].replace("'de'", "'fr'"), "a.xlf must be XLIFF .* has en, fr"),
        ("a.po", FILES["a.po"].replace(": de", ": fr"), "a.po must be PO .* has fr"),
        ("a.tmx", FILES["a.tmx"][:200], "a.tmx must be TMX. The text must be well-formed XML"),
        ("a.tsv", "one cell\n", "Line 1 of .*a.tsv must have two columns"),
        ("a.tsv", b"a\tb\nc\t\xff\n", "a.tsv must be UTF-8, got other bytes in pair 2"),
        ("a.xyz", "", "The name of a `file` must end with .*[.]tsv"),
    ],
)
def test_memory_names_what_it_cannot_read(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message) as error:
        as_memory(write(tmp_path, name, text), DIRECTION)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [(3, "`memory` must be paths of files"), ([("a",)], "must have pairs of two texts, got ..a")],
)
def test_memory_refuses_other_values(value, message):
    with pytest.raises(UserError, match=message):
        as_memory(value)


def test_memory_needs_languages(tmp_path):
    with pytest.raises(UserError, match="`source_language` must be given for .*a.tmx"):
        as_memory(write(tmp_path, "a.tmx", FILES["a.tmx"]))


def test_memory_uses_the_last_one_of_double_entries(caplog, monkeypatch):
    monkeypatch.setattr(memories.logger, "propagate", True)
    with caplog.at_level(logging.WARNING):
        memory = TranslationMemory([("a", "b"), ("a", "b"), ("a ", "c"), ("d", "e")], name="m.tsv")
    assert memory.find("a").target == "c"
    (line,) = caplog.messages
    assert re.match("m.tsv has 1 further translations .* such as of 'a '", line)


def test_memory_finds_the_sentences_of_its_pairs():
    pair = ("He left. She stayed here.", "Er ging. Sie blieb hier.")
    memory = TranslationMemory([pair, ("One. Two.", "Eins zwei.")])
    assert memory.find("She stayed here.") == ("She stayed here.", "Sie blieb hier.", EXACT)
    assert memory.find(pair[0]) == (*pair, EXACT)
    assert memory.find("Two.") is None


def test_memory_changes(tmp_path):
    base = TranslationMemory(PAIRS)
    memory = TranslationMemory(base=base)
    assert memory.find("Save it").target == "Speichern"
    memory.add("Save it", "Sichern")
    memory.add("The old house is big.", "Das alte Haus ist groß.")
    assert memory.find("Save it").target == "Sichern"
    assert memory.find("The old house is red.").target == "Das alte Haus ist groß."
    assert memory.find("The house is red.").target == "Das Haus ist alt."
    memory.add("One line\nAnother line", "Eine Zeile\nNoch eine Zeile")
    assert memory.find("Another line").target == "Noch eine Zeile"
    assert base.find("Save it").target == "Speichern"


def test_memory_that_grows_indexes_a_source_seldom(monkeypatch):
    indexed = []

    class Index(memories.FuzzyIndex):
        def __init__(self, texts):
            indexed.extend(texts)
            super().__init__(texts)

    monkeypatch.setattr(memories, "FuzzyIndex", Index)
    memory = TranslationMemory()
    for number in range(64):
        word = f"w{'x' * number}"
        memory.add(f"The {word} is old.", f"Der {word} ist alt.")
        assert memory.find(f"The {word} is new.").target == f"Der {word} ist alt."
    assert memory.find("The wx is new.").target == "Der wx ist alt."
    assert len(indexed) <= 64 * 7


VALUES = [
    ("Page 3 of 10", "Seite 3 von 10", "Page 3 of 10", "Seite 3 von 10"),
    ("Page 3 of 10", "Seite 3 von 10", "Page 4 of 12", "Seite 4 von 12"),
    ("Page 3 of 10", "Seite 3 von 10", "Page 7 of 7", "Seite von"),
    ("Page 3 of 3", "Seite 3 von 3", "Page 7 of 7", "Seite 7 von 7"),
    ("Page 3 of 3", "Seite 3 von 3", "Page 7 of 8", "Seite von"),
    ("Wait 1,000.50 s", "Warte 1.000,50 s", "wait 1,000.50 s", "Warte 1.000,50 s"),
    ("Wait 1,000.50 s", "Warte 1.000,50 s", "Wait 2,000.50 s", "Warte s"),
    ("Delete {name}?", "{name} löschen?", "Delete %s?", "%s löschen?"),
    ("Delete {a} {b}?", "{b} {a} löschen?", "Delete {b} {c}?", "{c} {b} löschen?"),
    ("Delete it in 5000 days?", "In 6000 Tagen?", "Delete it in 5000 days?", "In Tagen?"),
    ("Delete {name}?", "Löschen?", "Delete {name}?", "Löschen?"),
]


@pytest.mark.parametrize(("source", "target", "text", "draft"), VALUES)
def test_drafts_have_the_values_of_the_text(source, target, text, draft):
    match = TranslationMemory([(source, target)]).find(text)
    assert " ".join(replace_values(match.target, source, text).split()) == draft
    is_exact = source == text and draft == target and target != "Löschen?"
    assert (match.similarity == EXACT) == is_exact
