"""Unchanged segments keep their earlier translation, and changed ones get it as a draft."""

from io import BytesIO
from zipfile import ZipFile

import pytest

from tests.document_translation import COLUMNS, by_texts, shout
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.decoding.sentences import Draft
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import (
    BlockTranslator,
    parse_document,
    translate_document,
)
from vanilla_transformer.text.changes import DRAFT_BIAS
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DOCUMENT = f'<w:document xmlns:r="r" xmlns:w="{W}"><w:body>%s</w:body></w:document>'
BOLD = "<w:rPr><w:b/></w:rPr>"


def pack(content):
    """Return the text of a DOCX."""
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", content)
    return file.getvalue().decode("latin-1")


def run(text, properties=""):
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs):
    return f'<w:p><w:pPr><w:jc w:val="left"/></w:pPr>{"".join(runs)}</w:p>'


def update(source, form, *previous, existing=None, direction=NO_DIRECTION):
    """Return the updated translation, the drafts by their sentences, and the summary."""
    drafts = {}

    def translate(sentences):
        for sentence in sentences:
            drafts[sentence.text] = sentence.draft and sentence.draft.text
        return by_texts(shout)(sentences)

    settings = {"existing": existing, "previous": previous, "direction": direction}
    settings["columns"] = COLUMNS.get(form, "")
    document = parse_document(source, form, **settings)
    translated = document.render(BlockTranslator(translate, split_simply)(document.blocks))
    again = translate_document(source, form, by_texts(shout), split_simply, **settings)
    assert again == translated
    return translated, drafts, document.summary


CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n"
ANDROID = '<resources><string name="a">{}</string>\n<string name="b">{}</string></resources>'
STRINGSDICT = (
    '<plist version="1.0"><dict><key>a</key><dict>\n<key>NSStringLocalizedFormatKey</key>'
    "<string>%#@n@</string>\n<key>n</key><dict>\n<key>NSStringFormatSpecTypeKey</key>"
    "<string>NSStringPluralRuleType</string>\n{}</dict></dict></dict></plist>"
)
FORMS = "<key>one</key><string>{}</string>\n<key>other</key><string>{}</string>\n"
WRAPPED = "{} and further words that\nfill the lines of a text\n\n* {}\n"
FORMATS = {
    "html": '<h1 title="{}">{}</h1>\n<p>One <b>two</b> three.</p>',
    "markdown": "# {}\n\n- {}\n  continues\n\n| a | b\\|c |\n|---|---|\n",
    "json": '{{"a": "{}", "b": {{"c": "{}"}}}}',
    "properties": "a = {}\nb = {}\n",
    "strings": '"a" = "{}";\n"b" = "{}";\n',
    "fluent": "a = {}\nb = {}\n",
    "resx": '<root><data name="a"><value>{}</value></data><data name="b"><value>{}</value></data></root>',
    "xml": ANDROID,
    "yaml": "a: {}\nb: {}\n",
    "srt": CUES,
    "vtt": "WEBVTT\n\n" + CUES,
    "wrapped": WRAPPED,
    "csv": "key,text,note\na,{},One small dog.\nb,{},x\n",
    "tsv": "key\ttext\tnote\na\t{}\tOne small dog.\nb\t{}\tx\n",
    "stringsdict": STRINGSDICT.format(FORMS),
}  # fmt: skip


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("form", FORMATS)
def test_unchanged_segments_keep_their_translation(form, line_end):
    frame = FORMATS[form].replace("\n", line_end)
    earlier = frame.format("One small dog.", "Two dogs run to the house.")
    translation = FORMATS[form].format("Der  eine Hund.", "Zwei  Hunde rennen zum Haus.")
    kept = translation.replace("\n", line_end)
    text, drafts, summary = update(earlier, form, earlier, translation)
    assert (text, drafts) == (kept, {})
    assert "; 0 changed, 0 new." in summary
    source = frame.format("One small dog.", "Two dogs run to the new house.")
    text, drafts, summary = update(source, form, earlier, translation)
    assert "Der  eine Hund." in text
    assert "TWO DOGS RUN TO THE NEW HOUSE." in text
    (sentence,) = drafts
    assert sentence.startswith("Two dogs run")
    assert " ".join(drafts[sentence].split()).startswith("Zwei Hunde rennen zum Haus.")
    assert "; 1 changed, 0 new." in summary


