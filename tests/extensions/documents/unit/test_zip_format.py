"""DOCX, PPTX, OpenDocument and EPUB, built here as zips of their smallest members."""

import sys
import tracemalloc
from zipfile import ZIP_DEFLATED, ZIP_STORED

import pytest

from tests.document_translation import copy, reverse, shout, translate_document
from tests.office_files import BOLD, DOCUMENT, pack, paragraph, run, unpack
from tests.sweeps import sample
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.text.languages import Direction

DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDE = (
    '<p:sld xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    f' xmlns:a="{DRAWING}">%s</p:sld>'
)
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
CONTENT = (
    f'<o:document-content xmlns:o="{OFFICE}:office:1.0" xmlns:t="{OFFICE}:text:1.0" '
    f'xmlns:d="{OFFICE}:drawing:1.0" xmlns:s="{OFFICE}:svg-compatible:1.0" '
    'xmlns:c="http://purl.org/dc/elements/1.1/">%s</o:document-content>'
)
NOT_UTF_8 = bytes(range(256))


# Format → its member that is translated, and its beginning, in which `%s` stands for the
# paragraphs.
MEMBERS = {
    "docx": ("word/document.xml", DOCUMENT),
    "pptx": ("ppt/slides/slide1.xml", SLIDE),
    "odf": ("content.xml", CONTENT),
}


def translated(format, paragraphs, translate=shout):
    """Return the translated paragraphs of the member of a format."""
    name, frame = MEMBERS[format]
    text = pack((name, frame % paragraphs))
    archive = unpack(translate_document(text, format, translate, split_simply))
    member = archive.read(name).decode()
    before, after = frame.split("%s")
    assert member.startswith(before)
    assert member.endswith(after)
    return member[len(before) : len(member) - len(after)]


ENGLISH = '<w:rPr><w:noProof/><w:lang w:val="en-US"/></w:rPr>'
TAB, BEGIN = "<w:r><w:tab/></w:r>", '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
CODE = '<w:r><w:instrText>PAGE x</w:instrText></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
DELETED = "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
MOVED = "<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>"
BOX = "<w:r><w:pict><w:txbxContent>{}</w:txbxContent></w:pict></w:r>"
RUBY = (
    '<w:r><w:rPr><w:b/></w:rPr><w:ruby><w:rubyPr><w:lid w:val="ja-JP"/></w:rubyPr><w:rt><w:r>'
    "<w:t>a reading</w:t></w:r></w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>"
)
MARKS = '<w:bookmarkStart w:id="1"/>', '<w:bookmarkEnd w:id="1"/>'
CONTROL = '<w:sdt><w:sdtPr><w:alias w:val="x"/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>'
# The runs of a paragraph, and their translation into capitals.
RUNS = {
    "a torn word": (
        [
            run("a do"),
            '<w:proofErr w:type="spellStart"/>',
            f'<w:r w:rsidR="1">{ENGLISH}<w:t>g</w:t></w:r>',
            run(" runs"),
        ],
        [run("A DOG RUNS")],
    ),
    "bold words": (
        [run("a "), run("big ", BOLD), run("dog", BOLD)],
        [run("A"), run(" BIG DOG", BOLD)],
    ),
    "bold base": ([run("a big dog", BOLD), run(" ran")], [run("A BIG DOG ", BOLD), run("RAN")]),
    "a tab": ([run("a"), TAB, run("b")], [run("A"), TAB, run("B")]),
    "a tab in a text": ([run("a\tb")], [run("A\tB")]),
    "a form": (
        [run("Name:      Date: "), run("       ", BOLD), run(" here.  Now")],
        [run("NAME:      DATE: "), run("       ", BOLD), run(" HERE.  NOW")],
    ),
    "a tab in a run": (["<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r>"], [run("A"), TAB, run("B")]),
    "a field": ([run("page "), BEGIN, CODE, run(" of")], [run("PAGE "), BEGIN, CODE, run(" OF")]),
    "a line": (
        [run("a"), "<w:r><w:cr/></w:r>", run("b")],
        [run("A"), "<w:r><w:cr/></w:r>", run("B")],
    ),
    "a word with its reading": (
        [run("the "), RUBY.format(run("to") + run("kyo")), run(" tower")],
        [run("THE "), RUBY.format(run("TOKYO")), run(" TOWER")],
    ),
    "moved text": ([run("a "), MOVED, run("b")], [run("A "), MOVED, run("B")]),
    "deleted text": ([run("a "), DELETED, run("b")], [run("A "), DELETED, run("B")]),
    "marks at the ends": ([MARKS[0], run("a"), MARKS[1]], [MARKS[0], run("A"), MARKS[1]]),
    "a link": (
        [run("see "), f'<w:hyperlink w:id="1">{run("it", BOLD)}</w:hyperlink>'],
        [run("SEE "), f'<w:hyperlink w:id="1">{run("IT", BOLD)}</w:hyperlink>'],
    ),
    "a control": (
        [run("to "), CONTROL.format(run("all"))],
        [run("TO "), CONTROL.format(run("ALL"))],
    ),
    "a box": (
        [run("a"), BOX.format(paragraph(run("in"))), run(" b")],
        [run("A"), BOX.format(paragraph(run("IN"))), run(" B")],
    ),
    "marks only": ([MARKS[0], MARKS[1]], [MARKS[0], MARKS[1]]),
    "a comment": (["<w:r><w:t>a <!-- x -->b<?x y?> c</w:t></w:r>"], [run("A B C")]),
    "a section": (["<w:r><w:t>a <![CDATA[& b]]> c</w:t></w:r>"], [run("A &amp; B C")]),
    "special characters": ([run("a &lt; b &amp;&#160;c")], [run("A &lt; B &amp;\xa0C")]),
}


