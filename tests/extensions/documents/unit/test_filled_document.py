"""An existing translation gets the messages that it lacks, and all else of it stays."""

import pytest

from tests.document_translation import COLUMNS, NO_MESSAGES, by_texts, invent, shout
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import BlockTranslator, parse_document


def fill(source, existing, form, model=shout):
    """Return the filled translation and the summary."""
    document = parse_document(source, form, existing=existing, columns=COLUMNS.get(form, ""))
    blocks = BlockTranslator(by_texts(model), split_simply)(document.blocks)
    return document.render(blocks), document.summary


NESTED = '{\n  "a": "one",\n  "b": {\n    "x": "two",\n    "y": ["three", 4]\n  },\n  "n": 3\n}\n'
ARB = '{\n  "@@locale": "en",\n  "a": "one",\n  "@a": {"description": "no"},\n  "b": "two"\n}'
STRINGS = '/* a */\n"a" = "one";\n\n// b\n"b" = "two"; // end\n"c" = "three";\n'
JAVA = "# The file\n\n# a\na=one\nb = two\n\nc=it's {0}\n"
FLUENT = "# Note\nkey = One\n    .title = Two\n-brand-x = Fire\nlast =\n    .a = three\n"
RESX = '<root>\n  <resheader name="x"/>\n  <data name="a">\n    <value>One</value>\n  </data>\n'
RESX += '  <data name="f" type="T"><value>f</value></data>\n  <data name="b">\n'
RESX += "    <value>Two</value>\n    <comment>Note</comment>\n  </data>\n</root>\n"
ANDROID = '<resources xmlns:t="T">\n    <!-- a -->\n    <string name="a">One</string>\n'
ANDROID += '    <string name="f" translatable="false">No</string>\n'
ANDROID += '    <plurals name="a"><item quantity="other">two</item></plurals>\n'
ANDROID += '    <string name="h" t:x="y"><![CDATA[<b>three</b>]]></string>\n</resources>\n'
TABLE = 'key,note,text\na,x,One\nb,,"Two\n lines"\nc,y,\nd,,four\n'
DICT = '<plist version="1.0">\n<dict>\n\t<!-- a -->\n\t<key>a</key>\n\t<dict>\n\t\t<key>k</key>\n'
DICT += "\t\t<string>One</string>\n\t</dict>\n\t<key>b</key><dict><key>k</key><string>two</string>"
DICT += "</dict>\n</dict>\n</plist>\n"
# Format, source, and a translation, in which ¤this¤ is written, or ¤that⇒this¤ instead of that.
CASES = [
    ("json", NESTED, '{¤\n  "a": "ONE",¤"b": {"x": "zwei"¤,\n    "y": ["THREE", 4]¤}, "n": 7}'),
    ("json", NESTED, '{\n    "n": ¤""⇒3¤,\r\n\t"b": {"x": "zwei",  "y": []},\n "a": "eins"}'),
    ("json", NESTED, '{"a": "eins"¤,\n  "b": {\n    "x": "TWO",\n    "y": ["THREE", 4]\n  },\n  "n": 3¤\n}'),
    ("json", NESTED, '{"a": "eins", "b": ¤{ }⇒{\n    "x": "TWO",\n    "y": ["THREE", 4]\n  }¤, "n": 0}'),
    ("json", ARB, '{\n  "@@locale": "de"¤,\n  "a": "ONE"¤¤,\n  "b": "TWO"¤\n}'),
    ("json", ARB, '\ufeff{"a": "eins", "@a": {}¤,\n  "b": "TWO"¤}'),
    ("strings", STRINGS, '¤/* a */\r\n"a" = "ONE";\r\n¤"b" = "zwei"; // fertig¤\r\n"c" = "THREE";¤\r\n"c_few" = "";'),
    ("properties", JAVA, "# Kopf¤\n\n# a\na=ONE¤\n\n¤b:⇒b = TWO¤\nc=es ist {0}"),
    ("properties", JAVA, "a=eins¤\nb = TWO¤\n¤c⇒c=IT'S {0}¤\n"),
    ("fluent", FLUENT, "key = Eins¤\n    .title = TWO¤\n    .old = Alt¤\n-brand-x = Fire¤\nlast =\n    .a = drei\n"),
    ("fluent", FLUENT, "¤# Note\nkey = ONE\n    .title = TWO\n¤¤-brand-x = Fire\n¤last =\n    .a = drei\n"),
    ("resx", RESX, '<root>¤\r\n  <data name="a">\r\n    <value>ONE</value>\r\n  </data>¤\r\n'
     '\t<data name="b">¤<value />⇒<value>TWO</value>¤<comment>mein</comment></data>\n</root>'),
    ("xml", ANDROID, '<resources¤ xmlns:t="T"¤>\n\t¤<string name="a"/>⇒<string name="a">ONE</string>¤\n    '
     '<plurals name="a"><item quantity="other">zwei</item></plurals>¤\n    '
     '<string name="h" t:x="y"><![CDATA[<b>THREE</b>]]></string>¤\n  <string name="old"/></resources>'),
    ("csv", TABLE, 'key,note,text¤\na,x,ONE¤\n"b",,¤""⇒"TWO\n LINES"¤,\nc,y,\n\n,,none¤\nd,,FOUR¤\nold,,alt\n'),
    ("csv", TABLE, "key,note,text\r\na,x,¤ONE¤¤\r\nb,,\"TWO\r\n LINES\"\r\nc,y,\r\nd,,FOUR¤"),
    ("tsv", TABLE.replace(",", "\t"), "key\tnote\ttext¤\na\tx\tONE¤\nb\t\tzwei\nc\t\t\n\nd\t\t¤FOUR¤"),
    ("stringsdict", DICT, '<plist version="1.0"><dict>¤\n\t<!-- a -->\n\t<key>a</key>\n\t<dict>\n\t\t<key>k</key>\n\t\t'
     "<string>ONE</string>\n\t</dict>¤\n<key>b</key>¤<dict/>⇒<dict><key>k</key><string>TWO</string></dict>¤<key>c</key><dict/>"
     "</dict></plist>"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "source", "marked"), CASES)
