"""Plurals get the categories of the target language: missing ones are made from `other`."""

import pytest

from tests.document_translation import NO_MESSAGES, by_texts, copy, invent, shout
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions.documents import translate_document
from vanilla_transformer.text.languages import Direction


def translate(text, form, language="pl", model=shout, existing=None):
    direction = Direction("en", language)
    translator = by_texts(model)
    return translate_document(text, form, translator, split_simply, direction, existing)


I18NEXT = (
    '{\n  "dog_one": "a dog",\n  "dog_other": "{{count}} dogs",\n  "in": {"a_b_other":"it","a_b_zero":""},\n'
    '  "place_ordinal_one": "first",\n  "place_ordinal_other": "last",\n  "another_other": "one",\n'
    '  "@list_other": ["no"], "list_one": 1, "g_other": {"x": "y"}, "g_one": {}\n}\n'
)
ICU = '{"a": "It\'s {n, plural, one{# dog} other{don\'t {x}}}"}'
ANDROID = (
    '<resources>\n  <plurals name="a">\n    <item quantity="one">%d dog</item> <!-- a -->\n'
    "    <item quantity='other'><b>%d</b> dogs</item>\n  </plurals>\n"
    '  <plurals name="b"><item quantity="other"><![CDATA[<b>two</b>]]></item></plurals>\n'
    '  <plurals name="c" translatable="false"><item quantity="other">no</item></plurals>\n'
    '  <plurals name="d"><item quantity="one">1</item></plurals>\n</resources>\n'
)
VARIABLE = "<key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
STRINGSDICT = (
    f'<plist version="1.0">\n<dict>\n\t<key>a</key>\n\t<dict>\n\t\t<key>b</key>\n\t\t<dict>\n\t\t\t{VARIABLE}\n'
    "\t\t\t<key>zero</key>\n\t\t\t<string>none</string>\n\t\t\t<key>other</key>\n\t\t\t<string>other &amp; %d</string>\n"
    "\t\t</dict>\n\t</dict>\n\t<key>c</key><dict><key>NSStringDeviceSpecificRuleType</key>"
    "<dict><key>mac</key><string>click</string><key>other</key><string>tap</string></dict></dict>\n</dict>\n</plist>\n"
)
# Format, source, and its translation by the language, with `¤` around new forms.
CASES = [
    ("json", I18NEXT, "de", (
        '{\n  "dog_one": "A DOG",\n  "dog_other": "{{count}} DOGS",\n  "in": {¤"a_b_one":"IT",¤"a_b_other":"IT","a_b_zero":""},\n'
        '  "place_ordinal_one": "FIRST",\n  "place_ordinal_other": "LAST",\n  "another_other": "ONE",\n'
        '  "@list_other": ["no"], "list_one": 1, "g_other": {"x": "Y"}, "g_one": {}\n}\n'
    )),
    ("json", I18NEXT, "pl", (
        '{\n  "dog_one": "A DOG",¤\n  "dog_few": "{{count}} DOGS",\n  "dog_many": "{{count}} DOGS",¤\n  "dog_other": "{{count}} DOGS",\n'
        '  "in": {¤"a_b_one":"IT","a_b_few":"IT","a_b_many":"IT",¤"a_b_other":"IT","a_b_zero":""},\n'
        '  "place_ordinal_one": "FIRST",\n  "place_ordinal_other": "LAST",\n  "another_other": "ONE",\n'
        '  "@list_other": ["no"], "list_one": 1, "g_other": {"x": "Y"}, "g_one": {}\n}\n'
    )),
    ("json", '{"a_ordinal_one": "x st", "a_ordinal_other": "x th"}', "sv", '{"a_ordinal_one": "X ST", "a_ordinal_other": "X TH"}'),
    ("json", '{"a_ordinal_two": "x", "a_ordinal_other": "y"}', "it", '{"a_ordinal_two": "X", ¤"a_ordinal_many": "Y", ¤"a_ordinal_other": "Y"}'),
    ("json", ICU, "ja", '{"a": "IT\'S {n, plural, one{# DOG} other{DON\'T {x}}}"}'),
    ("json", ICU, "ru", '{"a": "IT\'S {n, plural, one{# DOG¤} few{DON\'T {x}} many{DON\'T {x}¤} other{DON\'T {x}}}"}'),
    ("xml", ANDROID, "de", (
        '<resources>\n  <plurals name="a">\n    <item quantity="one">%d DOG</item> <!-- a -->\n'
        "    <item quantity='other'><b>%d</b> DOGS</item>\n  </plurals>\n"
        '  <plurals name="b">¤<item quantity="one"><![CDATA[<b>TWO</b>]]></item>¤<item quantity="other"><![CDATA[<b>TWO</b>]]></item></plurals>\n'
        '  <plurals name="c" translatable="false"><item quantity="other">no</item></plurals>\n'
        '  <plurals name="d"><item quantity="one">1</item></plurals>\n</resources>\n'
    )),
    ("xml", ANDROID.partition('  <plurals name="b"')[0] + "</resources>", "pl", (
        '<resources>\n  <plurals name="a">\n    <item quantity="one">%d DOG</item> <!-- a -->\n'
        "    ¤<item quantity='few'><b>%d</b> DOGS</item>\n    <item quantity='many'><b>%d</b> DOGS</item>\n    ¤<item quantity='other'><b>%d</b> DOGS</item>\n  </plurals>\n"
        "</resources>"
    )),
    ("stringsdict", STRINGSDICT, "sl", (
        f'<plist version="1.0">\n<dict>\n\t<key>a</key>\n\t<dict>\n\t\t<key>b</key>\n\t\t<dict>\n\t\t\t{VARIABLE}\n'
        "\t\t\t<key>zero</key>\n\t\t\t<string>NONE</string>\n\t\t\t¤<key>one</key>\n\t\t\t<string>OTHER &amp; %d</string>\n"
        "\t\t\t<key>two</key>\n\t\t\t<string>OTHER &amp; %d</string>\n\t\t\t<key>few</key>\n\t\t\t<string>OTHER &amp; %d</string>\n"
        "\t\t\t¤<key>other</key>\n\t\t\t<string>OTHER &amp; %d</string>\n"
        "\t\t</dict>\n\t</dict>\n\t<key>c</key><dict><key>NSStringDeviceSpecificRuleType</key>"
        "<dict><key>mac</key><string>CLICK</string><key>other</key><string>TAP</string></dict></dict>\n</dict>\n</plist>\n"
    )),
]  # fmt: skip


@pytest.mark.parametrize(("form", "source", "language", "marked"), CASES)
def test_missing_categories_are_made_from_other(form, source, language, marked):
    pieces = marked.split("¤")
    expected = "".join(pieces)
    assert translate(source, form, language) == expected
    assert translate(source, form, language, copy) == source
    assert "".join(pieces[::2]) == translate(source, form, None) or "{n, plural" in source
    filled = translate(source, form, language, existing=NO_MESSAGES[form])
    assert filled.strip().endswith(expected.strip()[-60:])
    assert translate(source, form, language, existing=filled) == filled


def test_a_message_that_stays_open_gets_no_categories():
    source = '{"dog_one": "a dog", "dog_other": "dogs {n}"}'
    assert translate(source, "json", model=invent) == source


def test_an_existing_translation_keeps_its_categories():
    source = '{"dog_one": "a dog", "dog_other": "dogs"}'
    filled = translate(source, "json", existing='{"dog_one": "pies", "dog_few": "psy"}')
    assert (
        filled == '{"dog_one": "pies", "dog_many": "DOGS", "dog_other": "DOGS", "dog_few": "psy"}'
    )
