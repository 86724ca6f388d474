"""Random zips of Office and EPUB, and XML with rules of ITS: a translation that is its source
changes no byte beside the documented layout, and one into capitals only letters and white space.
"""

import re
from html import escape
from io import BytesIO
from itertools import groupby
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.document_translation import copy, shout, translate_document, update_document
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.text.languages import Direction

WORDS = [
    "dog",
    "A",
    "Why?",
    "the end.",
    "don't",
    "x-y",
    "3",
    "1,234.50",
    "{name}",
    "%s",
    "R&D",
    "<b>",
    "two  spaces",
    "Name:      Date:",
]
WORDS = [escape(word, quote=False) for word in WORDS]
KEPT = "kept as it is. Of course"
OTHERS = [
    ("pictures/a.png", bytes(range(256)), ZIP_STORED),
    ("notes/a.xml", f"<p a='b' >{KEPT}</p>".encode(), ZIP_DEFLATED),
]
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
WORD = f'<?xml version="1.0"?>\n<w:document xmlns:w="{W}"><!-- {KEPT} --><w:body>%s</w:body></w:document>'
SLIDE = f'<p:sld xmlns:p="http://x/presentationml" xmlns:a="{A}"><!-- {KEPT} -->%s</p:sld>'
CONTENT = (
    f'<o:document-content xmlns:o="{ODF}:office:1.0" xmlns:t="{ODF}:text:1.0" '
    f"xmlns:d='{ODF}:drawing:1.0'><!-- {KEPT} --><o:meta>{KEPT}</o:meta>%s</o:document-content>"
)
RULES = (
    '<its:rules xmlns:its="http://www.w3.org/2005/11/its" version="2.0">'
    '<its:translateRule selector="//code | //n[@k]" translate="no"/>'
    '<its:translateRule selector="//n/q" translate="yes"/>'
    '<its:translateRule selector="//p/@title" translate="yes"/>'
    '<its:withinTextRule selector="//b | //code" withinText="yes"/>'
    '<its:withinTextRule selector="//note" withinText="nested"/>'
    '<its:preserveSpaceRule selector="//pre" space="preserve"/></its:rules>'
)
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>%s</dc:title><dc:creator>Me</dc:creator><dc:language>{language}</dc:language></metadata>
<manifest><item href="a.xhtml" media-type="application/xhtml+xml"/>
<item href="b.ncx" media-type="application/x-dtbncx+xml"/></manifest></package>"""
PAGE = '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="{language}"'
PAGE += " lang='{language}'><head ><title>A book</title></head><body>%s</body></html>\n"
CONTENTS = (
    '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docAuthor><text>Me</text></docAuthor>'
)
CONTENTS += "<navMap><navLabel><text>%s</text></navLabel></navMap></ncx>"
# Format → properties of runs, marks among them, elements with runs, and the run of a text.
OFFICE = {
    "docx": (
        ["", "<w:rPr><w:b/></w:rPr>", '<w:rPr><w:i/><w:sz w:val="30"/></w:rPr>'],
        [
            "<w:r><w:tab/></w:r>",
            "<w:r><w:rPr><w:b/></w:rPr><w:br/></w:r>",
            '<w:bookmarkStart w:id="1"/>',
            '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r>',
            f"<w:del><w:r><w:delText>{KEPT}</w:delText></w:r></w:del>",
            f'<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>{KEPT}</w:instrText></w:r>'
            '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
            f"<!-- {KEPT} -->",
        ],
        [
            *('<w:hyperlink w:id="1">%s</w:hyperlink>', "<w:ins>%s</w:ins>"),
            f"<w:r><w:ruby><w:rt><w:r><w:t>{KEPT}</w:t></w:r></w:rt><w:rubyBase>%s</w:rubyBase></w:ruby></w:r>",
        ],
        '<w:r>{}<w:t xml:space="preserve">{}</w:t></w:r>',
    ),
    "pptx": (
        ["", '<a:rPr b="1"/>', '<a:rPr i="1"><a:x/></a:rPr>'],
        ["<a:br/>", f"<a:fld><a:t>{KEPT}</a:t></a:fld>", f"<!-- {KEPT} -->"],
        [],
        "<a:r>{}<a:t>{}</a:t></a:r>",
    ),
}
NOISE = {
    "docx": ('<w:proofErr w:type="spellStart"/>', '<w:lang w:val="en-US"/></w:rPr>', "</w:rPr>"),
    "pptx": ("", ' lang="en-US"', ' b="1"'),
}
PARAGRAPHS = {
    "docx": '<w:p><w:pPr><w:jc w:val="left"/></w:pPr>{}</w:p>',
    "pptx": '<a:p><a:pPr lvl="1"/>{}</a:p>',
}
MEMBERS = {
    "docx": ("word/document.xml", WORD),
    "pptx": ("ppt/slides/slide1.xml", SLIDE),
    "odf": ("content.xml", CONTENT),
}
# Pieces of a paragraph of formats that keep each byte.
MARKED = {
    "odf": [
        *("<t:tab/>", "<t:s />", "<t:line-break/>", "<t:span>a dog</t:span>", "<t:span >two <t:span>in</t:span></t:span>"),
        *(f"<!-- {KEPT} -->", '<t:bookmark t:name="x"/>', f"<t:page-number >{KEPT}</t:page-number>"),
        "<t:note><t:note-citation>1</t:note-citation><t:note-body><t:p>A note.</t:p></t:note-body></t:note>",
    ],
    "epub": [
        *("<b>bold</b>", "<i >one <b>two</b></i>", "<br/>", "<br />", f"<!-- {KEPT} -->", f"<code>{KEPT}</code>"),
        *("&#8230;", "<img alt='a b' src=\"c\"/>", f'<i translate="no">{KEPT}</i>', "<a href='b'>c</a>"),
    ],
    "xml": [
        *("<b>bold</b>", "<b k = 'v'>one <b>two</b></b>", f"<code>{KEPT}</code>", f'<n k="v">{KEPT}</n>', "<x/>"),
        *(f'<n k="v">{KEPT}<q>a dog</q></n>', "<note>A note.</note>", f"<!-- {KEPT} -->", f"<?do {KEPT}?>"),
        *("&#8230;", "<q>in</q>", "<pre>a\n  b</pre>"),
    ],
}  # fmt: skip

TRANSLATED_ATTRIBUTE = re.compile(r"(?<= )(?:alt|title) ?= ?'[^']*'")
# White space between words of two styles may be a run, which readers do not see.
SPACE_RUN = re.compile(
    r"<(?P<run>[wa]:r)>(?:<(?P<kind>[wa]:rPr)\b(?:(?!</?[wa]:r>).)*?)?<[wa]:t\b[^>]*>\s*</[wa]:t></(?P=run)>"
)


def pack(members):
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.comment = KEPT.encode()
        for name, content, method in members:
            archive.writestr(ZipInfo(name), content, method)  # of a fixed date
    return file.getvalue().decode("latin-1")


def read_members(text):
    archive = ZipFile(BytesIO(text.encode("latin-1")))
    assert archive.comment == KEPT.encode()
    return {
        info.filename: (archive.read(info).decode("latin-1"), info.compress_type)
        for info in archive.infolist()
    }


EN_DE = Direction("en", "de")


def translate(text, format, model):
    return translate_document(text, format, model, split_simply, direction=EN_DE)


def letters(text):
    return "".join(text.split()).casefold()


def check_capitals(expected, translated):
    """Check that nothing but letters of text and white space differs."""
    expected, translated = (SPACE_RUN.sub("", text) for text in (expected, translated))
    assert letters(translated) == letters(expected)
    expected, translated = (TRANSLATED_ATTRIBUTE.sub("", text) for text in (expected, translated))
    assert re.findall("<[^>]*>", translated) == re.findall("<[^>]*>", expected)
    assert translated.count(KEPT) == expected.count(KEPT)


def write_runs(format, pieces, is_noisy):
    """Return runs of texts with their properties, and marks, as Word writes them or in their
    layout.
    """
    properties, _, _, run = OFFICE[format]
    mark, noise, plain = NOISE[format]
    written = []
    for style, neighbors in groupby(pieces, key=lambda piece: piece[0]):
        texts = [text for _, text in neighbors]
        if style is None:
            written += texts
        elif is_noisy:
            noisy = properties[style].replace(plain, noise if format == "docx" else plain + noise)
            written += [mark + run.format(noisy, text) for text in texts]
        else:
            written.append(run.format(properties[style], "".join(texts)))
    return "".join(written)


def paragraphs_of(format):
    """Return paragraphs as lists of pieces: a style and a text, or None and a mark."""
    properties, marks, wrappers, run = OFFICE[format]
    words = st.sampled_from(WORDS).map(lambda word: f" {word}")
    texts = st.tuples(st.integers(0, len(properties) - 1), words)
    inner = [wrapper % run.format(properties[1], " a link") for wrapper in wrappers]
    kept = st.sampled_from([*marks, *inner]).map(lambda mark: (None, mark))
    paragraphs = st.lists(texts | kept, max_size=8).filter(has_text)
    return st.lists(paragraphs, min_size=1, max_size=3)


def has_text(pieces):
    return any(style is not None for style, _ in pieces)


@pytest.mark.parametrize("format", OFFICE)
def test_runs_change_in_letters_only(format):
    name, frame = MEMBERS[format]

    def write(paragraphs, is_noisy):
        every = [
            PARAGRAPHS[format].format(write_runs(format, pieces, is_noisy)) for pieces in paragraphs
        ]
        return pack([*OTHERS, (name, frame % "".join(every), ZIP_DEFLATED)])

    @examples(200, suppress_health_check=list(HealthCheck))
    @given(paragraphs_of(format))
    def changes(paragraphs):
        expected = write(paragraphs, False)
        assert translate(expected, format, copy) == expected
        source = write(paragraphs, True)
        assert translate(source, format, copy) == expected
        members, translated = (
            read_members(text) for text in (expected, translate(source, format, shout))
        )
        (member, _), (capitals, _) = members.pop(name), translated.pop(name)
        check_capitals(member, capitals)
        assert translated == members
        translation = translate(source, format, shout)
        updated = update_document(source, format, source, translation, EN_DE)
        check_capitals(capitals, read_members(updated)[name][0])

    changes()


def phrases_of(format):
    pieces = st.sampled_from([*WORDS, *MARKED[format], "\n"])
    return st.lists(pieces, min_size=1, max_size=8).map(lambda texts: " ".join(["a", *texts]))


@examples(200, suppress_health_check=list(HealthCheck))
@given(st.lists(phrases_of("odf"), min_size=1, max_size=3))
def test_opendocument_changes_in_letters_only(paragraphs):
    written = "\n".join(f"<t:p >{text}</t:p><t:h>{text}</t:h>" for text in paragraphs)
    source = pack([*OTHERS, ("content.xml", CONTENT % written, ZIP_DEFLATED)])
    assert translate(source, "odf", copy) == source
    members, translated = (read_members(text) for text in (source, translate(source, "odf", shout)))
    (member, _), (capitals, _) = members.pop("content.xml"), translated.pop("content.xml")
    check_capitals(member, capitals)
    assert translated == members
    translation = translate(source, "odf", shout)
    assert update_document(source, "odf", source, translation, EN_DE) == translation


@examples(200, suppress_health_check=list(HealthCheck))
@given(st.lists(phrases_of("epub"), min_size=1, max_size=3), st.sampled_from(WORDS))
def test_epub_changes_in_letters_and_language_only(paragraphs, title):
    container = "<container><rootfile full-path='a.opf'/></container>"

    def write(language):
        page = PAGE % "\n".join(f"<p class = 'x'>{text}</p>" for text in paragraphs)
        texts = {"a.opf": PACKAGE % title, "a.xhtml": page, "b.ncx": CONTENTS % title}
        members = [("META-INF/container.xml", container, ZIP_DEFLATED), *OTHERS]
        for name, text in texts.items():
            members.append((name, text.replace("{language}", language), ZIP_DEFLATED))
        return pack(members)

    source, expected = write("en"), write("de")
    assert translate(source, "epub", copy) == expected
    members, translated = (
        read_members(text) for text in (expected, translate(source, "epub", shout))
    )
    for name in ("a.opf", "a.xhtml", "b.ncx"):
        (member, _), (capitals, _) = members.pop(name), translated.pop(name)
        check_capitals(member, capitals)
    assert translated == members


@examples(200, suppress_health_check=list(HealthCheck))
@given(st.lists(phrases_of("xml"), min_size=1, max_size=3))
def test_xml_with_its_rules_changes_in_letters_only(paragraphs):
    written = "\n".join(f"<p title = 'a dog' k='{KEPT}'>{text}</p>" for text in paragraphs)
    source = f"<?xml version='1.0'?>\n<doc>{RULES}<s>{written}</s>\n<n k='v'>{KEPT}</n></doc>\n"
    assert translate(source, "xml", copy) == source
    capitals = translate(source, "xml", shout)
    check_capitals(source, capitals)
    assert capitals.count("'A DOG'") == len(paragraphs)
