"""PO, TS and RESX: messages without a translation get one, which is marked, and all others stay as
they were.
"""

import re
from pathlib import Path

import pytest

from tests.catalogs import FORMS, HEADER, PLURALS, PO, translate
from vanilla_transformer.decoding.protection.blocks import Block
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import TargetLanguageError, parse_document
from vanilla_transformer.text.xml_tree import parse_xml

SPLIT = AbbreviationSplitter()
QT = (Path(__file__).parents[1] / "cases" / "qt.ts").read_text(encoding="utf-8")
PO_EDITS = {
    "#, c-format\n": "#, c-format, fuzzy\n",
    'msgid "Open %s now."\nmsgstr ""': 'msgid "Open %s now."\nmsgstr "OPEN %s NOW."',
    "#, python-format\n": "#, fuzzy, python-format\n",
    'msgstr[0] ""\nmsgstr[1] ""': 'msgstr[0] "%(n)d DOG"\nmsgstr[1] "%(n)d DOGS"',
    'msgid "\\n  Two\\nlines.\\n"\nmsgstr ""': '#, fuzzy\nmsgid "\\n  Two\\nlines.\\n"\n'
    'msgstr ""\n"\\n"\n"  TWO\\n"\n"LINES.\\n"',
}
RESX = """\ufeff<?xml version="1.0" encoding="utf-8"?>\r
<root>\r
  <data name="Form1.Text" xml:space="preserve">\r
    <value>&amp;Open {0} &lt;now&gt;</value>\r
    <comment>of the title</comment>\r
  </data>\r
  <data name=">>Form1.Name" xml:space="preserve">\r
    <value>form</value>\r
  </data>\r
  <data name="Icon" type="System.Resources.ResXFileRef" xml:space="preserve">\r
    <value>icon.ico;System.Drawing.Icon</value>\r
  </data>\r
</root>"""


def edited(text, edits):
    for before, after in edits.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_po_changes_where_a_translation_lacks(line_end):
    translated = translate(PO.replace("\n", line_end), "po")
    assert translated == edited(PO, PO_EDITS).replace("\n", line_end)
    assert translate(translated, "po") == translated


def test_doubtful_translations_get_a_comment():
    text = HEADER.format("de", "") + '\n#. Of a menu\nmsgid "A dog"\nmsgstr ""\n'
    document = parse_document(text + '\nmsgid "Two dogs"\nmsgstr ""\n', "po")
    document.doubts = {0: ["copy", "length"]}
    translated = document.render([Block("Ein Hund"), Block("Zwei Hunde")])
    reasons = "words are copied from the source (copy); it is unusually short or long (length)"
    comment = f"# Doubtful machine translation: {reasons}\n"
    assert f'\n{comment}#. Of a menu\n#, fuzzy\nmsgid "A dog"\nmsgstr "Ein Hund"\n' in translated
    assert translated.count("Doubtful") == 1
    document = parse_document(QT, "ts")
    document.doubts = {0: ["copy"]}
    translated = document.render([Block(block.text.upper()) for block in document.blocks])
    assert translated.count("<translatorcomment>Doubtful machine translation: words") == 1


def test_a_file_without_open_messages_stays_and_says_so():
    done = PO.partition("# A note")[0] + 'msgid "A"\nmsgstr   "B"'
    document = parse_document(done, "po")
    assert document.render([]) == done
    skipped = "Skipped: 1 with a translation."
    assert document.summary == f"Translated 0 of 1 messages. {skipped}"


def test_a_declaration_of_xml_in_messages_stays():
    text = 'Say <?xml version=\\"1.0\\"?>  now.'
    other = f'\nmsgid "{text}"\nmsgstr "{text.upper()}"\n'
    assert translate(PO + other, "po") == edited(PO, PO_EDITS) + other


def test_summary_counts_messages_by_status():
    document = parse_document(PO, "po")
    document.render(document.blocks)
    counts = "Translated 3 of 6 messages. Skipped: 1 obsolete; 2 with a translation."
    whole = "0 messages that break your build; 0 stayed open."
    assert document.summary == f"{counts} {whole}"


@pytest.mark.parametrize("language", FORMS)
def test_plurals_have_the_forms_of_the_language(language):
    translated = translate(PLURALS, "po", language)
    entries = translated.split("fuzzy")[1:]
    for entry, forms in zip(entries, FORMS[language], strict=False):
        assert "|".join(re.findall(r'msgstr\[\d\] "(.*)"', entry)) == forms
    assert len(entries) >= len(FORMS[language])
    count = FORMS[language][1].count("|") + 1
    assert f'"Language: {language}\\n"' in translated
    assert f"nplurals={count}" in translated


def test_plurals_need_a_language():
    text = HEADER.format("", "") + 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'
    message = "Add `Plural-Forms`, or name the language by --target_language"
    with pytest.raises(TargetLanguageError, match=message):
        parse_document(text, "po")


def test_a_template_gets_an_encoding_that_its_translation_has():
    header = HEADER.format("", "").replace("UTF-8", "CHARSET")
    template = f'{header}msgid "ä"\nmsgstr ""\n'
    translated = translate(template.rstrip("\n"), "po", "pt-BR")
    assert "charset=UTF-8" in translated
    assert '"Language: pt_BR\\n"' in translated
    assert not translated.endswith("\n")


