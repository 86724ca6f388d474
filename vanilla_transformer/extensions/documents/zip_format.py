"""DOCX, PPTX, OpenDocument and EPUB: zips, of which some members are XML or HTML with text that
readers see.
"""

import hashlib
import lzma
import posixpath
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy, deepcopy
from io import BytesIO
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zipfile import BadZipFile, ZipFile

from vanilla_transformer.decoding.protection.blocks import Block, Document
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import decode_document, fit_encoding
from vanilla_transformer.text.changes import Segment
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, name_language
from vanilla_transformer.text.xml_tree import DECLARATION, local_name, parse_xml

from .html_format import HtmlDocument
from .source_text import SourceDocument
from .xml_format import XML_SPACE, XmlDocument

if TYPE_CHECKING:
    from lxml.etree import _Element

# Bytes in any case, and times the bytes of the file
_LEAST_EXPANSION, _LARGEST_EXPANSION = 2**20, 100
_CONTAINER = "META-INF/container.xml"  # of EPUB, with the names of its packages
_ENCRYPTIONS = "META-INF/encryption.xml", "META-INF/manifest.xml"
_DRAWINGS = r"charts/chart|diagrams/(?:data|drawing)"
# The name of each format, a member that its files have, and the members that are translated.
_ZIP_FORMATS = {
    "docx": (
        "DOCX",
        "word/",
        rf"word/(?:document|header|footer|footnotes|endnotes|comments|{_DRAWINGS})\d*\.xml",
    ),
    "pptx": ("PPTX", "ppt/", rf"ppt/(?:slides/slide|notesSlides/notesSlide|{_DRAWINGS})\d*\.xml"),
    "odf": ("OpenDocument", "content.xml", r"(?:content|styles)\.xml"),
    "epub": ("EPUB", _CONTAINER, ""),
}
_OF_EPUB: dict[str, type[SourceDocument]] = {
    "application/xhtml+xml": HtmlDocument,
    "application/x-dtbncx+xml": XmlDocument,
}
# With the styles of slides
_STYLES = r"ppt/(?:presentation|(?:slide|notes)Masters/\w+|slideLayouts/\w+)\.xml"
# Other fields than those below begin and end where they did.
_BREAKS = {"br", "cr", "fldChar", "instrText", "ptab", "tab"}
# Readers see nothing of these.
_OF_PROOFING = {"altLang", "bmk", "dirty", "err", "lang", "noProof", "smtClean"}
# The properties of a paragraph that precede its direction
_BEFORE_BIDI = {"pStyle", "keepNext", "keepLines", "pageBreakBefore", "framePr", "widowControl"}
_BEFORE_BIDI |= {"numPr", "suppressLineNumbers", "pBdr", "shd", "tabs", "suppressAutoHyphens"}
_BEFORE_BIDI |= {"kinsoku", "wordWrap", "overflowPunct", "topLinePunct", "autoSpaceDE"}
_BEFORE_BIDI |= {"autoSpaceDN"}
# Names of elements and attributes while they are translated; no file may have such names.
_OURS = "vanilla-"
_KEPT, _STYLE = f"{_OURS}kept", f"{_OURS}style"
_SPAN, _MARK, _END, _PLAIN = (f"{_OURS}{name}" for name in ("span", "mark", "end", "plain"))
_LINK, _FIELD, _CODE = (f"{_OURS}{name}" for name in ("link", "field", "code"))
_RUBY = f"{_OURS}ruby"
# Fields whose text is part of a sentence; but for links it is kept.
_FIELDS = dict.fromkeys(["MERGEFIELD", "NUMPAGES", "PAGE", "PAGEREF", "REF", "SEQ"], _FIELD)
_FIELDS["HYPERLINK"] = _LINK
_KIND = "string(*/@*[local-name() = 'fldCharType'])"
_INSTRUCTION = "string(*[local-name() = 'instrText'])"
_HAS_OURS = f"starts-with(local-name(), '{_OURS}')"
_PARAGRAPHS = "/descendant::*[local-name() = 'p' and descendant::*[local-name() = 'r']]"
# Bytes of the properties of a run, which each piece of its text gets.
_LONGEST_PROPERTIES = 10_000
# Names of what another member or another part defines, such as links and styles
_FOREIGN = re.compile(r"(?:r:\w+|style-name)=\"[^\"]*\"")
_UNREADABLE = (RuntimeError, EOFError, OSError, KeyError, UnicodeError, zlib.error, lzma.LZMAError)


