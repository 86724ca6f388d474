"""JSON, ARB, .strings, .properties and Fluent: values are translated, and all other bytes stay."""

import html
import json
import re
import textwrap

import pytest

from tests.document_translation import (
    block_translator,
    copy,
    invent,
    shout,
    translate_document,
)
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

# Format → a text, and what of it changes.
TEXTS = {
    "json": (
        '{"key": "A \\"b\\"\\nc",  "n": {"x": ["One {name}", 2, null, true], "e": {}, "f": []},\n'
        '  "padded": " q ", "link": "@:common.off", "@meta": {"description": "no"}, '
        '"dots.in.key": "é"}\n',
        {
            '"A \\"b\\"\\nc"': '"A \\"B\\"\\nC"',
            "One {name}": "ONE {name}",
            '" q "': '" Q "',
            '"é"': '"É"',
        },
    ),
    "strings": (
        '/* "A" = "note"; */\n// another\n"key \\"q\\"" = "A \\"b\\" %1$@\\n%d \\U00e4";\n'
        'plain = "two {x}";  "c" = "d";\n"only a key";\n\n\n',
        {
            '"A \\"b\\" %1$@\\n%d \\U00e4"': '"A \\"B\\" %1$@\\n%d Ä"',
            '"two {x}"': '"TWO {x}"',
            '= "d"': '= "D"',
        },
    ),
    "properties": (
        "# note = a\n  ! another\nkey=one \\\n    two\n\n"
        "k.2 : it''s {0}\nk\\ 3 don't\nempty=\nbare\nspaced=\\ z\nu=\\u00e4 \\\\ x\\:\n\n",
        {
            "one \\\n    two": "ONE TWO",
            "it''s": "IT''S",
            "don't": "DON'T",
            "\\ z": "\\ Z",
            "\\u00e4 \\\\ x\\:": "\\u00c4 \\\\ X\\:",
        },
    ),
    "fluent": (
        "# Note\nkey = Hello { $name }, <b>you</b>!\nlong =\n    One\n    two.\n\n    Three { "
        "-brand-name }.\n"
        "    .title = Four\nn = { $n ->\n    [one] a dog\n"
        "   *[other] { NUMBER($n) } dogs\n }\n-brand-name = Firefox\n-term = word\n",
        {
            "Hello": "HELLO",
            ">you<": ">YOU<",
            "One\n    two.": "ONE TWO.",
            "Three": "THREE",
            "Four": "FOUR",
        }
        | {"a dog": "A DOG", "} dogs": "} DOGS", "= word": "= WORD"},
    ),
}


def translate(text, form, direction=NO_DIRECTION):
    return translate_document(text, form, shout, AbbreviationSplitter(), direction=direction)


def test_only_the_message_is_translated_in_messages_of_chrome():
    entry = '{"message": "Hello $USER$ and you", "description": "Shown", "placeholders": '
    text = f'{{"a": {entry}{{"user": {{"content": "$1", "example": "Cira"}}}}}}}}'
    expected = text.replace("Hello", "HELLO").replace("and you", "AND YOU")
    assert translate(text, "json") == expected
    assert (
        translate('{"a": {"message": "b"}, "c": "d"}', "json")
        == '{"a": {"message": "B"}, "c": "D"}'
    )


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("style", ["\n", "\r\n"])
def test_values_are_translated_and_all_else_stays(form, style):
    text, edits = TEXTS[form]
    expected = text
    for before, after in edits.items():
        assert expected.count(before) == 1, before
        expected = expected.replace(before, after)
    mark = "\ufeff" if style == "\r\n" else ""
    assert translate(mark + text.replace("\n", style), form) == mark + expected.replace("\n", style)
    document = parse_document(text, form)
    assert document.render(document.blocks) == text


def test_arb_keeps_what_describes_messages_and_names_the_target_language():
    text = '{\n  "@@locale": "en_US",\n  "a": "{n, plural, =1{one dog} other{{n} dogs}}",\n'
    text += '  "@a": {"description": "b"}\n}'
    translated = translate(text, "json", Direction("en", "deu_Latn"))
    expected = text.replace("one dog", "ONE DOG").replace("en_US", "de")
    expected = expected.replace("other{{n} dogs}", "one{{n} DOGS} other{{n} DOGS}")
    assert translated == expected
    assert '"@@locale": "en_US"' in translate(text, "json")


