"""Random messages in every format of programs: nothing but letters of translated text changes."""

import json
import re
from html import escape

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.catalogs import HEADER
from tests.document_translation import (
    COLUMNS,
    NO_MESSAGES,
    by_texts,
    by_word,
    copy,
    copy_kept,
    translate_document,
    update_document,
)
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions import documents
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.xml_tree import parse_xml

CAPITALS = copy_kept(by_word(str.upper))
WORDS = ["a dog", "It's here.", "they're", "don't!", "one / two", "“so”", "1, 2", "(see it)"]
KEPT = ["%s", "%1$d", "{name}", "https://a.example/b?c=d", "<code>git pull</code>", "<br/>"]
MARKUP = ["<b>bold</b>", '<a href="/x?y=1">link</a>', "<i>one <b>two</b></i>", "<name>"]
HIDDEN = [
    '<style type="text/css">\np, li { white-space: pre-wrap; }\n</style>',
    "<script>if (a < b) { run(); }</script>",
    '<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.0//EN" "http://a.example/strict.dtd">',
    "<!-- a comment. Of two\nlines -->",
    '<?xml version="1.0"?>',
]
TAG = '<span style="\n color:red">'
LINES = ["\n", "\n\n", " \n  ", f"{TAG}red dog</span>", "\n* ", "a long line of it \n  continues"]
FINISHED = 'Say <?xml version="1.0"?> and it\'s <style>p {}</style>  done.'
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<!-- a comment --><file source-language="en" target-language="de" original="x" datatype="x"><body>
<trans-unit id="1"><source>A  dog</source><target state="final">Ein &lt;?xml ?&gt; Hund</target>
</trans-unit>
<trans-unit id="2"><source>{}</source></trans-unit>
</body></file></xliff>
"""
TS = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de">
<context>
    <name>Main</name>
    <message>
        <source>{}</source>
        <comment>It's a note</comment>
        <translation>{}</translation>
    </message>
    <message>
        <source>{}</source>
        <translation type="unfinished"></translation>
    </message>
</context>
</TS>
"""


def messages(*pieces):
    return st.lists(
        st.sampled_from([*WORDS, *(p for group in pieces for p in group)]), min_size=1, max_size=6
    ).map(" ".join)


def quote(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_json(text):
    return f'{{\n  "a/b": [1, "\\u2019 \\/ "],\n  "m": "{quote(text)}" }}\n'


def write_escaped_json(text):
    written = quote(text).replace("/", "\\/").replace("<", "\\u003c").replace("'", "\\u0027")
    return f'{{"m": "{written}", "n": 1.50}}'


def write_arb(text):
    return json.dumps(
        {
            "@@locale": "en",
            "m": f"{{n, plural, =0{{It's none}} one{{{text}}} other{{They're # {{x}}}}}}",
            "@m": {"description": "It's a note"},
        },
        ensure_ascii=False,
        indent=2,
    )


def write_properties(text):
    return f"# it's a note\nk.1 : \nm = Can't open {{0}}: {quote(text).lstrip()}\nk\\ 2\n"


def write_java(text):
    return write_properties(text).replace("'", "''")


def write_strings(text):
    return f'/* "A" = "it\'s"; */\n"k 1"  =  "{quote(text)}" ;\n// it\'s\n'


def write_yaml(text):
    lines = re.sub("(?m)^(?=.)", "    ", re.sub(r"\s*\n\s*", "\n", text.strip())) + "\n"
    one_line = " ".join(text.split()).replace("'", "''")
    return (
        f"# it's a note\nen:\n  k: [1, 'It''s', on]\n  m:   \"{quote(text)}\"  # it\n"
        f"  n: |-\n{lines}\n  o: '{one_line}'\n  p: true\n"
    )


def write_csv(text):
    quoted = text.replace('"', '""')
    one_line = " ".join(text.translate(str.maketrans('\n",', "   ")).split())
    return (
        f'key,note,text\nm,a "b" of it,"{quoted}"\n"n",a note\n'
        f'o," it, ""too"""," {quoted}",1\np,,{one_line}\n'
    )


def write_tsv(text):
    return f'key\tnote\ttext\nm\ta "b"\t"So" it is, {" ".join(text.split())}\nn\t"a note\n'


def write_stringsdict(text):
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" '
        '"http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n<plist version="1.0">\n<dict>\n'
        "\t<!-- a note -->\n\t<key>a note</key>\n\t<dict>\n\t\t<key>NSStringLocalizedFormatKey</key>\n"
        "\t\t<string>%#@dogs@ are here</string>\n\t\t<key>dogs</key>\n\t\t<dict>\n"
        "\t\t\t<key>NSStringFormatSpecTypeKey</key>\n\t\t\t<string>NSStringPluralRuleType</string>\n"
        "\t\t\t<key>NSStringFormatValueTypeKey</key>\n\t\t\t<string>d</string>\n"
        "\t\t\t<key>one</key>\n\t\t\t<string>%d dog</string>\n\t\t\t<key>other</key>\n"
        f"\t\t\t<string>{escape(text, quote=False)}</string>\n\t\t</dict>\n\t</dict>\n</dict>\n</plist>\n"
    )