def test_missing_messages_are_written_where_the_source_has_them(form, source, marked):
    pieces = marked.split("¤")
    existing = expected = pieces[0]
    for edit, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        old, _, new = edit.rpartition("⇒")
        existing += old + rest
        expected += new + rest
    filled, summary = fill(source, existing, form)
    assert filled == expected
    assert summary.startswith("Translated ") and summary.count("0 stayed open.") == 1
    again, summary = fill(source, filled, form)
    assert again == filled
    assert summary.startswith("No message is missing, so the file stays as it is.")


@pytest.mark.parametrize("form", NO_MESSAGES)
def test_an_empty_translation_becomes_that_of_the_whole_source(form):
    source = {row[0]: row[1] for row in CASES}[form]
    document = parse_document(source, form, columns=COLUMNS.get(form, ""))
    blocks = BlockTranslator(by_texts(shout), split_simply)(document.blocks)
    whole = document.render(blocks)
    filled, _ = fill(source, NO_MESSAGES[form], form)
    assert filled.rstrip("\n") == whole.rstrip("\n")


def test_only_missing_messages_are_translated():
    document = parse_document(NESTED, "json", existing='{"a": "eins", "b": {"x": ""}, "n": 3}')
    assert [block.text for block in document.blocks] == ["two", "three"]


def test_the_summary_names_what_the_source_does_not_have():
    existing = '{"n_few": "", "e": {"f": ""}, "b": {"x": "z", "y": []}, "c": 1, "d": 2, "g": "",'
    source = '{"b": {"x": "two"}, "n_other": "three"}'
    _, summary = fill(source, existing + ' "n_other": "drei"}', "json")
    expected = "No message is missing, so the file stays as it is. Kept, but not in the source: 5"
    assert summary == f"{expected} (e.f, b.y, c, …)."


def test_a_message_that_would_break_a_build_stays_open():
    filled, summary = fill('{"a": "See %s now", "b": "it"}', '{"b": "es"}', "json", invent)
    assert filled == '{"a": "See %s now","b": "es"}'
    expected = (
        "Translated 0 of 1 missing messages. 0 messages that break your build; 1 stayed open."
    )
    assert summary == expected


def test_letters_are_escaped_as_the_existing_translation_escapes_them():
    def model(texts):
        return [("Ä", None)] * len(texts)

    for existing, expected in (("b=x", "a=\\u00c4\nb=x"), ("b=ä", "a=Ä\nb=ä")):
        assert fill("a=c\nb=d\n", existing, "properties", model)[0] == expected
    assert fill('{"a": "\\u00e4"}', '{"b": "ö"}', "json", model)[0] == '{"a": "Ä","b": "ö"}'


@pytest.mark.parametrize(
    ("form", "source", "existing", "words"),
    [
        ("po", "", "", "fluent, resx, stringsdict, csv, tsv, got po. Leave it out"),
        ("markdown", "", "", "got markdown. Leave it out"),
        ("json", "{}", "{", "The existing translation cannot be filled. The text must be JSON"),
        ("json", "{}", "[]", "must be in a JSON object"),
        ("json", '{"a": {"b": "c"}}', '{"a": "b"}', "a must be a group where the source has one"),
        ("xml", "<a>b</a>", "<resources/>", "Its root must be <resources>"),
    ],
)
def test_what_cannot_be_filled_is_refused(form, source, existing, words):
    with pytest.raises(UserError) as caught:
        parse_document(source, form, existing=existing)
    assert words in str(caught.value) and "\n" not in str(caught.value)