def test_letters_are_escaped_where_the_source_escapes_them():
    assert translate('{"a": "\\u00e4"}', "json") == '{"a": "\\u00c4"}'
    model = lambda texts: [("Ä", None) for _ in texts]  # noqa: E731
    for form, text, expected in (
        ("json", '{"a": "b"}', '{"a": "Ä"}'),
        ("strings", '"a" = "b";', '"a" = "Ä";'),
        ("properties", "a=b", "a=\\u00c4"),
        ("properties", "ä=b", "ä=Ä"),
    ):
        assert translate_document(text, form, model, AbbreviationSplitter()) == expected


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", '{"a": "See %(name)s now", "b": "it"}'),
        ("json", '{"a": "See {n, plural, one {# {name} dog} other {# {name} dogs}} now"}'),
        ("strings", '"a" = "See %1$@ now";\n'),
        ("properties", "a=it''s {0} now\n"),
        ("fluent", "a = See { $name } now\n"),
        ("resx", '<root><data name="a"><value>See {0} now</value></data></root>'),
        ("xml", '<resources><string name="a">See %1$s <b>now</b></string></resources>'),
        ("po", 'msgid "See %s"\nmsgstr ""\n'),
        ("po", '#, c-format\nmsgid "50% off"\nmsgstr ""\n'),
        ("ts", '<TS language="de"><context><name>a</name><message><source>%n it</source>'
         '<translation type="unfinished"></translation></message></context></TS>'),
        ("xliff", '<xliff version="1.2"><file target-language="de"><body><trans-unit id="1">'
         "<source>See %s now</source></trans-unit></body></file></xliff>"),
    ],
)  # fmt: skip
def test_messages_that_would_break_a_build_stay_open(form, text):
    document = parse_document(text, form, Direction(None, "de"))
    blocks = block_translator(invent, AbbreviationSplitter())(document.blocks)
    assert document.render(blocks) == text
    count = len(document.blocks)
    assert document.summary.endswith(f"0 messages that break your build; {count} stayed open.")
    assert document.summary.startswith("Translated 0 of ")


def test_a_percentage_is_translated_in_messages():
    text = '{"a": "50% of {name}", "b": "10% done"}'
    german = {"50% of {name}": "50 % von {name}", "10% done": "10 % fertig"}
    model = lambda texts: [(german[sentence], None) for sentence in texts]  # noqa: E731
    expected = '{"a": "50 % von {name}", "b": "10 % fertig"}'
    assert translate_document(text, "json", model, AbbreviationSplitter()) == expected


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"a": "half \\ud83d", "b": "%s", "c": 1}', "json"),
        ("a=half \\ud83d x\nb=%s\n", "properties"),
        ('"a" = "half \\Ud83d x";\n"b" = "%s";\n', "strings"),
        ('{"a": ' + "9" * 4400 + ', "b": "%s"}', "json"),
        ('{"a": "{n, plural, =' + "9" * 4400 + ' {1} other {%s}}"}', "json"),
    ],
)
def test_half_a_character_or_a_long_number_stays(text, form):
    assert translate(text % "dog", form) == text % "DOG"


@pytest.mark.parametrize(
    "text",
    [
        "<style>\np, li { color: red; }\n</style>%s",
        "%s<script>if (a < b) run();</script>",
        '<!DOCTYPE HTML PUBLIC "-//W3C" "x">\n%s',
        "%s <!-- no.\nnever --> %s",
        '%s <span style="\n color:red">%s</span>',
        "<table border=0>\n%s</table>",
        "%s <code>git pull</code> %s",
    ],
)
def test_hidden_markup_of_messages_stays(text):
    source, expected = (json.dumps([text.replace("%s", word)]) for word in ("dog", "DOG"))
    assert translate(source, "json") == expected


# Documents that hold markup as escaped text
ESCAPED = {
    "resx": '<root><data name="a" xml:space="preserve"><value>{}</value></data></root>',
    "xml": '<doc xml:space="preserve"><p>{}</p></doc>',
    "xliff": '<xliff version="1.2"><file source-language="en" target-language="de" original="a" '
    'datatype="x"><body><trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>',
}


SENTENCES = [
    "Each mesh of less than this number is merged while the map is drawn.",
    *("It is faster.", "Open the file", "one", "two"),
]


def lengthen(text):
    return re.sub(r"\w+", r"\g<0>X", text).upper()


def write_wrapped(change):
    """Return a wrapped item of a list and four other lines."""
    first, second, *others = map(change, SENTENCES)
    width = max(map(len, textwrap.wrap(f"{SENTENCES[0]} {SENTENCES[1]}", 36)))
    item = "\n   ".join(textwrap.wrap(f"{first} {second}", width))
    return "1. {}\n\n{}\n* {}\n- {}".format(item, *others)


def escape_lines(text):
    return text.replace("\n", "\\n")


