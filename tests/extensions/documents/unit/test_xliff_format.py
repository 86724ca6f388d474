"""XLIFF as translation tools write it: open segments are translated and marked, and all other bytes
stay.
"""

import re

import pytest

from tests.document_translation import reverse, shout, translate_document
from vanilla_transformer.decoding.protection.blocks import Block
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.xml_tree import parse_xml

SPLIT = AbbreviationSplitter()
MT = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
MT_2 = 'state="translated" subState="vanilla-transformer:mt"'

TRADOS = """<?xml version="1.0" encoding="utf-8"?>\r
<xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2" \
sdl:version="1.0"><file original="a.docx" datatype="x-sdlfilterframework2" source-language="en-US" \
target-language="de-DE"><header><sdl:cxts xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" /></header><body>\r
<group id='g'><trans-unit id="u1"><source><g id="1">One dog. Two &lt;cats&gt;.</g> Three</source><seg-source>\
<g id="1"><mrk mtype="seg" mid="1">One dog.</mrk> <mrk mtype="seg" mid="2">Two <x id="7" /> &lt;cats&gt;.</mrk></g> \
<mrk mtype="seg" mid="3">Three</mrk></seg-source><target><g id="1"><mrk mtype="seg" mid="1">Ein Hund.</mrk> \
<mrk mtype="seg" mid="2" /></g> <mrk mtype="seg" mid="3"></mrk></target><sdl:seg-defs><sdl:seg id="1" \
conf="Translated" /><sdl:seg id="2" /><sdl:seg id="3" locked="true" /></sdl:seg-defs></trans-unit>\r
<trans-unit id="u2"><source>Four</source><seg-source><mrk mtype="seg" mid="4">Four</mrk></seg-source>\
<sdl:seg-defs><sdl:seg id="4" percent="0"/></sdl:seg-defs></trans-unit>\r
<trans-unit id="u3" translate="no"><source>Five</source></trans-unit></group></body></file></xliff>\r
"""
TRADOS_EDITS = {
    "<target><g": f"<target {MT}><g",
    '<mrk mtype="seg" mid="2" />': '<mrk mtype="seg" mid="2">TWO <x id="7" /> &lt;cats&gt;.</mrk>',
    '<sdl:seg id="2" />': '<sdl:seg id="2" conf="Draft" origin="mt" />',
    'mid="4">Four</mrk></seg-source>': 'mid="4">Four</mrk></seg-source>'
    f'<target {MT}><mrk mtype="seg" mid="4">FOUR</mrk></target>',
    'percent="0"/>': 'percent="0" conf="Draft" origin="mt"/>',
}
MEMOQ = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:mq="MQXliff" version="1.2">
<file original="a.docx" source-language="en" target-language="de-at" mq:filter='x "y"'><body>
<trans-unit id="1" mq:status="NotStarted" mq:locked="no"><source xml:space="preserve">Press \
<bpt id="1" ctype="bold">{}</bpt>start<ept id="1">{}</ept></source><target xml:space="preserve"></target></trans-unit>
<trans-unit id="2" mq:status="NotStarted"><source xml:space="preserve">Copied text</source>\
<target xml:space="preserve">Copied text</target><mq:minorversions><mq:historical-unit mq:status="NotStarted">\
<source xml:space="preserve">Old</source><target xml:space="preserve"></target></mq:historical-unit>\
</mq:minorversions></trans-unit>
<trans-unit id="3" mq:status="NotStarted" mq:locked="locked"><source>Locked</source><target></target></trans-unit>
<trans-unit id="4" mq:status="ManuallyConfirmed"><source>Done</source><target>Fertig</target></trans-unit>
</body></file></xliff>"""
MEMOQ_EDITS = {
    '<target xml:space="preserve"></target></trans-unit>\n': '<target xml:space="preserve" '
    f'{MT}>PRESS <bpt id="1" ctype="bold">{{}}</bpt>START<ept '
    'id="1">{}</ept></target></trans-unit>\n',
    '<target xml:space="preserve">Copied text<': f'<target xml:space="preserve" {MT}>COPIED TEXT<',
}
ANGULAR = """<?xml version="1.0" encoding="UTF-8" ?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en-US" datatype="plaintext" original="ng2.template">
    <body>
      <trans-unit id="introductionHeader" datatype="html">
        <source>Hello <x id="INTERPOLATION" equiv-text="{{ &quot;a&quot; > b }}"/>!</source>
        <context-group purpose="location">
          <context context-type="linenumber">4</context>
        </context-group>
        <note priority="1" from="description">A note</note>
      </trans-unit>
      <trans-unit id="2" datatype="html">
        <source><x id="INTERPOLATION" equiv-text="{{n}}"/></source>
        <target state="new"><x id="INTERPOLATION" equiv-text="{{n}}"/></target>
      </trans-unit>
      <trans-unit id="3" datatype="html">
        <source>Old text</source>
        <target state="new">Alter Text</target>
      </trans-unit>
      <trans-unit id="4" datatype="html">
        <source>Done text</source>
        <target state='final'>Done text</target>
      </trans-unit>
    </body>
  </file>
