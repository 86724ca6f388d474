"""PO and TS files as corpora: translated messages are pairs."""

import gzip

import pytest

from vanilla_transformer.data.readers import CorpusSpec, open_corpus, read_pairs
from vanilla_transformer.errors import UserError

PO = """msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "E&xit\\n the dog"
msgstr "Be&enden\\n Hund"

#, fuzzy
msgid "Cat"
msgstr "Katze"

msgid "Cow"
msgstr ""

msgid "one bird"
msgid_plural "%d birds"
msgstr[0] "ein Vogel"
msgstr[1] "%d Vögel"

#~ msgid "Gone"
#~ msgstr "Weg"
"""
TS = """<!DOCTYPE TS><TS version="2.1" language="de_AT" sourcelanguage="en"><context><name>A</name>
<message><source>Exit the dog</source><translation>Beenden Hund</translation></message>
<message><source>Cat</source><translation type="unfinished">Katze</translation></message>
<message numerus="yes"><source>Cow</source><translation type="unfinished"></translation></message>
<message numerus="yes"><source>%d birds</source><translation><numerusform>%d Vogel</numerusform>\
<numerusform>%d Vögel</numerusform></translation></message>
<message><source>Gone</source><translation type="vanished">Weg</translation></message></context></TS>"""
PAIRS = [("Exit the dog", "Beenden Hund"), ("Cat", ""), ("Cow", ""), ("%d birds", "%d Vögel")]


def read(path, source="en", target="de"):
    spec = CorpusSpec(file=str(path), source_language=source, target_language=target)
    with open_corpus(spec) as corpus:
        return [tuple(pair) for pair in read_pairs(corpus)]


@pytest.mark.parametrize(("name", "text"), [("a.po", PO), ("a.ts", TS), ("b.po.gz", PO)])
def test_translated_messages_are_pairs_and_others_have_a_blank_target(tmp_path, name, text):
    path, content = tmp_path / name, text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(path) == PAIRS


@pytest.mark.parametrize(("name", "text"), [("a.po", PO), ("a.ts", TS)])
def test_a_file_of_the_other_direction_is_reversed(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    expected = [(target, source) for source, target in PAIRS]
    assert read(tmp_path / name, "de", "en") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PO.replace("de\\n", "fr\\n"), "must be PO with pairs in the languages en and de, but it has fr"),
        ('msgid "a"\nmsgstr ""\n', "but it has no translated units"),
        (PO + 'msgid "a\n', "a.po: The text must be in the format po: end-of-line within string on line 23"),
    ],
)
def test_a_mistake_is_named_with_its_file(tmp_path, text, words):
    (tmp_path / "a.po").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read(tmp_path / "a.po")
    assert words in str(caught.value) and "\n" not in str(caught.value)