@pytest.mark.parametrize(
    ("form", "frame", "write"),
    [
        ("xliff", ESCAPED["xliff"], escape_lines),
        ("resx", ESCAPED["resx"], str),
        ("xliff", ESCAPED["xliff"].replace("<source", "<source xml:space='preserve'"), str),
        ("xml", '<resources><string name="a">{}</string></resources>', escape_lines),
        ("xml", '<resources><string name="a">{} &lt;b/&gt;</string></resources>', escape_lines),
        ("json", '{"a": "{}"}', escape_lines),
        ("strings", '"a" = "{}";', escape_lines),
        ("properties", "a={}\n", escape_lines),
        ("po", 'msgid "{}"\nmsgstr ""\n', escape_lines),
        ("ts", '<TS language="de"><context><name>a</name><message><source>{}</source>'
         '<translation type="unfinished"></translation></message></context></TS>', str),
    ],
)  # fmt: skip
def test_wrapped_lines_of_a_message_are_one_sentence(form, frame, write):
    read = []

    def translate(texts):
        read.extend(texts)
        return [(lengthen(text), None) for text in texts]

    source = frame.replace("{}", write(write_wrapped(str)))
    translated = translate_document(source, form, translate, AbbreviationSplitter())
    assert read[: len(SENTENCES)] == SENTENCES
    assert write(write_wrapped(lengthen)) in translated.replace('"\n"', "")
    copied = translate_document(source, form, copy, AbbreviationSplitter()).replace('"\n"', "")
    assert copied.count(write(write_wrapped(str))) == 1 + (form in ("po", "xliff", "ts"))


@pytest.mark.parametrize("form", ESCAPED)
@pytest.mark.parametrize(
    "text",
    [
        "<style>\np, li { color: red; }\n</style>%s",
        "%s<script>if (a < b. C) run();</script>",
        '<!DOCTYPE HTML PUBLIC "-//W3C" "x">%s',
        "%s <!-- no.\nnever --> %s",
        "%s <!-- no. Never --> %s",
    ],
)
def test_hidden_markup_of_escaped_text_stays(text, form):
    source, expected = (
        html.escape(text.replace("%s", word), quote=False) for word in ("dog", "DOG")
    )
    assert expected in translate(ESCAPED[form].replace("{}", source), form)


def test_properties_write_apostrophes_as_the_file_does():
    single = "a=Can't open {0}\nb={0} is open\n"
    for text in (single, single.replace("'", "''")):
        assert translate(text, "properties").casefold() == text.casefold()
    model = lambda texts: [(text.replace("open", "l'o"), None) for text in texts]  # noqa: E731
    translated = translate_document(single, "properties", model, AbbreviationSplitter())
    assert translated.endswith("{0} is l'o\n")


def test_values_write_signs_as_the_source_does():
    for value in ("a \\/ b", "a \\u003cb", "it\\u0027s", "\\u2014 a \\\\ b"):
        assert translate(f'["{value}"]', "json").casefold() == f'["{value}"]'.casefold()
    assert translate('["a \\/ b/c"]', "json") == '["A / B/C"]'


def test_braces_of_a_model_are_text_in_fluent():
    model = lambda texts: [("a } b", None) for _ in texts]  # noqa: E731
    assert (
        translate_document("a = b\n", "fluent", model, AbbreviationSplitter()) == 'a = a {"}"} b\n'
    )


def test_java_doubles_the_apostrophes_of_a_format_and_no_others():
    model = lambda texts: [(text.replace("of the", "de l'"), None) for text in texts]  # noqa: E731
    text = "a=name of the {0}\nb=name of the x\n"
    expected = "a=name de l'' {0}\nb=name de l' x\n"
    assert translate_document(text, "properties", model, AbbreviationSplitter()) == expected


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ('{"a": "b",\n "c" 1}', "json", "line 2 column 6"),
        ("[" * 100_000, "json", "must be JSON"),
        ('"a" = "b";\n"c" = "d"\n', "strings", 'line 2 is not: "c" = "d"'),
        ('"a" = "b";\nhello world', "strings", "line 2 is not: hello world"),
        ('"a" = "b";\n/* open', "strings", "line 2 is not: /* open"),
        ("a=b\nc=\\u12zz\n", "properties", "line 2 is not: c=\\u12zz"),
        ("a = b\nhello world\n", "fluent", "line 2 is not: hello world"),
    ],
)
def test_a_mistake_is_named_with_its_line(text, form, words):
    with pytest.raises(UserError) as caught:
        translate(text, form)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_json_stays_json():
    text = json.dumps({"a": 'b "c" \\ / \n\t', "d": ["e"]})
    assert json.loads(translate(text, "json")) == {"a": 'B "C" \\ / \n\t', "d": ["E"]}