</xliff>
"""
ANGULAR_EDITS = {
    "!</source>": "!</source>\n        "
    f'<target {MT}>HELLO <x id="INTERPOLATION" equiv-text="{{{{ &quot;a&quot; > b '
    '}}"/>!</target>',
    '<target state="new"><x': f"<target {MT}><x",
    '<target state="new">Alter Text': f"<target {MT}>OLD TEXT",
}
ANGULAR_2 = """<?xml version="1.0" encoding="UTF-8" ?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en-US" trgLang="de">
  <file original="ng.template" id="ngi18n">
    <unit id="1">
      <notes><note category="location">a.html:4</note></notes>
      <segment>
        <source>Hello <ph id="0" equiv="INTERPOLATION" disp="{{name}}"/> and <pc id="1" disp='S'>all</pc></source>
      </segment>
    </unit>
    <unit id="2" canResegment="no">
      <segment id="s1" state="initial" subState="x:y"><source>One</source><target>One</target></segment>
      <ignorable><source> ... and </source></ignorable>
      <segment id="s2" state="reviewed"><source>Two</source><target>Two</target></segment>
      <segment id="s3"><source>Three</source><target>Drei</target></segment>
      <segment id="s4" state="final"><source>Four</source><target></target></segment>
    </unit>
    <group id="g" translate="no"><unit id="3"><segment><source>Kept</source></segment></unit>
      <unit id="4" translate="yes"><segment><source>Five</source></segment></unit></group>
  </file>