class ZipDocument(Document):
    """
    The blocks of the members of a zip that readers see. All other members stay, and so do the order
    and compression.

    Args:
        text: The bytes of the file, as Latin-1.
        form: One of `docx`, `pptx`, `odf`, `epub`.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION, form: str = "docx"):
        name, main, _ = _ZIP_FORMATS[form]
        try:
            content = text.encode("latin-1")
            self._archive = ZipFile(BytesIO(content))
            size = sum(info.file_size for info in self._archive.infolist())
            largest = max(_LARGEST_EXPANSION * len(content), _LEAST_EXPANSION)
            if size > largest:
                raise BadZipFile(
                    f"it has {size:,} bytes unpacked, more than the limit of {largest:,}"
                )
            counts = Counter(self._archive.namelist())
            if twice := [name for name, count in counts.items() if count > 1]:
                raise BadZipFile(f"it has several members {twice[0]}")
            if not any(name.startswith(main) for name in counts):
                raise BadZipFile(f"it has no member {main}")
            if damaged := self._archive.testzip():
                raise BadZipFile(f"{damaged} is damaged")
            kinds = self._find_parts(form)
            sources = {name: decode_document(self._archive.read(name), name) for name in kinds}
        except (*_UNREADABLE, BadZipFile) as error:
            raise UserError(
                f"The file must be {name}, a zip, but it cannot be read: {error}."
            ) from None
        self._parts = dict[str, tuple[SourceDocument, str]]()  # with their encodings
        for name, (source, encoding) in sources.items():
            try:
                self._parts[name] = kinds[name](source, direction), encoding
            except UserError as error:
                raise UserError(f"{name}: {error}") from None
        self.blocks = [block for document, _ in self._parts.values() for block in document.blocks]

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the zip with translated blocks, as Latin-1."""
        rest, written, rendered = iter(blocks), BytesIO(), dict[str, bytes]()
        for name, (document, encoding) in self._parts.items():
            text = document.render([*islice(rest, len(document.blocks))])
            rendered[name] = fit_encoding(text, encoding).encode(encoding)
        with ZipFile(written, "w") as archive:
            archive.comment = self._archive.comment
            for info in self._archive.infolist():
                content = rendered.get(info.filename)
                new_content = self._archive.read(info) if content is None else content
                archive.writestr(copy(info), new_content)
        return written.getvalue().decode("latin-1")

    def segments(self) -> list[Segment]:
        parts = [document.segments() for document, _ in self._parts.values()]
        return list(chain.from_iterable(parts))

    def pair(self, earlier: Document, translation: Document) -> list[tuple[Segment, Segment]]:
        assert isinstance(translation, ZipDocument)
        kept = dict[str, list[Any]]()
        for document, _ in translation._parts.values():
            kept |= getattr(document, "kept", {})
        for document, _ in self._parts.values():
            if isinstance(document, RunDocument):
                document.kept = kept | document.kept
        pairs = list[tuple[Segment, Segment]]()
        for before, after in super().pair(earlier, translation):
            if not {*_FOREIGN.findall(after.written)} <= {*_FOREIGN.findall(before.written)}:
                before = before._replace(written="")  # its translation cannot be kept
            pairs.append((before, after))
        return pairs

    def _find_parts(self, form: str) -> dict[str, Any]:
        """Return the members that are translated, with the classes that read them."""
        names, read = dict.fromkeys(self._archive.namelist()), self._archive.read
        kind = XmlDocument if form == "odf" else RunDocument
        parts = dict[str, Any]()
        for name in names:
            if re.fullmatch(_ZIP_FORMATS[form][2], name):
                parts[name] = kind
            elif form == "pptx" and re.fullmatch(_STYLES, name):
                parts[name] = StyleDocument
        packages = parse_xml(read(_CONTAINER)).iter("{*}rootfile") if form == "epub" else ()
        for package in [rootfile.get("full-path", "") for rootfile in packages]:
            parts[package] = PackageDocument
            for item in parse_xml(read(package)).iter("{*}item"):
                folder = posixpath.dirname(package)
                path = posixpath.join(folder, unquote(item.get("href", "")))
                name, media_type = posixpath.normpath(path), item.get("media-type")
                if name in names and media_type in _OF_EPUB:
                    parts[name] = _OF_EPUB[media_type]
        encryptions = [name for name in _ENCRYPTIONS if name in names]
        listed = "".join(read(name).decode(errors="replace") for name in encryptions)
        encrypted = {*re.findall('URI="([^"]*)"', listed)}
        if "encryption-data" in listed or not encrypted.isdisjoint(parts):
            raise BadZipFile("it is encrypted")
        return parts