def test_segments_are_found_where_they_moved_to():
    earlier = "# One\n\nA long first text.\n\nA *second* text.\n\nGone.\n"
    translation = "# Eins\n\nErster Text.\n\nZweiter\n*Text*.\n\nWeg.\n"
    source = "A *second* text.\n\n# One\n\nQuite new.\n\n> A long first text.\n"
    text, drafts, summary = update(source, "markdown", earlier, translation)
    assert text == "Zweiter\n*Text*.\n\n# Eins\n\nQUITE NEW.\n\n> Erster Text.\n"
    assert drafts == {"Quite new.": None}
    assert summary == "Kept 3 of 4 segments; 0 changed, 1 new."


def test_segments_of_a_longer_translation_are_found_by_their_marks_in_most_cases():
    """The largest number of marks that are in the same order pair the segments."""
    earlier = "\n\n".join(f"Dog {mark}" for mark in "12378956")
    translation = "\n\n".join(f"Hund {mark}" for mark in "561728390")
    text, _, summary = update(earlier, "markdown", earlier, translation)
    words = ["Hund 1", "DOG 2", "DOG 3", "Hund 7", "Hund 8", "Hund 9", "DOG 5", "DOG 6"]
    assert text == "\n\n".join(words)
    assert summary == "Kept 4 of 8 segments; 0 changed, 4 new."


def test_unchanged_sentences_of_a_changed_paragraph_keep_their_translation():
    earlier = "One dog. Two dogs run. Three dogs sleep here.\n"
    source = "One dog. Two big dogs run. Three dogs sleep here.\n"
    translation = "Ein-Hund. Zwei Hunde. Drei — Hunde.\n"
    text, drafts, _ = update(source, "markdown", earlier, translation)
    assert text == "Ein-Hund. TWO BIG DOGS RUN. Drei — Hunde.\n"
    assert drafts == {"Two big dogs run.": "Zwei Hunde."}
    translation = "Ein Hund. Zwei Hunde und drei Hunde.\n"  # of two sentences
    text, drafts, _ = update(source, "markdown", earlier, translation)
    assert text == source.upper()
    assert set(drafts.values()) == {"Ein Hund. Zwei Hunde und drei Hunde."}


@pytest.mark.parametrize(
    ("translation", "draft", "before"),
    [
        ("Seite {0} von 3 da. Zwei.", "Seite %(title)s von 5 da.", "Page %(title)s of 5 is here."),
        ("Seite {0} und zwei.", "Seite %(title)s und zwei.", "Page %(title)s of 5 is here. Two."),
    ],
)
def test_draft_of_a_changed_sentence_has_its_source_and_the_values_of_the_text(
    translation, draft, before
):
    drafts = []

    def translate(sentences):
        drafts.extend(sentence.draft for sentence in sentences)
        return by_texts(shout)(sentences)

    previous = "Page {0} of 3 is here. Two.", translation
    document = parse_document("Page %(title)s of 5 is here. Two!", "markdown", previous=previous)
    BlockTranslator(translate, split_simply)(document.blocks)
    assert drafts[0] == Draft(draft, DRAFT_BIAS, before)