</xliff>
"""
ANGULAR_2_EDITS = {
    "<segment>\n": f"<segment {MT_2}>\n",
    "all</pc></source>": 'all</pc></source>\n        <target>HELLO <ph id="0" '
    'equiv="INTERPOLATION" disp="{{name}}"/>'
    " AND <pc id=\"1\" disp='S'>ALL</pc></target>",
    'state="initial" subState="x:y"': MT_2,
    "<target>One</target>": "<target>ONE</target>",
    "<segment><source>Five</source>": f"<segment {MT_2}><source>Five</source><target>FIVE</target>",
}
XCODE = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
version="1.2" xsi:schemaLocation="urn:oasis:names:tc:xliff:document:1.2 xliff-core-1.2-strict.xsd">
  <file original="App/en.lproj/Localizable.strings" source-language="en" target-language="de" datatype="plaintext">
    <header><tool tool-id="com.apple.dt.xcode" tool-name="Xcode" tool-version="15.0" build-num="15A240d"/></header>
    <body>
      <trans-unit id="%@ items" xml:space="preserve">
        <source>%@ items</source>
        <note>Number of items</note>
      </trans-unit>
    </body>
  </file>
  <file original="App/InfoPlist.strings" source-language="en" target-language="de" datatype="plaintext">
    <body>
      <trans-unit id="CFBundleName" xml:space="preserve" approved="yes">
        <source>My app</source>
        <target/>
        <note>Bundle name</note>
      </trans-unit>
    </body>
  </file>
</xliff>
"""
XCODE_EDITS = {
    "%@ items</source>": f"%@ items</source>\n        <target {MT}>%@ ITEMS</target>",
    'approved="yes"': 'approved="no"',
    "<target/>": f"<target {MT}>MY APP</target>",
}
BUSINESS_CENTRAL = """\ufeff<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file datatype="xml" source-language="en-US" target-language="de-DE" original="App">
    <body><group id="body">
        <trans-unit id="Table 1" maxwidth="50" size-unit="char" translate="yes" xml:space="preserve">
          <source>Customer No.</source>
          <target state="needs-translation">Customer No.</target>
          <note from="Developer" annotates="general" priority="2"></note>
          <note from="Xliff Generator" annotates="general" priority="3">Table 1 - Field 2</note>
        </trans-unit>
        <trans-unit id="Table 2" size-unit="char" maxwidth="3" translate="yes" xml:space="preserve">
          <source>Name</source>
          <target state="needs-translation"/>
        </trans-unit>
        <trans-unit id="Table 3" translate="yes" xml:space="preserve">
          <source>City</source>
          <target state="needs-translation" state-qualifier="exact-match">Stadt</target>
        </trans-unit>
    </group></body>
  </file>
</xliff>
"""
BUSINESS_CENTRAL_EDITS = {
    '<target state="needs-translation">Customer No.': f"<target {MT}>CUSTOMER NO.",
    '<target state="needs-translation"/>': f"<target {MT}>NAME</target>",
}
OKAPI = """<?xml version="1.0" encoding="UTF-8"?>
<o:xliff version="1.2" xmlns:o="urn:oasis:names:tc:xliff:document:1.2" xmlns:okp="okapi-framework:xliff-extensions">
<o:file original="a.html" source-language="en" target-language="de" datatype="html" okp:inputEncoding="UTF-8">
<o:body>
<o:trans-unit id="tu1">
<o:source xml:lang="en">First one. Second one.</o:source>
<o:seg-source><o:mrk mid="0" mtype="seg">First one.</o:mrk> <o:mrk mid="1" mtype="seg">Second one.</o:mrk>\
</o:seg-source>
<o:target xml:lang="de"><o:mrk mid="0" mtype="seg">First one.</o:mrk> \
<o:mrk mid="1" mtype="seg">Zweitens.</o:mrk></o:target>
<o:alt-trans><o:source>Other</o:source><o:target/></o:alt-trans>
</o:trans-unit>
<o:trans-unit id="tu2">
<o:source xml:lang="en">A. B.</o:source>
<o:seg-source><o:mrk mid="0" mtype="seg">Aa.</o:mrk> <o:mrk mid="1" mtype="seg">Bb.</o:mrk></o:seg-source>
<o:target xml:lang="de"><o:mrk mid="1" mtype="seg">Be.</o:mrk></o:target>
</o:trans-unit>
</o:body></o:file></o:xliff>
"""
OKAPI_EDITS = {
    '<o:target xml:lang="de"><o:mrk mid="0" mtype="seg">First one.': '<o:target xml:lang="de" '
    f'{MT}><o:mrk mid="0" mtype="seg">FIRST ONE.',
    '<o:target xml:lang="de"><o:mrk mid="1" mtype="seg">Be.</o:mrk>': '<o:target xml:lang="de" '
    f'{MT}><o:mrk mid="0" mtype="seg">AA.</o:mrk> <o:mrk mid="1" mtype="seg">Be.</o:mrk>',
}
SAMPLES = {
    "Trados Studio": (TRADOS, TRADOS_EDITS),
    "memoQ": (MEMOQ, MEMOQ_EDITS),
    "Angular": (ANGULAR, ANGULAR_EDITS),
    "Angular, XLIFF 2": (ANGULAR_2, ANGULAR_2_EDITS),
    "Xcode": (XCODE, XCODE_EDITS),
    "Business Central": (BUSINESS_CENTRAL, BUSINESS_CENTRAL_EDITS),
    "Okapi": (OKAPI, OKAPI_EDITS),
}


def translate(text):
    return translate_document(text, "xliff", shout, SPLIT)


@pytest.mark.parametrize("tool", SAMPLES)
def test_xliff_changes_only_open_segments(tool):
    text, edits = SAMPLES[tool]
    text = text.removeprefix("\ufeff")
    expected = text
    for old, new in edits.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    translated = translate(text)
    assert translated == expected
    parse_xml(translated)


@pytest.mark.parametrize("tool", SAMPLES)
def test_xliff_is_translated_once(tool):
    translated = translate(SAMPLES[tool][0])
    document = parse_document(translated, "xliff")
    assert document.blocks == [] and document.render([]) == translated
    kept = "No segment is open, so the file stays as it is. Skipped: "
    assert document.summary.startswith(kept)


UNIT = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    '<trans-unit id="1"{}><source>A house</source>{}</trans-unit></body></file></xliff>'
)
UNIT_2 = (
    '<xliff version="2.1" srcLang="en" trgLang="de"><file id="f"><unit id="1"><segment{}>'
    "<source>A house</source>{}</segment></unit></file></xliff>"
)


