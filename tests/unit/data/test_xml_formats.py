"""Reading TMX, XLIFF and archives of OPUS: every mistake of a user is named with its file and
line.
"""

import gzip
import io
import zipfile

import pyarrow as pa
import pytest

from vanilla_transformer.data.cleaning import CleaningReport, clean_text
from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.readers import (
    CorpusSpec,
    SentencePair,
    open_corpus,
    read_lines,
    read_pairs,
)

LANGUAGES = {"source_language": "en", "target_language": "de"}
PAIRS = [SentencePair("One house.", "Ein Haus."), SentencePair("Two & more", "Zwei & mehr")]
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><prop type="x">p</prop><seg>One <bpt i="1">&lt;b&gt;</bpt>house<ept i="1">&lt;/b&gt;</ept>.
</seg></tuv><tuv xml:lang="de"><seg>Ein <hi>Haus</hi>.</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Trois</seg></tuv><tuv xml:lang="de"><seg>Drei</seg></tuv></tu>
<tu><tuv lang="DE"><seg>Zwei &amp; <!-- a note -->mehr</seg></tuv><tuv lang="EN"><seg>Two
  &amp; more</seg></tuv></tu>
</body></tmx>
"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de-DE" original="a"><body>
<trans-unit id="1"><source>One <x id="1"/>house.</source><target>Ein <g id="2">Haus</g>.</target>
<alt-trans><source>Other</source><target>Andere</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Untranslated</source></trans-unit>
<group><trans-unit id="3"><source>Two &amp; more</source><target>Zwei &amp; mehr</target></trans-unit></group>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><segment><source>One <pc id="1">house</pc>.</source><target>Ein <pc id="1">Haus</pc>.</target></segment>
<segment><source>Two &amp; more</source><target>Zwei &amp; mehr<ph id="3"/></target></segment></unit></file></xliff>
"""


@pytest.fixture
def read(tmp_path):
    def read_corpus(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        spec = CorpusSpec(file=str(path), **LANGUAGES | options)
        with open_corpus(spec) as corpus:
            return list(read_pairs(corpus))

    return read_corpus


def make_zip(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(f"Books.de-en.{name}", text)
    return buffer.getvalue()


def zst(content):
    return pa.compress(content, codec="zstd", asbytes=True)


ZIP = make_zip(de="Ein Haus.\nZwei & mehr\n", en="One house.\nTwo & more\n", xml="<a/>")


def test_parse_tmx_takes_the_units_with_both_languages(read):
    assert read("a.tmx", TMX) == PAIRS
    german = read("a.tmx", TMX, source_language="de", target_language="en-US")
    assert german == [SentencePair("Ein Haus.", PAIRS[0][0])]
    utf_16 = TMX.replace('"1.0"', '"1.0" encoding="utf-16"').encode("utf-16")
    assert read("a.tmx", utf_16) == PAIRS


@pytest.mark.parametrize("text", [XLIFF, XLIFF_2])
def test_parse_xliff_takes_the_translated_segments(read, text):
    assert translated(read("a.xliff", text)) == PAIRS
    swapped = translated(read("a.xlf", text, source_language="de", target_language="en"))
    assert swapped == [SentencePair(target, source) for source, target in PAIRS]


STATES = """<xliff version="1.2"><file source-language="en" target-language="de" original="a"><body>
<trans-unit id="1"><source>One</source><target state="new">One</target></trans-unit>
<trans-unit id="2"><source>Two</source><target state="needs-translation">Alt</target></trans-unit>
<trans-unit id="3"><source>Three</source><target>Three</target></trans-unit>
<trans-unit id="4"><source>Four</source><target state="translated">Four</target></trans-unit>
<trans-unit id="5"><source>Five</source><target state="needs-review-translation">Fünf</target></trans-unit>
<trans-unit id="6" translate="no"><source>Six</source><target>Six</target></trans-unit>
<trans-unit id="7" xmlns:m="m" m:locked="true"><source>Seven</source><target>Sieben</target></trans-unit>
<trans-unit id="8"><source>Eight. Nine.</source><seg-source><mrk mtype="seg" mid="8">Eight.</mrk>
<mrk mtype="seg" mid="9">Nine.</mrk></seg-source><target><mrk mtype="seg" mid="8">Acht.</mrk>
<mrk mtype="seg" mid="9"/></target></trans-unit>
<trans-unit id="10"><source>10</source><target>10</target></trans-unit>
</body></file></xliff>"""
STATES_2 = """<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="1">
<segment state="initial"><source>One</source><target>One</target></segment>
<segment><source>Two</source><target>Two</target></segment><ignorable><source>a</source><target>b</target></ignorable>
<segment state="final"><source>Three</source><target>Drei</target></segment></unit></file></xliff>"""


TRANSLATED = [("Four", "Four"), ("Five", "Fünf"), ("Seven", "Sieben")]
TRANSLATED += [("Eight.", "Acht."), ("10", "10")]


@pytest.mark.parametrize(
    ("text", "expected"), [(STATES, TRANSLATED), (STATES_2, [("Three", "Drei")])]
)
def test_parse_xliff_gives_open_segments_a_blank_target(read, text, expected):
    pairs = read("a.xlf", text)
    assert translated(pairs) == expected
    assert all(pair.source and not pair.target for pair in pairs if pair not in expected)
    assert len(pairs) == (10 if text is STATES else 3)


def test_clean_text_counts_open_segments_of_xliff(read):
    report, spec = CleaningReport(), CorpusSpec(file="a.xlf", **LANGUAGES)
    pairs = read("a.xlf", STATES)
    rows = ((number, pair, None) for number, pair in enumerate(pairs, start=1))
    kept = list(clean_text(spec, rows, CleaningRules(), report))
    assert (len(kept), report.read, report.dropped) == (5, 10, {"empty": 5})


def test_parse_xliff_leaves_out_the_header_of_a_catalog(read):
    header = '<trans-unit restype="x-gettext-domain-header"><source>Language: de</source>'
    header += '<target state="translated">Language: de</target></trans-unit>'
    text = STATES.replace("<body>", f"<body>{header}")
    assert read("a.xlf", text) == read("a.xlf", STATES)


def translated(pairs):
    return [pair for pair in pairs if pair.source and pair.target]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Books.zip", ZIP),
        ("a.tmx.gz", gzip.compress(TMX.encode())),
        ("a.tmx.zst", zst(TMX.encode())),
    ],
)
def test_read_pairs_unpacks_archives_and_tmx(read, name, content):
    assert read(name, content) == PAIRS


def test_read_lines_decompresses_zst(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(zst(b"one\n") + zst("zwölf\n".encode()))
    assert read_lines(path) == ["one", "zwölf"]
    for damaged in (zst(b"text " * 999)[:-9], b"not compressed\n"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.zst: the \.zst file is truncated or corrupt"):
            read_lines(path)


NO_UNITS = "languages en and de, but it has no translated units"
CORRUPT_ZIP = r"a\.zip: the \.zip file is truncated or corrupt"
NO_ENTITIES = r"Line 5 of .*a\.tmx must have text instead of .* &secret;"
OF_ENTITY = '[<!ENTITY secret SYSTEM "file:///etc/hostname">]'
# By the name of a file: its content → what the refusal says.
MISTAKES = {
    "a.tmx": {
        "": r"a\.tmx must be TMX\. .*no element found",
        "source\tZiel\n": r"a\.tmx must be TMX\. .*line 1",
        TMX[:400]: r"a\.tmx must be TMX\. .*line 7",
        TMX.replace("Haus", "H\xe4us").encode("latin-1"): r"a\.tmx must be TMX\. .*line 5",
        "<tmx><body/></tmx>": NO_UNITS,
        TMX.replace('"de"', '"it"').replace(
            '"DE"', '"it"'
        ): "en and de, but it has EN, en-US, fr, it",
        TMX.replace(
            ' xml:lang="fr"', ""
        ): r"<tuv> of .*a\.tmx must have the attribute xml:lang.* line 6",
        TMX.replace(
            "<seg>Ein <hi>Haus</hi>.</seg>", ""
        ): r"a\.tmx must have a <seg>, got none in line 5",
        TMX.replace("Haus", "&secret;"): NO_ENTITIES,
        TMX.replace('SYSTEM "tmx14.dtd"', OF_ENTITY).replace("Haus", "&secret;"): NO_ENTITIES,
    },
    "a.tmx.gz": {
        gzip.compress(TMX.encode())[:-20]: r"a\.tmx\.gz: the \.gz file is truncated or corrupt"
    },
    "a.tmx.zst": {zst(TMX.encode())[:-20]: r"a\.tmx\.zst: the \.zst file is truncated or corrupt"},
    "a.xlf": {
        "": r"a\.xlf must be XLIFF\. .*no element found",
        XLIFF[:300]: r"a\.xlf must be XLIFF\. .*line 4",
        XLIFF.replace("target", "goal"): NO_UNITS,
        XLIFF.replace("<target>", "<target state='new'>"): "it has no translated units",
        XLIFF.replace("de-DE", "fr"): "languages en and de, but it has en, fr",
    },
    "a.zip": {
        b"": CORRUPT_ZIP,
        ZIP[:-30]: CORRUPT_ZIP,
        ZIP.replace(b"Books.de-en.de", b"Books.de-en.xx", 1): "truncated or corrupt",
        make_zip(de="eins\n", fr="un\n"): r"ends with \.en, got Books\.de-en\.de, Books\.de-en\.fr",
        make_zip(
            de="eins\n", en="one\ntwo\n"
        ): r"got 2 in Books.de-en.en in .*a\.zip and 1 in Books.de-en.de",
        make_zip(de="", en="one\n"): r"Books\.de-en\.de in .*a\.zip is empty",
    },
}
WRONG_FILES = [(name, content) for name in MISTAKES for content in MISTAKES[name]]


@pytest.mark.parametrize(("name", "content"), WRONG_FILES)
def test_read_pairs_names_a_mistake(read, name, content):
    with pytest.raises(ValueError, match=MISTAKES[name][content]) as error:
        read(name, content)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.tmx", "a.xliff", "a.zip"])
def test_read_pairs_needs_the_languages(read, name):
    with pytest.raises(ValueError, match=rf"`target_language` must be given for .*{name}"):
        read(name, b"", target_language=None)


def test_parse_moses_zip_names_an_encrypted_archive(read):
    encrypted = bytearray(ZIP)
    for start in (ZIP.index(b"PK\x03\x04") + 6, ZIP.index(b"PK\x01\x02") + 8):
        encrypted[start] |= 1  # the flag of an encrypted member
    with pytest.raises(ValueError, match=r"Cannot read .*a\.zip: .*encrypted"):
        read("a.zip", bytes(encrypted))


@pytest.mark.parametrize(
    "segment, text",
    [
        ('A man is sleeping<ph x="1">&lt;br/&gt;</ph>Two dogs', "A man is sleeping Two dogs"),
        ("sleeping.<ph/><ph/>Two", "sleeping. Two"),
        ("sleeping <ph/>Two", "sleeping Two"),
        ("sleeping\n<ph/>Two", "sleeping Two"),
        ("un<bpt i='1'>&lt;b&gt;</bpt>usual<ept i='1'>&lt;/b&gt;</ept>", "unusual"),
        ("Run (<ph/>dogs<ph/>).", "Run (dogs)."),
        ("日<ph/>本", "日本"),
    ],
)
def test_read_pairs_parts_words_around_codes(read, segment, text):
    source = f'<tuv xml:lang="en"><seg>{segment}</seg></tuv>'
    target = '<tuv xml:lang="de"><seg>x</seg></tuv>'
    text_of_file = f"<tmx><body><tu>{source}{target}</tu></body></tmx>"
    assert read("a.tmx", text_of_file) == [SentencePair(text, "x")]