def write_resx(text):
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<root>\n  <!-- a note -->\n'
        '  <data name="m" xml:space="preserve">\n'
        f"    <value>{escape(text, quote=False)}</value>\n    <comment>It's</comment>\n"
        "  </data>\n</root>"
    )


def write_android(text):
    written = escape(text, quote=False).replace("'", "\\'").replace("\n", "\\n")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<resources xmlns:x="y">\n    <!-- a note -->\n'
        f'    <string name="m">{written}</string>\n'
        '    <string name="n" translatable="false">No</string>\n</resources>\n'
    )


def write_fluent(text):
    return (
        f"# A note\n\nm =  {text}\n    .title = {text} {{ $n ->\n        [one] {text}\n"
        f"       *[other] {{ $n }} {text}\n    }}\n-brand = It's\n"
    )


def write_xml(text):
    return (
        "<?xml version='1.0'?>\n<root a='b c'><!-- it's --><?do it?>"
        f'<p k="v w">{escape(text, quote=False)}</p>\n</root>\n'
    )


# Format of a file → its format, what writes a file with a message, and the pieces of messages.
FILES = {
    "json": ("json", write_json, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "escaped json": ("json", write_escaped_json, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "arb": ("json", write_arb, messages(["{0}", "%s"])),
    "properties": ("properties", write_properties, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "java": ("properties", write_java, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "strings": ("strings", write_strings, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "yaml": ("yaml", write_yaml, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "csv": ("csv", write_csv, messages(KEPT, MARKUP, HIDDEN, LINES)),
    "tsv": ("tsv", write_tsv, messages(KEPT, MARKUP)),
    "stringsdict": ("stringsdict", write_stringsdict, messages(KEPT, MARKUP, ["\n"])),
    "resx": ("resx", write_resx, messages(KEPT, MARKUP, ["\n"])),
    "android": ("xml", write_android, messages(KEPT, ["\n"])),
    "fluent": ("fluent", write_fluent, messages(["{ $name }", "<b>bold</b>", "https://a.example"])),
    "xml": ("xml", write_xml, messages(KEPT)),
}


def translate(text, form, model):
    columns = COLUMNS.get(form, "")
    return translate_document(text, form, model, split_simply, Direction(None, "de"), columns)


def fill(source, existing, form, model):
    """Return an existing translation with what it lacks."""
    model = by_texts(model)
    direction = Direction(None, "de")
    columns = COLUMNS.get(form, "")
    return documents.translate_document(
        source, form, model, split_simply, direction, existing, columns
    )


def check_letters(source, translated):
    """Check that nothing but the case of letters differs, and that a document without text is the same."""
    assert translated.casefold() == source.casefold()
    for piece in ["%s", "%1$d", "{name}", "{x}", "?c=d", "git pull", TAG, *HIDDEN]:
        for written in {piece, quote(piece), escape(piece, quote=False)}:
            assert translated.count(written) == source.count(written), written


@pytest.mark.parametrize("name", FILES)
def test_messages_change_in_letters_only(name):
    form, write, texts = FILES[name]

    @examples(200, suppress_health_check=list(HealthCheck))
    @given(texts)
    def changes_letters(text):
        file = write(text)
        expected = file.replace('"@@locale": "en"', '"@@locale": "de"').replace("\nen:", "\nde:")
        assert translate(file, form, copy) == expected
        capitals = translate(file, form, CAPITALS)
        check_letters(expected, capitals)
        direction, columns = Direction(None, "de"), COLUMNS.get(form, "")
        assert update_document(file, form, file, capitals, direction, columns) == capitals
        for line in file.splitlines():
            if re.search(r"note|No<|@@|-brand", line) and "locale" not in line:
                assert line in capitals
        if name not in ("xml", "yaml", "csv", "tsv"):  # whose rows here lack cells
            for existing in (expected, capitals):
                assert fill(file, existing, form, CAPITALS) == existing
            filled = fill(file, NO_MESSAGES[form], form, CAPITALS).strip()
            assert capitals.strip().endswith(filled) and filled.endswith(capitals.strip()[-9:])

    changes_letters()


@examples(200, suppress_health_check=list(HealthCheck))
@given(messages(KEPT, MARKUP, HIDDEN, LINES))
def test_po_changes_in_open_messages_only(text):
    header = HEADER.format("de", '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n')
    others = f'# A note\nmsgid "{quote(FINISHED)}"\nmsgstr "{quote(FINISHED.upper())}"\n\n'
    others += f'#, fuzzy\nmsgid "New"\nmsgstr "{quote(FINISHED)}"\n\n'
    entry = f'msgid "{quote(text)}"\nmsgstr ""\n'
    end = '\n#~ msgid "Gone"\n#~ msgstr "It\'s gone"\n'
    for model in (copy, CAPITALS):
        translated = translate(header + others + entry + end, "po", model)
        before, middle, after = translated.partition(
            "#, fuzzy\nmsgid " + entry.partition(" ")[2].partition("\n")[0]
        )
        assert (before, after[-len(end) :]) == (header + others, end) and middle
        message = after.removesuffix(end).replace('"\n"', "")
        if model is copy:
            assert message == f'\nmsgstr "{quote(text)}"\n'
        check_letters(f'\nmsgstr "{quote(text)}"\n', message)


@examples(200, suppress_health_check=list(HealthCheck))
@given(messages(KEPT, MARKUP, HIDDEN, LINES))
def test_ts_changes_in_open_messages_only(text):
    file = TS.format(escape(FINISHED), escape(FINISHED.upper()), escape(text))
    for model in (copy, CAPITALS):
        translated = translate(file, "ts", model)
        done, filled = parse_xml(translated).getroot().iter("message")
        assert [done.findtext("source"), done.findtext("translation")] == [
            FINISHED,
            FINISHED.upper(),
        ]
        assert done.findtext("comment") == "It's a note" and filled.findtext("source") == text
        check_letters(text, filled.findtext("translation"))
        assert model is not copy or filled.findtext("translation") == text


@examples(200, suppress_health_check=list(HealthCheck))
@given(
    messages(KEPT, ["\\n"]).map(lambda text: escape(text, quote=False)),
    st.sampled_from(['<x id="1"/>', '<g id="2">one dog</g>', "<!-- a note -->", ""]),
)
def test_xliff_changes_in_open_segments_only(text, mark):
    file = XLIFF.replace("{}", f"{text} {mark} {text}")
    for model in (copy, CAPITALS):
        translated = translate(file, "xliff", model)
        target = re.search(r'<target state="needs.*?</target>', translated)[0]
        assert translated.replace(target, "") == file
        inner = re.fullmatch(r"<target [^>]*>(.*)</target>", target)[1]
        check_letters(f"{text} {mark} {text}", inner)
        assert model is not copy or inner == f"{text} {mark} {text}"