TEXTS, DONE = ("A house", "Ein Haus", ""), ("translated", "signed-off", "final")
OTHERS = ("needs-adaptation", "needs-l10n", "x-mine")
REVIEW = ("adaptation", "l10n", "translation")
DONE_2 = ("translated", "reviewed", "final")
MEMOQ_STATUS = ' xmlns:mq="MQXliff" mq:status="{}"'
LOCKED = ' xmlns:m="http://www.memsource.com/mxlf/2.0" m:locked="{}"'


def target(text, state="", qualifier=""):
    attributes = f' state="{state}"' if state else ""
    if qualifier:
        attributes += f' state-qualifier="{qualifier}"'
    return f"<target{attributes}>{text}</target>"


@pytest.mark.parametrize(
    "unit, attributes, target, is_open",
    [
        *(
            (UNIT, "", text, True)
            for text in ("", "<target/>", target("\n  "), target("<!-- c -->"))
        ),
        *((UNIT, "", target(text), True) for text in ("<x id='1'/>", "A <g id='1'>house</g>")),
        (UNIT, "", target("Ein Haus"), False),
        *(
            (UNIT, "", target(text, state), True)
            for text in TEXTS
            for state in ("new", "needs-translation")
        ),
        *((UNIT, "", target("A house", state), True) for state in OTHERS),
        *((UNIT, "", target("Ein Haus", state), False) for state in OTHERS),
        *((UNIT, "", target("A house", f"needs-review-{kind}"), False) for kind in REVIEW),
        *((UNIT, "", target("", f"needs-review-{kind}"), True) for kind in REVIEW),
        *((UNIT, "", target(text, state), False) for state in DONE for text in ("A house", "")),
        *(
            (UNIT, "", target("Ein Haus", "new", name), False)
            for name in ("exact-match", "leveraged-tm", "mt-suggestion")
        ),
        *(
            (UNIT, "", target("Ein Haus", "new", f"rejected-{name}"), True)
            for name in ("grammar", "length")
        ),
        (UNIT, "", target("A house", "new", "leveraged-mt"), True),
        (UNIT, ' approved="yes"', target("A house"), False),
        (UNIT, ' approved="yes"', "<target/>", True),
        (UNIT, ' approved="no"', target("Ein Haus"), False),
        (UNIT, ' translate="no"', "", False),
        (UNIT, ' xmlns:i="http://www.w3.org/2005/11/its" i:translate="no"', "", False),
        *(
            (UNIT, MEMOQ_STATUS.format(name), target("A house"), True)
            for name in ("NotStarted", "")
        ),
        *(
            (UNIT, MEMOQ_STATUS.format(name), target("A house"), False)
            for name in ("ManuallyConfirmed", "Proofread")
        ),
        (UNIT, LOCKED.format("true"), "", False),
        (UNIT, LOCKED.format("false"), "", True),
        (UNIT_2, "", "", True),
        (UNIT_2, "", target("Ein Haus"), False),
        (UNIT_2, "", target("A house"), True),
        *((UNIT_2, ' state="initial"', target(text), True) for text in TEXTS),
        *((UNIT_2, f' state="{state}"', target("A house"), False) for state in DONE_2),
        *((UNIT_2, f' state="{state}"', "<target/>", False) for state in DONE_2),
    ],
)
def test_xliff_follows_states_and_attributes(unit, attributes, target, is_open):
    document = parse_document(unit.format(attributes, target), "xliff")
    assert bool(document.blocks) is is_open


def test_xliff_counts_what_it_translates_and_what_it_skips():
    document = parse_document(TRADOS, "xliff")
    document.render(document.blocks)
    whole = "0 messages that break your build; 0 stayed open."
    skipped = "Skipped: 2 not to be translated; 1 with a translation."
    assert document.summary == f"Translated 2 of 5 segments. {skipped} {whole}"
    document = parse_document(BUSINESS_CENTRAL, "xliff")
    document.render(document.blocks)
    expected = "Translated 2 of 3 segments. Skipped: 1 with a translation."
    assert document.summary == f"{expected} {whole} Longer than their maxwidth: 1."


