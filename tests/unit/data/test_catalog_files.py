"""Catalogs as corpora: translated messages of PO and TS are pairs, and messages of two files with
the same key.
"""

import gzip
import html
import json

import pytest

from vanilla_transformer.data.readers import CorpusSpec, content_key, open_corpus, read_pairs
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

msgid "hen"
msgid_plural "Hen"
msgstr[0] "Huhn"
msgstr[1] ""

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
<message numerus="yes"><source>Hen</source><translation><numerusform>Huhn</numerusform><numerusform/>\
</translation></message>
<message numerus="yes"><source>%d birds</source><translation><numerusform>%d Vogel</numerusform>\
<numerusform>%d Vögel</numerusform></translation></message>
<message><source>Gone</source><translation type="vanished">Weg</translation></message></context></TS>"""
PAIRS = [("Exit the dog", "Beenden Hund"), ("Cat", ""), ("Cow", ""), ("Hen", "")]
PAIRS.append(("%d birds", "%d Vögel"))
# Of PO, which has the singular, too
SINGULARS = [("hen", "Huhn"), ("one bird", "ein Vogel")]
PO_PAIRS = [*PAIRS[:3], SINGULARS[0], PAIRS[3], SINGULARS[1], PAIRS[4]]


def read(path, source="en", target="de"):
    spec = CorpusSpec(file=str(path), source_language=source, target_language=target)
    with open_corpus(spec) as corpus:
        return [tuple(pair) for pair in read_pairs(corpus)]


@pytest.mark.parametrize(("name", "text"), [("a.po", PO), ("a.ts", TS), ("b.po.gz", PO)])
def test_untranslated_messages_have_blank_targets(tmp_path, name, text):
    path, content = tmp_path / name, text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(path) == (PAIRS if name == "a.ts" else PO_PAIRS)


MENTION = 'done <?xml version="1.0"?> now'
WITH_MENTION = {
    "a.po": 'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "dog"\nmsgstr "Hund"\n\n'
    f"msgid {json.dumps(MENTION)}\nmsgstr {json.dumps(MENTION.upper())}\n",
    "a.ts": '<?xml version="1.0"?>\n<TS version="2.1" language="de"><context><name>A</name>\n'
    "<message><source>dog</source><translation>Hund</translation></message>\n"
    f"<message><source>{html.escape(MENTION)}</source>\n"
    f"<translation>{html.escape(MENTION.upper())}</translation></message></context></TS>\n",
    "a.xlf": '<?xml version="1.0"?>\n<xliff version="1.2"><file source-language="en" '
    'target-language="de">\n<trans-unit id="1"><source>dog</source><target>Hund</target>'
    f'</trans-unit>\n<trans-unit id="2"><source>{html.escape(MENTION)}</source>\n'
    f"<target>{html.escape(MENTION.upper())}</target></trans-unit></file></xliff>\n",
}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"], ids=repr)
@pytest.mark.parametrize("name", WITH_MENTION)
def test_message_that_mentions_a_declaration_is_read_as_it_is(tmp_path, name, end):
    (tmp_path / name).write_bytes(WITH_MENTION[name].replace("\n", end).encode())
    assert read(tmp_path / name) == [("dog", "Hund"), (MENTION, MENTION.upper())]


@pytest.mark.parametrize(
    ("targets", "pairs"),
    [
        (["pies", "psy", "psów"], [("dog", "pies"), ("", "psy"), ("dogs", "psów")]),
        (["Hund", "Hunde"], [("dog", "Hund"), ("dogs", "Hunde")]),
        (["犬"], [("dogs", "犬")]),
        (["Hund", ""], [("dog", "Hund"), ("dogs", "")]),
    ],
)
def test_parse_catalog_pairs_forms_of_plurals(tmp_path, targets, pairs):
    forms = "".join(f'msgstr[{number}] "{text}"\n' for number, text in enumerate(targets))
    whole = 'msgid "cat"\nmsgstr "Katze"\n\n'
    text = f'{whole}msgid "dog"\nmsgid_plural "dogs"\n{forms}'
    (tmp_path / "a.po").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.po") == [("cat", "Katze"), *pairs]


@pytest.mark.parametrize(("name", "text"), [("a.po", PO), ("a.ts", TS)])
def test_a_file_of_the_other_direction_is_reversed(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    pairs = PAIRS if name == "a.ts" else PO_PAIRS
    expected = [(target, source) for source, target in pairs]
    assert read(tmp_path / name, "de", "en") == expected


OTHER_LANGUAGE = "must be PO with pairs in the languages en and de, but it has fr"
OPEN_STRING = "a.po: The text must be in the format po: end-of-line within string on line 28"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PO.replace("de\\n", "fr\\n"), OTHER_LANGUAGE),
        ('msgid "a"\nmsgstr ""\n', "but it has no translated units"),
        (PO + 'msgid "a\n', OPEN_STRING),
    ],
)
def test_a_mistake_is_named_with_its_file(tmp_path, text, words):
    (tmp_path / "a.po").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read(tmp_path / "a.po")
    assert words in str(caught.value) and "\n" not in str(caught.value)


DATA = '<data name="{}" {}><value>{}</value><comment>no</comment></data>'
TYPED = 'type="t"'
# Format → a file of each language, with text that is no message.
MESSAGES = {
    "json": (
        '{"a": {"b": "E&xit\\nthe dog", "@b": "no"}, "c": ["Cat"], "n": 2, "e": "",'
        ' "p": "{n, plural, other{# cows}}"}',
        '{"a": {"b": "Be&enden Hund"}, "c": ["Katze"], "n": 2, "d": "Kuh", "p": "{n, plural, '
        'other{# Kühe}}"}',
    ),
    "arb": (
        '{"@@locale": "en", "a": "Exit the dog", "@a": {"description": "no"}, "c": "Cat",'
        ' "p": "{n, plural, other{# cows}}"}',
        '{"@@locale": "de", "a": "Beenden Hund", "c": "Katze", "d": "Kuh", "p": "{n, plural, '
        'other{# Kühe}}"}',
    ),
    "properties": (
        "# a = no\na = E&xit \\\n   the dog\nc: Cat\np={n, plural, other{# cows}}\n",
        "a=Beenden Hund\r\nc=Katze\nd=Kuh\np={n, plural, other{# K\\u00fche}}",
    ),
    "strings": (
        '/* "a" = "no"; */ "a" = "Exit\nthe dog"; // no\n"c" = "Cat"; p = "{n, plural, other{# '
        'cows}}";\n',
        '"a" = "Beenden Hund";\nc = "Katze";\n"d"\n= "Kuh";\n"p" = "{n, plural, other{# '
        'K\\U00fche}}";',
    ),
    "resx": (
        f"<root>{DATA.format('a', '', '&amp;Exit the dog')}{DATA.format('c', '', 'Cat')}{DATA.format('>>x', '', 'no')}"
        f"{DATA.format('y', TYPED, 'no')}{DATA.format('p', '', '{n, plural, other{# cows}}')}</root>",
        f"<root>{DATA.format('a', '', 'Beenden Hund')}{DATA.format('c', '', 'Katze')}{DATA.format('d', '', 'Kuh')}"
        f"{DATA.format('y', f'mime{TYPED}', 'no')}{DATA.format('p', '', '{n, plural, other{# Kühe}}')}</root>",
    ),
    "ftl": (
        "### no\na =\n    Exit\n    the dog\nb =\n    .c = Cat\np = { $n ->\n   *[other] { $n } "
        "cows\n }\n",
        "a = Beenden Hund\nb =\n    .c = Katze\n-d = Kuh\np = { $n ->\n   *[other] { $n } Kühe\n "
        "}\n",
    ),
}


def read_keyed(folder, form, texts, ending="", encoding="utf-8"):
    paths = [folder / f"{language}.{form}{ending}" for language in ("en", "de")]
    for path, text in zip(paths, texts, strict=True):
        content = text.encode(encoding)
        path.write_bytes(gzip.compress(content) if ending else content)
    spec = CorpusSpec(source=str(paths[0]), target=str(paths[1]))
    with open_corpus(spec) as corpus:
        assert content_key(corpus)[0] == f".{form}"
        return [tuple(pair) for pair in read_pairs(corpus)]


@pytest.mark.parametrize("form", MESSAGES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_messages_of_two_files_with_the_same_key_are_pairs(tmp_path, form, ending):
    plural = "{ $n -> *[other] { $n } cows }" if form == "ftl" else "{n, plural, other{# cows}}"
    expected = [("Exit the dog", "Beenden Hund"), ("Cat", "Katze")]
    expected += [(plural, plural.replace("cows", "Kühe")), ("", "Kuh")]
    assert read_keyed(tmp_path, form, MESSAGES[form], ending) == expected


TEXTS = ("a=cow", "a=Kühe"), ('"a" = "cow";', '"a" = "Kühe";')
FORMS = [("properties", "latin-1"), ("properties", "utf-8"), ("strings", "utf-16")]


@pytest.mark.parametrize(("form", "encoding"), FORMS)
def test_messages_have_the_encodings_of_their_programs(tmp_path, form, encoding):
    texts = TEXTS[form == "strings"]
    assert read_keyed(tmp_path, form, texts, encoding=encoding) == [("cow", "Kühe")]


@pytest.mark.parametrize("form", MESSAGES)
def test_messages_may_begin_with_a_byte_order_mark(tmp_path, form):
    marked = read_keyed(tmp_path, form, MESSAGES[form], encoding="utf-8-sig")
    assert marked == read_keyed(tmp_path, form, MESSAGES[form])


def test_java_doubles_the_apostrophes_of_formats_only(tmp_path):
    pairs = read_keyed(tmp_path, "json", ('{"a": "it\'\'s {0}"}', '{"a": "b"}'))
    assert pairs == [("it''s {0}", "b")]
    pairs = read_keyed(tmp_path, "properties", ("a=it''s {0}", "a=it''s"))
    assert pairs == [("it's {0}", "it''s")]


@pytest.mark.parametrize(
    ("form", "texts", "words"),
    [
        (
            "json",
            ('{"a": "b"}', '{"c": "d"}'),
            "en.json | {folder}/de.json must have messages with the same keys",
        ),
        (
            "properties",
            ("# note\na=b", "# note\nc=d"),
            "must have messages with the same keys, they have none",
        ),
        (
            "json",
            ('{"a": "b"}', '{"a":\n1x}'),
            "de.json: The text must be in the format json: Expecting ',' delimiter: line 2",
        ),
        ("json", ("[" * 100_000, "{}"), "en.json: The text must be in the format json: "),
        (
            "ftl",
            ("a = b", "hello world"),
            "de.ftl: The text must be in the format fluent: Parsing error for fluent source: hello",
        ),
        ("resx", ("<root>", "<root/>"), "en.resx: The text must be well-formed XML"),
    ],
)
def test_a_mistake_in_messages_is_named_with_its_file(tmp_path, form, texts, words):
    with pytest.raises(UserError) as caught:
        read_keyed(tmp_path, form, texts)
    message = str(caught.value)
    assert words.replace("{folder}", str(tmp_path)) in message and "\n" not in message