@pytest.mark.parametrize("kind", RUNS)
def test_runs_of_docx_are_translated_with_their_properties(kind):
    runs, expected = RUNS[kind]
    assert translated("docx", paragraph(*runs)) == paragraph(*expected)


def field(instruction, *runs):
    character = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    begin, separate, end = map(character.format, ("begin", "separate", "end"))
    code = f"<w:r>{BOLD}<w:instrText> {instruction} </w:instrText></w:r>"
    return "".join([begin, code, separate, *runs, end])


SIMPLE = '<w:fldSimple w:instr="MERGEFIELD x">{}</w:fldSimple>'.format(run("«a b»"))
LINK = 'HYPERLINK "a"'
# The runs of a paragraph, their translation in reverse, and what the model reads first.
FIELDS = {
    "a link": (
        [run("Read "), field(LINK, run("the page")), run(" now.")],
        [run("NOW. "), field(LINK, run("PAGE THE")), run(" READ")],
        "Read the page now.",
    ),
    "a bold link": (
        [run("Read "), field(LINK, run("the page", BOLD)), run(" now.")],
        [run("NOW. "), field(LINK, run("PAGE THE", BOLD)), run(" READ")],
        "Read the page now.",
    ),
    "a merge field": (
        [run("Dear "), field("MERGEFIELD x", run("«a b»")), run(", go")],
        [run("DEAR "), field("MERGEFIELD x", run("«a b»")), run(", GO")],
        "Dear «a b», go",
    ),
    "a reference": (
        [run("as in "), field("REF x \\h", run("Figure 2")), run(" here")],
        [run("IN AS "), field("REF x \\h", run("Figure 2")), run(" HERE")],
        "as in Figure 2 here",
    ),
    "a simple field": (
        [run("Dear "), SIMPLE, run(" go")],
        [run("DEAR "), SIMPLE, run(" GO")],
        "Dear «a b» go",
    ),
    "another field": (
        [run("a b "), field("TOC x", run("c d")), run(" e f")],
        [run("B A "), field("TOC x", run("D C")), run(" F E")],
        "a b",
    ),
    "a field in a field": (
        [run("a b "), field("TOC x", field(LINK, run("c d "), field("PAGEREF x", run("2"))))],
        [run("B A "), field("TOC x", field(LINK, field("PAGEREF x", run("2")), run(" D C")))],
        "a b",
    ),
    "half a field": ([run("a b "), BEGIN, run(" c d")], [run("B A "), BEGIN, run(" D C")], "a b"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_of_docx_are_part_of_their_sentence(kind):
    runs, expected, seen = FIELDS[kind]
    read = []

    def translate(texts):
        read.extend(texts)
        return reverse(texts)

    assert translated("docx", paragraph(*runs), translate) == paragraph(*expected)
    assert read[0] == seen
    assert translated("docx", paragraph(*runs), copy) == paragraph(*runs)


@pytest.mark.parametrize("space", ["   ", "\t", " \t "])
def test_text_of_a_form_is_translated_apart(space):
    text = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    source = text.format(f"a dog{space}the cat")
    assert translated("pptx", source, reverse) == text.format(f"DOG A{space}CAT THE")


def test_runs_of_docx_move_with_their_words():
    words = run("a "), run("dog", BOLD), run(" ran home")
    expected = run("HOME RAN "), run("DOG", BOLD), run(" A")
    assert translated("docx", paragraph(*words), reverse) == paragraph(*expected)


def test_other_elements_of_docx_stay():
    text = f"<w:p/>{paragraph()}<w:sectPr><w:x>text</w:x></w:sectPr><!-- text -->"
    assert translated("docx", text) == text


def test_runs_of_pptx_are_translated_with_their_properties():
    text = (
        '<a:p><a:pPr lvl="1"/>{}<a:r><a:rPr b="1"/><a:t>{}</a:t></a:r><a:br/><a:fld><a:t>1 '
        "x</a:t></a:fld>{}</a:p>"
    )
    noise, end = (
        '<a:r><a:rPr lang="en" altLang="de" dirty="0" smtClean="0"/><a:t>{}</a:t></a:r>',
        '<a:endParaRPr lang="en"/>',
    )
    source = text.format(noise.format("a d") + "<a:r><a:t>og </a:t></a:r>", "ran", end)
    expected = text.format("<a:r><a:t>A DOG </a:t></a:r>", "RAN", end)
    assert translated("pptx", source) == expected


# Elements and attributes of this name were once names of the reader.
ODD = {
    '<w:p kept="5" style="9"><w:x/></w:p>': None,
    f'<w:p><w:hyperlink style="x" kept="7">{run("a")}</w:hyperlink></w:p>': run("A"),
    f'<w:p><w:smartTag style="99999">{run("a")}</w:smartTag></w:p>': run("A"),
    f"<w:p>{run('a')}<w:textSpan/><w:textMark/><w:textEnd/><w:plain/></w:p>": run("A"),
    f"<w:p><w:textSpan>{run('a')}</w:textSpan></w:p>": run("A"),
}


@pytest.mark.parametrize("text", ODD)
def test_names_of_docx_are_none_of_the_reader(text):
    changed = ODD[text]
    expected = text if changed is None else text.replace(run("a"), changed)
    assert translated("docx", text) == expected


# One piece of a paragraph, and how it becomes a document of many.
PIECES = {
    "tabs": ("docx", "<w:r><w:t>a</w:t><w:tab/></w:r>"),
    "sizes": ("docx", '<w:r><w:rPr><w:sz w:val="{}"/></w:rPr><w:t>a </w:t></w:r>'),
    "runs": ("docx", "<w:r><w:t>a </w:t></w:r>"),
    "fields": ("docx", field("REF", "<w:r><w:t>a </w:t></w:r>").replace(BOLD, "")),
    "begun fields": ("docx", BEGIN + "<w:r><w:instrText>HYPERLINK</w:instrText></w:r>"),
    "bookmarks": ("docx", "<w:bookmarkStart/>"),
    "paragraphs": ("docx", "</w:p><w:p><w:r><w:t>a</w:t></w:r>"),
    "slides": ("pptx", '<a:r><a:rPr b="{}"/><a:t>a </a:t></a:r>'),
    "spans": ("odf", "<t:span>a</t:span> "),
    "emphasis": ("markdown", "*a* "),
    "bold": ("html", "<b>a</b> "),
    "breaks": ("html", "a<br>"),
    "marks": ("html", "<i></i>"),
    "letters": ("html", "v<b>er</b>s "),
}


def many(kind, number):
    """Return a document of so many pieces, and its format."""
    format, piece = PIECES[kind]
    pieces = "a" + "".join(piece.format(index) for index in range(number))
    if format not in MEMBERS:
        return pieces, format
    prefix = {"docx": "w", "pptx": "a", "odf": "t"}[format]
    name, frame = MEMBERS[format]
    text = pieces.removeprefix("a")
    paragraphs = frame % f"<{prefix}:p>{text}</{prefix}:p>"
    return pack((name, paragraphs), ("padding", bytes(len(paragraphs)))), format


def measure(kind, number):
    """Return the calls of Python and the largest memory of the translation of a document."""
    calls, (text, format) = 0, many(kind, number)

    def count(frame, event, argument):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        translate_document(text, format, shout, split_simply)
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    translate_document(text, format, shout, split_simply)
    _, largest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return calls, largest


KEPT = ["tabs", "begun fields", "paragraphs", "slides", "spans", "marks"]


@pytest.mark.parametrize("kind", sample(PIECES, *KEPT))
def test_work_and_memory_grow_with_the_marks(kind):
    measure(kind, 2)  # imports and compiled expressions
    few_calls, few_bytes = measure(kind, 50)
    calls, size = measure(kind, 200)
    assert calls < 5 * few_calls
    assert size < 6 * few_bytes
    assert size < 200 * 6000 + 10**6


ODF = """<o:meta>text</o:meta><t:h>{}</t:h><t:p>{} <t:span>{}</t:span><t:tab/>{}<t:s/>{}</t:p>\
<t:p><d:frame><d:text-box><t:p>{}</t:p></d:text-box><s:desc>{}</s:desc></d:frame></t:p><t:p>{}<t:note><t:note-citation>i</t:note-citation>\
<t:note-body><t:p>{}</t:p></t:note-body></t:note><o:annotation><c:creator>me</c:creator><t:p>{}</t:p></o:annotation>\
<t:page-number>x</t:page-number></t:p>"""


@pytest.mark.parametrize("before", ["Text", "Text "])
def test_spaces_of_opendocument_stay_as_many(before):
    text = "<t:p>{}<t:span><t:s/>{}</t:span></t:p>"
    source, expected = text.format(before, "box here"), text.format(before.upper(), "BOX HERE")
    assert translated("odf", source) == expected


def test_paragraphs_of_opendocument_are_translated():
    words = ["one", "two", "three", "four", "five"]
    words += ["six", "seven", "eight", "nine", "ten"]
    expected = ODF.format(*map(str.upper, words))
    assert translated("odf", ODF.format(*words)) == expected


def epub(language, *texts):
    member = "OEBPS/{}".format
    return [
        ("mimetype", "application/epub+zip"),
        ("META-INF/container.xml", "<container><rootfile full-path='OEBPS/a.opf'/></container>"),
        (member("picture.png"), NOT_UTF_8),
        (
            member("a.opf"),
            f"""<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>
<dc:title>{texts[0]}</dc:title><dc:creator>Me</dc:creator><dc:language>{language}</dc:language></metadata><manifest>
<item href="a%20b.xhtml" media-type="application/xhtml+xml"/>
<item href="gone.xhtml" media-type="application/xhtml+xml"/>
<item href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest></package>""",
        ),
        (
            member("a b.xhtml"),
            f"<html xml:lang='{language}' lang=\"{language}\"><body><p>{texts[1]}</p><p>&nbsp;</p>"
            "</body></html>",
        ),
        (
            member("toc.ncx"),
            f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docAuthor><text>Me</text></docAuthor>'
            f"<navLabel><text>{texts[2]}</text></navLabel></ncx>",
        ),
        (member("other.xhtml"), "<p>no item</p>"),
    ]


def test_pages_and_titles_of_epub_are_translated():
    text = pack(*epub("en", "one", "two", "three"))
    direction = Direction("en", "de")
    text = translate_document(text, "epub", shout, split_simply, direction=direction)
    archive = unpack(text)
    expected = epub("de", "ONE", "TWO", "THREE")
    for name, (expected_name, content) in zip(archive.namelist(), expected, strict=True):
        assert name == expected_name
        content = content if isinstance(content, bytes) else content.encode()
        assert archive.read(name) == content
    assert archive.infolist()[0].compress_type == ZIP_STORED
    container = archive.getinfo("META-INF/container.xml")
    assert container.compress_type == ZIP_DEFLATED


def test_pages_of_epub_are_in_the_order_of_the_language():
    parts = dict(epub("en", "one", "two", "three"))
    package = parts["OEBPS/a.opf"]
    forms = {"ar": '<spine page-progression-direction="rtl" toc="t"/>', "en": '<spine toc="t"/>'}
    for source, target in (("en", "ar"), ("ar", "en")):
        spine = forms[source].replace("rtl", "rtl" if source == "ar" else "")
        parts["OEBPS/a.opf"] = package.replace("</package>", f"{spine}</package>")
        direction = Direction(source, target)
        text = translate_document(
            pack(*parts.items()), "epub", shout, split_simply, direction=direction
        )
        archive = unpack(text)
        order = {"ar": "rtl", "en": "ltr"}[target]
        assert (
            f'<spine page-progression-direction="{order}"' in archive.read("OEBPS/a.opf").decode()
        )
        page = archive.read("OEBPS/a b.xhtml").decode()
        assert ('<html dir="rtl" ' in page) is (target == "ar")


PARAGRAPH = "<w:p>{}{}</w:p>"
BIDI = [
    ("", "<w:pPr><w:bidi/></w:pPr>"),
    ('<w:pPr><w:jc w:val="left"/></w:pPr>', '<w:pPr><w:bidi/><w:jc w:val="left"/></w:pPr>'),
    (
        '<w:pPr><w:pStyle w:val="a"/><w:spacing/></w:pPr>',
        '<w:pPr><w:pStyle w:val="a"/><w:bidi/><w:spacing/></w:pPr>',
    ),
]


@pytest.mark.parametrize(("before", "after"), BIDI)
def test_paragraphs_of_docx_have_the_direction_of_the_language(before, after):
    def translate(properties, direction):
        page = DOCUMENT % PARAGRAPH.format(properties, run("a dog"))
        text = pack(("word/document.xml", page))
        text = translate_document(text, "docx", shout, split_simply, direction=direction)
        return unpack(text).read("word/document.xml").decode()

    written = DOCUMENT % PARAGRAPH.format(after, run("A DOG"))
    assert translate(before, Direction("en", "ar")) == written
    assert translate(after, Direction("en", "ar")) == written
    assert translate(after, Direction()) == written
    back = translate(after, Direction("ar", "en"))
    written = DOCUMENT % PARAGRAPH.format(before, run("A DOG"))
    assert back.replace("<w:pPr/>", "") == written


STYLES = (
    '<p:presentation xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    f' xmlns:a="{DRAWING}"><a:lvl1pPr{{}}/><a:lvl2pPr algn="ctr"{{}}/><a:t>kept</a:t>'
    "</p:presentation>"
)
LEFT, RIGHT = ' algn="l" rtl="0"', ' algn="r" rtl="1"'
SLIDES = [  # properties of a paragraph for languages from the left and from the right
    (f"<a:pPr{LEFT}/>", f"<a:pPr{RIGHT}/>"),
    ('<a:pPr algn="just" rtl="0"/>', '<a:pPr algn="just" rtl="1"/>'),
]


@pytest.mark.parametrize(("left", "right"), SLIDES)
def test_slides_and_their_styles_have_the_direction_of_the_language(left, right):
    def write(properties, of_style, side, text):
        slide = SLIDE % f"<a:p>{properties}<a:r><a:t>{text}</a:t></a:r></a:p>"
        styles = STYLES.format(of_style, f' rtl="{side}"')
        return [("ppt/slides/slide1.xml", slide), ("ppt/slideMasters/slideMaster1.xml", styles)]

    def translate(members, direction):
        text = translate_document(pack(*members), "pptx", shout, split_simply, direction=direction)
        archive = unpack(text)
        return [(name, archive.read(name).decode()) for name in archive.namelist()]

    source, turned = write(left, LEFT, 0, "a dog"), write(right, RIGHT, 1, "A DOG")
    assert translate(source, Direction("en", "ar")) == turned
    assert translate(source, Direction("en", "de")) == write(left, LEFT, 0, "A DOG")
    assert translate(source, Direction()) == write(left, LEFT, 0, "A DOG")
    assert translate(turned, Direction("ar", "he")) == turned
    back = write(left, LEFT, 0, "A DOG")
    assert translate(turned, Direction("ar", "en")) == back


def test_styles_of_opendocument_have_the_direction_of_the_language():
    styles = (
        f'<o:document-styles xmlns:o="{OFFICE}:office:1.0" xmlns:style="{OFFICE}:style:1.0">'
        '<style:paragraph-properties style:writing-mode="{0}"/><style:paragraph-properties/>'
        "<style:page-layout-properties style:x=\"y\" style:writing-mode='{0}' />"
        '<style:graphic-properties style:writing-mode="page"/></o:document-styles>'
    )

    def translate(text, source, target):
        text = pack(("content.xml", CONTENT % "<t:p>a</t:p>"), ("styles.xml", text))
        direction = Direction(source, target)
        text = translate_document(text, "odf", shout, split_simply, direction=direction)
        return unpack(text).read("styles.xml").decode()

    left, right = styles.format("lr-tb"), styles.format("rl-tb")
    assert translate(left, "en", "ar") == right
    assert translate(left, "en", "de") == translate(left, None, None) == left
    assert translate(right, "ar", "fa") == right
    assert translate(right, "ar", "en") == left


def test_members_keep_their_encoding():
    page = DOCUMENT.replace("?>", ' encoding="UTF-16"?>') % paragraph(run("a dög"))
    text = pack(("word/document.xml", page.encode("utf-16")))
    archive = unpack(translate_document(text, "docx", shout, split_simply))
    member = archive.read("word/document.xml")
    assert member.decode("utf-16") == page.replace("a dög", "A DÖG")


def test_a_copied_zip_has_the_same_members():
    text = pack(*epub("en", "one", "two", "three"))
    text = text[:-2] + "\x03\0abc"  # a comment and its length
    document = translate_document(text, "epub", copy, split_simply)
    assert document == text


ENTITY = '<!DOCTYPE x [<!ENTITY e "b">]>' + DOCUMENT.partition("?>")[2]
LONG = f"<w:rPr>{'<w:b/>' * 2000}</w:rPr>"
DOCX = pack(("word/document.xml", DOCUMENT % paragraph(run("a dog"))))
TWICE = pack(("word/document.xml", "<a/>"), ("word/documents.xml", "<a/>"))
ENCRYPTED = bytearray(DOCX.encode("latin-1"))
ENCRYPTED[DOCX.rindex("PK\1\2") + 8] |= 1
PROTECTED = ("META-INF/manifest.xml", "<manifest:encryption-data/>")
REFUSED = {
    "no zip": (
        "docx",
        "a dog",
        "The file must be DOCX, a zip, but it cannot be read: File is not a zip file.",
    ),
    "letters": ("docx", "\u3042", "The file must be DOCX, a zip, but"),
    "another format": ("odf", DOCX, "it has no member content.xml"),
    "a cut file": ("docx", DOCX[:-30], "File is not a zip file"),
    "damage": ("docx", DOCX[:60] + "x" + DOCX[61:], "cannot be read"),
    "a password": ("docx", ENCRYPTED.decode("latin-1"), "encrypted"),
    "encryption": ("odf", pack(("content.xml", b"\xff"), PROTECTED), "it is encrypted"),
    "a bomb": (
        "docx",
        pack(("word/document.xml", " " * 10**7)),
        "10,000,000 bytes unpacked, more than the limit of",
    ),
    "malformed XML": (
        "docx",
        pack(("word/document.xml", "<a>")),
        "word/document.xml: The text must be well-formed XML",
    ),
    "two members of a name": (
        "docx",
        TWICE.replace("documents.xml", "document.xml\0"),
        "it has several members word/document.xml",
    ),
    "an entity": (
        "docx",
        pack(("word/document.xml", ENTITY % paragraph(run("a &e; c")))),
        "word/document.xml: DOCX and PPTX must have no entities, but line 2 has &e;.",
    ),
    "an element of ours": (
        "docx",
        pack(("word/document.xml", DOCUMENT % paragraph("<w:vanilla-span/>"))),
        "must not begin with vanilla-, but in line 2 one does.",
    ),
    "an attribute of ours": (
        "docx",
        pack(("word/document.xml", DOCUMENT % '<w:p vanilla-kept="5"/>')),
        "must not begin with vanilla-, but in line 2 one does.",
    ),
    "long properties": (
        "docx",
        pack(("word/document.xml", DOCUMENT % paragraph(run("a", LONG)))),
        "The properties of a run must have at most 10,000 bytes, but they have 1",
    ),
    "as HTML": ("html", DOCX, "A file of the format html must be text, got a zip."),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_zip_that_cannot_be_read_is_refused_in_one_line(kind):
    format, text, said = REFUSED[kind]
    with pytest.raises(UserError) as raised:
        parse_document(text, format)
    assert said in str(raised.value) and "\n" not in str(raised.value)