NOTE = ">Doubtful machine translation: words are copied from the source (copy)</note>"
OF_1 = f'</target><note from="vanilla-transformer"{NOTE}<alt-trans/></trans-unit>'
OF_2 = f"<notes><note{NOTE}</notes><originalData/><segment "
NOTED = {
    "of 1.2": (UNIT.format("", "<alt-trans/>"), OF_1),
    "of 1.2, with a target": (UNIT.format("", '<target state="new"/><alt-trans/>'), OF_1),
    "of 2": (UNIT_2.format("", "").replace("<segment>", "<originalData/><segment>"), OF_2),
    "of 2, with notes": (
        UNIT_2.format("", "").replace("<segment>", "<notes><note>a</note></notes><segment>"),
        f"<notes><note>a</note><note{NOTE}</notes>",
    ),
    "of a unit of segments": (
        UNIT_2.format("", "").replace(
            "</unit>", "<segment><source>A dog</source></segment></unit>"
        ),
        f"<notes><note{NOTE}</notes><segment ",
    ),
}


@pytest.mark.parametrize(("text", "expected"), NOTED.values(), ids=NOTED)
def test_doubtful_translations_get_a_note(text, expected):
    document = parse_document(text, "xliff")
    blocks = [Block("Ein Haus"), Block("Ein Hund")][: len(document.blocks)]
    assert "Doubtful" not in document.render(blocks)
    document.doubts = {number: ["copy"] for number in range(len(blocks))}
    translated = document.render(blocks)
    assert expected in translated and translated.count("Doubtful") == 1
    document.doubts = {}
    assert translated.replace(f"<notes><note{NOTE}</notes>", "").replace(
        f"<note{NOTE}", ""
    ).replace(f'<note from="vanilla-transformer"{NOTE}', "") == document.render(blocks)


LIMITS = {"6": True, "7": False, "6.5": False, "": False, "9" * 4400: False}


@pytest.mark.parametrize("limit, longer", LIMITS.items())
def test_xliff_counts_units_that_are_longer_than_a_number(limit, longer):
    text = UNIT.format(f' size-unit="char" maxwidth="{limit}"', "")
    document = parse_document(text, "xliff")
    document.render(document.blocks)
    assert document.summary.endswith(" Longer than their maxwidth: 1.") is longer


@pytest.mark.parametrize(
    "source, expected",
    [
        *(
            (source, source)
            for source in ("10", "<x id='1'/>", "<bpt id='1'/>10<ept id='1'/> <!-- c -->")
        ),
        # codes without a partner
        ('A<ept id="1"/> b<bpt id="1"/>', 'A<ept id="1"/> B<bpt id="1"/>'),
        ('A <bx id="1"/>b<ex id="2"/>', 'A <bx id="1"/>B<ex id="2"/>'),
        ("A <bx/>b<ex/>", "A <bx/>B<ex/>"),
        ("A &c;<!-- c --> <![CDATA[<b> & house]]>", "A &c;<!-- c --> &lt;b&gt; &amp; HOUSE"),
        ("Où <!-- 日本 🙂 -->est 🙂", "OÙ <!-- 日本 🙂 -->EST 🙂"),
    ],
)
def test_xliff_writes_the_codes_of_the_source_in_its_target(source, expected):
    unit = UNIT.format("", "").replace("A house", source)
    text = '<!DOCTYPE xliff [<!ENTITY c "Co">]>' + unit
    target = f"</source><target {MT}>{expected}</target>"
    assert translate(text) == text.replace("</source>", target)


@pytest.mark.parametrize("source", ["", " ", "<!-- c -->"])
def test_xliff_leaves_segments_without_content(source):
    text = UNIT.format("", "").replace("A house", source)
    document = parse_document(text, "xliff")
    assert document.render(document.blocks) == text
    assert document.summary.endswith("Skipped: 1 without text.")


TAGS = [
    "<g id='a'>house</g>",
    "<g id='a' x=' state=\"y\"'>house</g>",
    "<x id = '1' />house",
]


@pytest.mark.parametrize("tag", TAGS)
def test_xliff_keeps_the_tags_of_codes_as_they_are(tag):
    text = UNIT.format("", "<target a=' state=\"new\"'/>").replace("house", tag)
    shouted = tag.replace("house", "HOUSE")
    expected = f"<target a=' state=\"new\"' {MT}>A {shouted}</target>"
    assert expected in translate(text)