class PackageDocument(XmlDocument):
    """The titles in a package of EPUB, whose language becomes the target language, and the order
    of its pages.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text, direction)
        named = (
            after
            for token, after in pairwise(self.tokens)
            if (token.kind, token.name) == ("open", "dc:language")
        )
        for spine in self.tokens:
            if (spine.kind, spine.local_name) == ("open", "spine"):
                self.write_side(spine, "page-progression-direction", is_root=True)
        if direction.target and (token := next(named, None)) and token.kind == "text":
            language = name_language(direction.target)
            self.replaced.append((token.start, token.end, language))


class StyleDocument(XmlDocument):
    """A member of PPTX of which nothing but the direction of lines changes."""

    def _add_block(self, *_: object) -> None:
        """Add no block."""


class RunDocument(XmlDocument):
    """
    The blocks of a member of DOCX or PPTX.

    All text of a paragraph is in runs with properties. While it is translated, text with the
    properties that most of it has is in the paragraph itself, and other text is in spans.

    Attributes:
        kept: Elements by the name that the simplified text has for them, which follows from their
            content, so that it is the same in two versions.
    """

    # Runs of spaces are the layout of forms.
    special = r"(?P<line>[ \t]{3,}+| ?\t ?)|(?P<space> {2})"

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        from lxml import etree

        root, declaration = parse_xml(text).getroot(), DECLARATION.match(text)
        _check_names(root)
        self._declaration = declaration[0] if declaration else ""
        self.kept = {"0": list[Any]()}
        for paragraph in root.xpath(_PARAGRAPHS):
            space = paragraph.tag.removesuffix("p")
            texts = defaultdict[Any, list[str]](list)
            self._simplify(paragraph, space, texts)
            lengths = Counter[str]()
            for span, pieces in texts.items():
                span.text = "".join(pieces)
                lengths[span.get(_STYLE)] += len(span.text)
            paragraph.set(_STYLE, max(lengths, key=lambda style: lengths[style], default="0"))
            for span in texts:
                if span.get(_STYLE) == paragraph.get(_STYLE):
                    span.tag = f"{space}{_PLAIN}"
            etree.strip_tags(paragraph, f"{space}{_PLAIN}")
            self._keep_ends(paragraph, space)
        super().__init__(etree.tostring(root, encoding="unicode"), direction)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        from lxml import etree

        root = parse_xml(super().render(blocks)).getroot()
        for paragraph in root.xpath(f"/descendant::*[local-name() = 'p' and @{_KEPT}]"):
            space = paragraph.tag.removesuffix("p")
            self._restore(paragraph, space, paragraph.attrib.pop(_STYLE))
            names = [f"{space}{name}" for name in (_SPAN, _MARK, _END, _LINK, _FIELD)]
            etree.strip_tags(paragraph, *names)
            if self.side and "word" in space:
                _write_bidi(paragraph, space, self.side == "rtl")
        written = etree.tostring(root, encoding="unicode")
        # Properties of paragraphs were no part of the text.
        turned = StyleDocument(written, self._direction).render(()) if self.turns else written
        return self._declaration + turned

    def _keep_ends(self, paragraph: "_Element", space: str) -> None:
        """Let marks before and after all else in a paragraph stay there."""
        marks, end = {f"{space}{_MARK}", f"{space}{_END}"}, f"{space}{_END}"
        for mark in paragraph if not paragraph.text else ():
            if mark.tag not in marks:
                break
            mark.tag = end
            if mark.tail:
                break
        for mark in reversed(paragraph):
            if mark.tail or mark.tag not in marks:
                break
            mark.tag = end

    def _simplify(self, parent: "_Element", space: str, texts: dict[Any, list[str]]) -> None:
        """Replace runs by spans, which neighbors with the same properties share, and by marks."""
        children = [*parent]
        properties = [child for child in parent if local_name(child).endswith("Pr")]
        parent[:], parent.text = [], None
        parent.set(_KEPT, self._keep(properties))
        for child in children:
            name, child.tail = local_name(child), None
            if child.tag == f"{space}r":
                self._simplify_run(parent, space, child, texts)
            elif name not in ("moveFrom", "r") and child.find(f".//{space}r/{space}t") is not None:
                self._simplify(child, space, texts)
                parent.append(child)
            elif not name.endswith("Pr") and name != "proofErr":
                self._add_mark(parent, space, child, name)
        self._nest_fields(parent, space)

    def _nest_fields(self, parent: "_Element", space: str) -> None:
        """Put each field with text of a sentence into an element."""
        opened = list[list[tuple[Any, Any]]]()
        for mark in [*parent.iterchildren(f"{space}br")]:
            (run,) = self.kept[mark.get(_KEPT)]
            kind = run.xpath(_KIND)
            if kind == "begin":
                opened.append([])
            if opened and (kind or run.xpath(_INSTRUCTION)):
                opened[-1].append((mark, run))
            if kind == "end" and opened:
                marks = opened.pop()
                instruction = "".join(run.xpath(_INSTRUCTION) for _, run in marks)
                name = _FIELDS.get(" ".join(instruction.split()[:1]))
                if name:
                    field = parent.makeelement(f"{space}{name}")
                    marks[0][0].addprevious(field)
                    while mark.getparent() is parent:
                        field.append(field.getnext())
                    for code, _ in marks:
                        code.tag = f"{space}{_CODE}"

    def _simplify_run(
        self, parent: "_Element", space: str, run: "_Element", texts: dict[Any, list[str]]
    ) -> None:
        style = self._find_style(run)
        for piece in [piece for piece in run if local_name(piece) not in ("", "rPr")]:
            piece.tail = None
            if piece.tag == f"{space}t":
                span = next(parent.iterchildren(reversed=True), None)  # the last one
                if span is None or span.get(_STYLE) != style:
                    span = parent.makeelement(f"{space}{_SPAN}", {_STYLE: style})
                    parent.append(span)
                texts[span].append(piece.xpath("string()"))  # also after comments
                continue
            part, base = run.makeelement(run.tag), piece.find(f"{space}rubyBase")
            part.extend([*map(deepcopy, run.iterchildren(f"{space}rPr")), piece])
            if base is None:
                self._add_mark(parent, space, part, local_name(piece))
            else:  # text of the paragraph; its reading stays
                self._simplify(base, space, texts)
                parent.append(base)
                base.set(_RUBY, self._keep([part]))

    def _add_mark(self, parent: "_Element", space: str, element: "_Element", name: str) -> None:
        if name in _BREAKS:
            kept = self._keep([element])
            parent.append(parent.makeelement(f"{space}br", {_KEPT: kept}))
        else:  # there may be paragraphs in it; the outer one may become an end
            parent.append(parent.makeelement(f"{space}{_MARK}"))
            parent[-1].append(parent.makeelement(f"{space}{_MARK}"))
            parent[-1][0].append(element)

    def _find_style(self, run: "_Element") -> str:
        """Return the number of the properties of a run that readers see."""
        from lxml import etree

        properties = deepcopy(run.find("{*}rPr"))
        if properties is None:
            return "0"
        for name in _OF_PROOFING & {*properties.attrib}:
            del properties.attrib[name]
        properties[:] = [child for child in properties if local_name(child) not in _OF_PROOFING]
        key = etree.tostring(properties) if len(properties) or properties.attrib else b""
        if len(key) > _LONGEST_PROPERTIES:
            raise UserError(
                f"The properties of a run must have at most {_LONGEST_PROPERTIES:,} bytes, but "
                f"they have {len(key):,}."
            )
        return self._keep([properties]) if key else "0"

    def _keep(self, elements: list[Any]) -> str:
        from lxml import etree

        content = b""
        for element in elements:
            content += etree.tostring(element, with_tail=False)
        name = hashlib.blake2b(content, digest_size=12).hexdigest() if elements else "0"
        self.kept.setdefault(name, elements)
        return name

    def _restore(self, parent: "_Element", space: str, style: str) -> None:
        """Write the text of a simplified element in runs of a style again."""
        from lxml import etree

        pieces = list[Any]()

        def add_run(text: str | None) -> None:
            if text:
                pieces.append(parent.makeelement(f"{space}r"))
                pieces[-1].extend(map(deepcopy, self.kept[style]))
                attributes = {XML_SPACE: "preserve"} if "word" in space else {}
                etree.SubElement(pieces[-1], f"{space}t", attributes).text = text

        add_run(parent.text)
        for child in [*parent]:
            tail, child.tail = child.tail, None
            if child.tag in (f"{space}br", f"{space}{_CODE}"):
                pieces += map(deepcopy, self.kept[child.get(_KEPT)])
            else:
                ruby = self.kept[child.attrib.pop(_RUBY, "0")]
                if child.tag not in (f"{space}{_MARK}", f"{space}{_END}"):
                    self._restore(child, space, child.get(_STYLE, style))
                pieces.append(child)
                for part in map(deepcopy, ruby):
                    part[-1].append(child)
                    pieces[-1] = part
            add_run(tail)
        kept = [*map(deepcopy, self.kept[parent.attrib.pop(_KEPT, "0")])]
        first = [element for element in kept if local_name(element) != "endParaRPr"]
        parent[:] = [*first, *pieces, *kept[len(first) :]]
        parent.text = None


def _write_bidi(paragraph: "_Element", space: str, is_right_to_left: bool) -> None:
    """Write into the properties of a paragraph of DOCX whether it is from right to left."""
    properties = paragraph.find(f"{space}pPr")
    if properties is None:
        properties = paragraph.makeelement(f"{space}pPr")
        paragraph[:0] = [properties] * is_right_to_left
    for mark in [*properties.iterchildren(f"{space}bidi")]:
        properties.remove(mark)
    count = sum(local_name(child) in _BEFORE_BIDI for child in properties)
    properties[count:count] = [properties.makeelement(f"{space}bidi")] * is_right_to_left


def _check_names(root: "_Element") -> None:
    """Refuse elements and attributes with names of this module, and entities, which
    Office has not.
    """
    from lxml import etree

    for name in root.xpath(f"/descendant::*[{_HAS_OURS} or @*[{_HAS_OURS}]]"):
        raise UserError(
            f"Names of elements and attributes must not begin with {_OURS}, but in line "
            f"{name.sourceline} one does."
        )
    for entity in root.iter(etree.Entity):
        raise UserError(
            f"DOCX and PPTX must have no entities, but line {entity.sourceline} has {entity.text}. "
            "Write their text instead."
        )