ACCELERATORS = {
    "&File": "&FILE",
    "E&xit": "&EXIT",
    "Save _as": "SAVE _AS",
    "AT&T": "AT&T",
    "a &amp; b": "A &amp; B",
    "file_name": "file_name",
    "Use drag&drop": "USE DRAG&DROP",
    "Q&A": "Q&A",
    "__COUNT__ items": "__COUNT__ ITEMS",
    " ": " ",
}


@pytest.mark.parametrize(("source", "target"), ACCELERATORS.items())
def test_accelerators_stay_before_a_word(source, target):
    assert f'\nmsgstr "{target}"' in translate(f'msgid "{source}"\nmsgstr ""\n', "po")


WITHIN_WORDS = {
    "Prog&ram": "&PROGRAM",
    "You can use drag&drop here": "YOU CAN USE DRAG&DROP HERE",
    "&Run": "&RUN",
}


@pytest.mark.parametrize("form", ["po", "json", "properties"])
def test_an_access_key_is_within_a_word_in_short_messages_of_files_with_others(form):
    lines = {"po": 'msgid "{}"\nmsgstr ""\n', "json": '"{}": "{}"', "properties": "{} = {}"}
    joint = ",\n" if form == "json" else "\n"
    texts = []
    for number, source in enumerate(WITHIN_WORDS):
        values = [source]
        if form != "po":
            values.insert(0, f"k{number}")
        texts.append(lines[form].format(*values))
    text = joint.join(texts)
    if form == "json":
        text = f"{{{text}}}"
    translated = translate(text, form)
    for target in WITHIN_WORDS.values():
        assert target in translated


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("resx", "<root><data name='a'><value>{}File now</value></data></root>"),
        ("xml", "<resources><string name='a'>{}File now</string></resources>"),
    ],
)
def test_an_access_key_stays_before_its_word_in_xml(form, text):
    source = text.format("&amp;")
    assert translate(source, form) == source.replace("File now", "FILE NOW")
    builder = parse_document(source, form).blocks[0]
    assert builder.text == "File now"


def test_ts_is_filled_and_stays_unfinished():
    translated = translate(QT, "ts", "de")
    root = parse_xml(translated).getroot()
    for message in root.iter("message"):
        (translation,) = message.iterchildren("translation")
        assert translation.get("type") == "unfinished"
        forms = [form.text for form in translation] or [translation.text]
        source = message.findtext("source").upper().replace("%N", "%n")
        assert forms == [source] * len(forms)
    lines = translated.split("\n")
    kept = [line for line in lines if not re.search("translation|numerusform", line)]
    assert [line for line in QT.split("\n") if "<translation" not in line] == kept
    assert translate(translated, "ts", "de") == translated


def test_ts_without_a_language_gets_it_and_its_forms():
    bare = QT.replace(' language="de_DE"', "")
    bare = bare.replace("<numerusform></numerusform>", "")
    translated = translate(bare, "ts", "pl")
    assert 'language="pl"' in translated
    assert translated.count("<numerusform>") == 3
    vanished = ' type="vanished">Alt</translation>'
    finished = QT.replace(' type="unfinished"></translation>', vanished)
    assert "Alt" in translate(finished, "ts")
    assert "OPEN A FILE" not in translate(finished, "ts")


def test_resx_changes_in_texts():
    expected = RESX.replace("&amp;Open {0} &lt;now&gt;", "&amp;OPEN {0} &lt;now&gt;")
    assert translate(RESX, "resx") == expected


@pytest.mark.parametrize(("text", "form"), [(PO, "po"), (QT, "ts")])
def test_a_file_for_another_language_is_refused(text, form):
    message = "language of the file must be fr, as of the model, but it is de"
    with pytest.raises(UserError, match=message):
        translate(text, form, "fr")


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        (PO + 'msgid "a\n', "po", "line 40: 'msgid \"a"),
        ("hello", "po", "line 1: 'hello"),
        (
            PO.replace("UTF-8", "ISO-8859-1"),
            "po",
            "its header says ISO-8859-1. Convert it by `msgconv -t UTF-8`",
        ),
        (PO.replace("n != 1", "n !"), "po", "`Plural-Forms` must be an expression of C, got"),
        *(
            (PO.replace("(n != 1)", expression), "po", "must be an expression of C, got n")
            for expression in ("n/0", "n%(n-5)")
        ),
        *(
            (
                PO.replace("nplurals=2", f"nplurals={count}"),
                "po",
                f"from 1 to 10, got {count[:20]}.",
            )
            for count in ("0", "11", "1000000000", "9" * 4400, "x")
        ),
        (QT.replace("</source>", ""), "ts", "line 10"),
        (QT.replace("<name>MainWindow</name>", ""), "ts", "must have a <name>, got none in line 4"),
        (
            QT.replace("2.1", "1.1"),
            "ts",
            "TS version '1.1' is not compatible with the TS 2.x format.",
        ),
        ("const a: number = 1;", "ts", "must be well-formed XML"),
        (RESX.replace("</comment>", ""), "resx", "line 6"),
        (QT, "resx", "The root element must be <root>, got <TS>"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, form, words):
    with pytest.raises(UserError) as caught:
        translate(text, form)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