@pytest.mark.parametrize(
    "first, last",
    [
        ('<bpt id="1">{</bpt>', '<ept id="1">}</ept>'),
        ('<bpt id="1" rid="3">{</bpt>', '<ept id="2" rid="3">}</ept>'),
        ('<bx id="1"/>', '<ex id="1"/>'),
        ('<sc id="1"/>', '<ec startRef="1"/>'),
        ('<sm id="1" type="comment"/>', '<em startRef="1"/>'),
        ('<x id="START_LINK_1"/>', '<x id="CLOSE_LINK"/>'),
        (
            '<x id="START_BLOCK_IF" equiv-text="@if (a) {"/>',
            '<x id="CLOSE_BLOCK_IF" equiv-text="}"/>',
        ),
        (
            '<x id="1" equiv-text="&lt;a href=&quot;b&quot;&gt;"/>',
            '<x id="2" equiv-text="&lt;/a&gt;"/>',
        ),
        ('<ph id="1">&lt;B></ph>', '<ph id="2">&lt;/b></ph>'),
        ('<ph id="1" disp="&lt;b&gt;"/>', '<ph id="2" disp="&lt;/b&gt;"/>'),
        ('<it id="1" pos="open">&lt;b></it>', '<it id="2" pos="close">&lt;/b></it>'),
    ],
)
def test_xliff_places_two_codes_as_it_places_one_element(first, last):
    def mark(text):
        """Replace the elements of a text by two codes."""
        return text.replace("<pc>", first).replace("</pc>", last)

    element = "<pc>the <x id='9'/> big</pc> <g id='8'><pc>key</pc></g>"
    source = f"Press {element} now <pc></pc>"
    units = [UNIT.format("", "").replace("A house", text) for text in (mark(source), source)]
    paired, single = (translate_document(unit, "xliff", reverse, SPLIT) for unit in units)
    assert paired == mark(single)
    assert single.index("<target") < single.rindex("<pc><x id='9'/> BIG THE</pc>")


def test_xliff_parts_words_at_tags_of_the_original():
    tag = "<x id='{}' equiv-text='&lt;{}&gt;'/>".format
    source = f"a {tag(0, 'li')}b{tag(1, '/li')}c"
    text = UNIT.format("", "").replace("A house", source)
    (block,) = parse_document(text, "xliff").blocks
    assert block.text == "a b c"


@pytest.mark.parametrize(
    "named, direction",
    [
        ("de", Direction("en", "de")),
        ("de-AT", Direction("en-US", "de_DE")),
        ("de", Direction("eng_Latn", "deu_Latn")),
        ("nb-NO", Direction(None, "no")),
        ("fr", Direction()),
        ("fr", Direction("en", None)),
    ],
)
def test_parse_document_takes_variants_of_a_language(named, direction):
    for unit in (UNIT, UNIT_2):
        text = unit.format("", "").replace('"de"', f'"{named}"')
        parse_document(text, "xliff", direction)


@pytest.mark.parametrize(
    "direction, message",
    [
        (
            Direction("en", "fr"),
            "target language of the file must be fr, as of the model, but it is de.",
        ),
        (
            Direction("en", "fra_Latn"),
            "target language of the file must be fra_Latn, as of the model, but it is de.",
        ),
        (
            Direction("it", "de"),
            "source language of the file must be it, as of the model, but it is en.",
        ),
    ],
)
@pytest.mark.parametrize("unit", [UNIT, UNIT_2])
def test_parse_document_refuses_other_languages(unit, direction, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_document(unit.format("", ""), "xliff", direction)


def test_parse_document_checks_the_language_of_each_file():
    before, after = XCODE.rsplit('"de"', 1)
    text = f'{before}"fr"{after}'
    with pytest.raises(ValueError, match="must be de, as of the model, but it is fr"):
        parse_document(text, "xliff", Direction("en", "de"))


LANGUAGES = [("de", "de"), ("deu_Latn", "de"), ("pt_BR", "pt-BR")]


@pytest.mark.parametrize(("unit", "name"), [(UNIT, "target-language"), (UNIT_2, "trgLang")])
@pytest.mark.parametrize(("target", "written"), LANGUAGES)
def test_xliff_gets_the_target_language_of_its_translation(unit, name, target, written):
    direction = Direction("en", target)
    named, unnamed = f' {name}="de"', unit.replace(f' {name}="de"', "")
    expected = translate_document(unit.format("", ""), "xliff", shout, SPLIT)
    expected = expected.replace(named, f' {name}="{written}"')
    text = unnamed.format("", "")
    translated = translate_document(text, "xliff", shout, SPLIT, direction=direction)
    assert translated == expected
    done = unnamed.format("", "<target>Ein Haus</target>")
    assert translate_document(done, "xliff", shout, SPLIT, direction=direction) == done