def test_messages_are_found_by_their_keys():
    earlier = '{"a": "Open", "b": "Open", "c": "Close it", "d": "Old", "e": "Empty"}'
    translation = '{"c": "Schließen", "b": "Offen", "a": "Öffnen", "e": ""}'
    source = '{"b": "Open", "a": "Open", "c": "Do not", "d": "Old", "x": "Open", "e": "Empty"}'
    text, drafts, summary = update(source, "json", earlier, translation)
    expected = (
        '{"b": "Offen", "a": "Öffnen", "c": "DO NOT", "d": "OLD", "x": "Offen", "e": "EMPTY"}'
    )
    assert text == expected
    assert drafts == {"Do not": "Schließen", "Old": None, "Empty": None}
    assert summary.startswith("Kept 3 of 6 segments; 1 changed, 2 new. Translated 3 of 3 messages.")


PLURAL_FRAMES = {
    "json": ('{{"a": "%d",\n{}}}', '"dog_{}": "{}"', ",\n"),
    "xml": ('<resources><plurals name="a">{}</plurals></resources>', '<item quantity="{}">{}</item>', ""),
    "stringsdict": (STRINGSDICT, "<key>{}</key><string>{}</string>", "\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", PLURAL_FRAMES)
@pytest.mark.parametrize("singular", [{"one": "%d dog"}, {}])
def test_plurals_keep_the_forms_that_only_their_translation_has(form, singular):
    frame, item, separator = PLURAL_FRAMES[form]

    def write(forms):
        return frame.format(separator.join(item.format(*row) for row in forms.items()))

    earlier = write({**singular, "zero": "none", "other": "%d dogs"})
    forms = {"zero": "nic", "few": "%d  psy", "many": "%d  psów", "other": "%d  psa"}
    translation = write({"one": "%d  pies", **forms})
    polish = Direction("en", "pl")
    text, drafts, summary = update(earlier, form, earlier, translation, direction=polish)
    assert "; 0 changed, 0 new." in summary
    assert drafts == {}
    if form != "json" or singular:  # where the source has no `one`, it is written in its place
        assert text == translation
    for translated in ("pies", "psy", "psów", "psa"):
        assert text.count(f"%d  {translated}") == 1
    source = earlier.replace("dogs", "old dogs")
    text, _, summary = update(source, form, earlier, translation, direction=polish)
    assert "Kept 0" in summary or text.count("%d OLD DOGS") >= 2
    assert "psy" not in text


def test_changed_messages_of_an_existing_translation_are_translated_again():
    earlier = '{"a": "One", "b": "Two dogs", "c": {"x": "Three"}}'
    existing = '{ "b":"Zwei Hunde",  "a": "Eins" , "c": {"x": "Drei"}, "old": "Alt"}'
    source = '{"a": "One", "b": "Two cats", "c": {"x": "Three"}, "d": "Four"}'
    text, drafts, summary = update(source, "json", earlier, existing=existing)
    expected = '{ "b":"TWO CATS", "d": "FOUR",  "a": "Eins" , "c": {"x": "Drei"}, "old": "Alt"}'
    assert text == expected or text.count('"d": "FOUR"') == 1
    assert drafts == {"Two cats": "Zwei Hunde", "Four": None}
    assert summary.startswith("Translated 2 of 2 missing or changed messages.")
    assert "1 (old)" in summary


def test_paragraphs_of_docx_keep_the_runs_of_their_translation():
    def document(*paragraphs):
        return pack(DOCUMENT % "".join(paragraphs))

    image = '<w:r><w:drawing r:id="rId{}"/></w:r>'
    first = paragraph(run("One "), run("dog", BOLD), run(" runs"))
    kept = paragraph(
        run("Ein "), run("großer", BOLD), run(" Hund"), run(" läuft", "<w:rPr><w:i/></w:rPr>")
    )
    earlier = document(
        first, paragraph(run("A cat.")), paragraph(run("A "), image.format(1), run("picture"))
    )
    translation = document(
        kept, paragraph(run("Eine Katze.")), paragraph(run("Ein "), image.format(2), run("Bild"))
    )
    source = document(
        paragraph(run("New"), run(" words", BOLD)),
        first,
        paragraph(run("A "), image.format(1), run("picture")),
    )
    text, drafts, summary = update(source, "docx", earlier, translation)
    content = ZipFile(BytesIO(text.encode("latin-1"))).read("word/document.xml").decode()
    assert kept in content
    assert 'rId1"' in content and 'rId2"' not in content
    assert drafts == {"New words": None, "A picture": "Ein Bild"}
    assert summary == "Kept 1 of 3 segments; 1 changed, 1 new."


@pytest.mark.parametrize(
    ("form", "previous", "existing", "words"),
    [
        ("markdown", ["One.\n", "Eins.\n\nZwei.\n"], None, "as many segments, got 1 and 2."),
        ("srt", [CUES.format("a", "b"), "1\n00:00:01,000 --> 00:00:02,000\nc\n"], None, "as many subtitles, got 2 and 1"),
        ("json", ['{"a": "b"}'], None, "the earlier version and its translation, got 1"),
        ("json", ['{"a": "b"}', "{"], None, "The previous version cannot be used. The text must be JSON"),
        ("json", ['{"a": "b"}', "{}"], "{}", "one file, the source that it translates, got 2"),
    ],
)  # fmt: skip
def test_other_versions_are_refused(form, previous, existing, words):
    source = {"markdown": "One.", "json": "{}"}.get(form, CUES.format("a", "b"))
    with pytest.raises(UserError) as refusal:
        parse_document(source, form, existing=existing, previous=previous)
    assert words in str(refusal.value)


PO = """msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

"""
TEMPLATE = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
TS = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de">
<context>
    <name>A</name>
    <message>
        <source>One</source>
        <translation{}</translation>
    </message>
    <message>
        <source>Two {}dogs</source>
{}        <translation type="unfinished">{}</translation>
    </message>
</context>
</TS>
"""


def test_catalogs_take_the_translations_of_their_earlier_version():
    kept = [
        'msgid "One dog"\nmsgstr ""\n"Ein "\n"Hund"\n',
        'msgctxt "x"\nmsgid "One dog"\nmsgstr "Hündchen"\n',
    ]
    plural = 'msgid "%d cat"\nmsgid_plural "%d cats"\nmsgstr[0] "%d Katze"\nmsgstr[1] "%d Katzen"\n'
    earlier = "\n".join(
        [PO + kept[0], kept[1], '#, fuzzy\nmsgid "Two dogs run"\nmsgstr "Zwei Hunde"\n', plural]
    )
    open_plural = 'msgid "%d cat"\nmsgid_plural "%d cats"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    source = TEMPLATE + 'msgctxt "x"\nmsgid "One dog"\nmsgstr ""\n\nmsgid "One dog"\nmsgstr ""\n\n'
    source += (
        f'msgid "Two big dogs run"\nmsgstr ""\n\n{open_plural}\nmsgid "New words"\nmsgstr ""\n'
    )
    text, drafts, summary = update(source, "po", earlier)
    for message in [*kept, plural]:
        assert f"\n\n{message}" in text
    assert '#, fuzzy\nmsgid "Two big dogs run"\nmsgstr "TWO BIG DOGS RUN"\n' in text
    assert drafts == {"Two big dogs run": "Zwei Hunde", "New words": None}
    assert summary.startswith("Kept 3 of 5 segments; 1 changed, 1 new. Translated 2 of 5 messages.")
    text, _, _ = update(
        TS.format(' type="unfinished">', "", "", ""), "ts", TS.format(">Eins", "", "", "Zwei")
    )
    assert text == TS.format(">Eins", "", "", "Zwei")


def test_fuzzy_messages_that_the_earlier_catalog_lacks_are_translated_by_their_guess():
    kept = 'msgid "A cat sleeps"\nmsgstr "Katze"\n\n#, fuzzy\nmsgid "A dog sleeps"\nmsgstr "Hund"\n'
    plural = '\n{}msgid "A {}dog"\nmsgid_plural "Many {}dogs"\nmsgstr[0] "Ein Hund"\nmsgstr[1] "Viele Hunde"\n'
    earlier = f'{PO}{kept}\nmsgid "Two dogs run"\nmsgstr "Zwei Hunde"\n' + plural.format("", "", "")
    new = '#, fuzzy\nmsgid "{}"\nmsgstr "{}"\n'
    source = f"{PO}{kept}\n{new}\n{new}".format(
        "Two cats run", "Zwei Hunde", "Other words", "Guess"
    )
    source += plural.format("#, fuzzy\n", "big ", "big ")
    text, drafts, summary = update(source, "po", earlier)
    assert f"{PO}{kept}" in text
    assert drafts == {
        "Two cats run": "Zwei Hunde",
        "Other words": "Guess",
        "A big dog": "Ein Hund",
        "Many big dogs": "Viele Hunde",
    }
    assert summary.startswith("Kept 0 of 3 segments; 3 changed, 0 new. Translated 3 of 5 messages.")


def test_messages_whose_source_changed_have_their_translation_as_draft():
    fuzzy = (
        '#, fuzzy\n{}msgid "Two cats run"\nmsgstr "{}"\n\n#, fuzzy\nmsgid "x y"\nmsgstr "kept"\n'
    )
    source = PO + fuzzy.format('#| msgid "Two dogs run"\n', "Zwei Hunde laufen")
    text, drafts, _ = update(source, "po")
    assert text == PO + fuzzy.format("", "TWO CATS RUN")
    assert drafts == {"Two cats run": "Zwei Hunde laufen"}
    source = TS.format(">Eins", "new ", "        <oldsource>Two dogs</oldsource>\n", "Zwei Hunde")
    text, drafts, _ = update(source, "ts")
    assert text == TS.format(">Eins", "new ", "", "TWO NEW DOGS")
    assert drafts == {"Two new dogs": "Zwei Hunde"}


XLIFF = """<xliff version="1.2"><file source-language="en" target-language="de" original="a">
<body>
{}</body></file></xliff>
"""
UNIT = '<trans-unit id="{}"{}>\n<source>{}</source>{}\n</trans-unit>\n'
XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f">
{}</file></xliff>
"""
SEGMENT = '<unit id="{}"><segment{}>\n<source>{}</source>{}\n</segment></unit>\n'


@pytest.mark.parametrize(
    ("frame", "unit", "status", "of_target"),
    [(XLIFF, UNIT, ' approved="yes"', ' state="final"'), (XLIFF_2, SEGMENT, ' state="final"', "")],
)
def test_segments_of_xliff_keep_their_targets_and_states(frame, unit, status, of_target):
    target = f'\n<target{of_target}>Ein  <x id="a"/> Hund</target>'.replace(
        "<x", "<x" if of_target else "<ph"
    )
    code = 'One <x id="a"/> dog'.replace("<x", "<x" if of_target else "<ph")
    kept = unit.format(1, status, code, target)
    earlier = frame.format(
        kept + unit.format(2, "", "Two dogs run", "\n<target>Zwei Hunde</target>")
    )
    stale = unit.format(
        3,
        ' state="initial"' * (unit is SEGMENT),
        "Some small cats",
        '\n<target state="new">Katzen</target>',
    )
    source = frame.format(
        unit.format(9, "", "Two big dogs run", "") + unit.format(1, "", code, "") + stale
    )
    text, drafts, summary = update(source, "xliff", earlier)
    assert kept in text
    assert "TWO BIG DOGS RUN" in text and "SOME SMALL CATS" in text
    assert drafts == {"Two big dogs run": "Zwei Hunde", "Some small cats": "Katzen"}
    assert summary.startswith("Kept 1 of 3 segments; 1 changed, 1 new. Translated 2 of 3 segments.")
