"""
The formats of files that are translated as documents or read as parallel text, one row each.

`--help`, the service, corpora and refusals read this table. A new format of documents is a row
here, a module of the extension `documents` and a test.
"""

from dataclasses import dataclass
from typing import Literal

from vanilla_transformer.errors import UserError

_ZIPS = "zip_format:ZipDocument"
_VALUES = "message_format:ValuesDocument"
_TABLES = "table_format:TableDocument"
_CATALOGS = "catalog_format:CatalogDocument"


@dataclass(frozen=True)
class Format:
    """
    A format of files.

    Attributes:
        name: Its name on the command line and in requests.
        endings: Endings of the names of its files, without a compression.
        reader: Module of the extension `documents` and its class, which reads a document and writes
            its translation; empty for lines and rows.
        extra: The extra that has the packages of its readers.
        is_shared: The class reads several formats, and takes the name of this one as `form`.
        is_text: It is text, and not a zip or another binary file.
        names_languages: A document says its language or where its lines begin, or has its plurals.
        is_bilingual: A document has sources and their translations.
        corpus: Files of parallel text: one with both languages, two of messages with the same keys,
            or none.
        store: Module and class of translate-toolkit for its messages.
    """

    name: str
    endings: tuple[str, ...]
    reader: str = ""
    extra: str = "documents"
    is_shared: bool = False
    is_text: bool = True
    names_languages: bool = False
    is_bilingual: bool = False
    corpus: Literal["", "one file", "two files"] = ""
    store: tuple[str, str] | None = None


FORMATS = {
    row.name: row
    for row in (
        Format("text", (".txt",), extra=""),
        Format(
            "html", (".html", ".htm", ".xhtml"), "html_format:HtmlDocument", names_languages=True
        ),
        Format(
            "xml",
            (".xml", ".svg", ".dita", ".ditamap"),
            "xml_format:XmlDocument",
            names_languages=True,
        ),
        Format("markdown", (".md", ".markdown", ".mdx"), "markdown_format:MarkdownDocument"),
        Format("srt", (".srt",), "srt_format:SrtDocument"),
        Format("vtt", (".vtt",), "srt_format:VttDocument"),
        Format(
            "xliff",
            (".xlf", ".xliff", ".sdlxliff", ".mqxliff"),
            "xliff_format:XliffDocument",
            names_languages=True,
            is_bilingual=True,
            corpus="one file",
        ),
        Format(
            "po",
            (".po", ".pot"),
            _CATALOGS,
            is_shared=True,
            names_languages=True,
            is_bilingual=True,
            corpus="one file",
            store=("pypo", "pofile"),
        ),
        Format(
            "ts",
            (".ts",),
            _CATALOGS,
            is_shared=True,
            names_languages=True,
            is_bilingual=True,
            corpus="one file",
            store=("ts2", "tsfile"),
        ),
        Format(
            "xcstrings",
            (".xcstrings",),
            "xcstrings_format:StringCatalogDocument",
            names_languages=True,
            is_bilingual=True,
        ),
        Format(
            "json",
            (".json", ".arb"),
            _VALUES,
            is_shared=True,
            names_languages=True,
            corpus="two files",
            store=("jsonl10n", "JsonNestedFile"),
        ),
        Format("yaml", (".yml", ".yaml"), "yaml_format:YamlDocument", names_languages=True),
        Format(
            "strings",
            (".strings",),
            _VALUES,
            is_shared=True,
            corpus="two files",
            store=("properties", "stringsutf8file"),
        ),
        Format(
            "properties",
            (".properties",),
            _VALUES,
            is_shared=True,
            corpus="two files",
            store=("properties", "javautf8file"),
        ),
        Format(
            "fluent",
            (".ftl",),
            "message_format:FluentDocument",
            corpus="two files",
            store=("fluent", "FluentFile"),
        ),
        Format("resx", (".resx",), "message_format:ResxDocument", corpus="two files"),
        Format(
            "stringsdict",
            (".stringsdict",),
            "stringsdict_format:StringsDictDocument",
            names_languages=True,
        ),
        Format("wrapped", (), "wrapped_text:WrappedText"),
        Format("docx", (".docx",), _ZIPS, is_shared=True, is_text=False, names_languages=True),
        Format("pptx", (".pptx",), _ZIPS, is_shared=True, is_text=False),
        Format("odf", (".odt", ".ods", ".odp"), _ZIPS, is_shared=True, is_text=False),
        Format("epub", (".epub",), _ZIPS, is_shared=True, is_text=False, names_languages=True),
        Format("csv", (".csv",), _TABLES, is_shared=True),
        Format("tsv", (".tsv",), _TABLES, is_shared=True, corpus="one file"),
        Format("jsonl", (".jsonl",), extra="", corpus="one file"),
        Format("tmx", (".tmx",), corpus="one file"),
        Format("parquet", (".parquet",), extra="", is_text=False, corpus="one file"),
        Format("zip", (".zip",), extra="", is_text=False, corpus="one file"),
    )
}
FORMAT_OF_ENDING = {ending: row for row in FORMATS.values() for ending in row.endings}
# What `translate` reads, by the endings of its files, beginning with lines of text.
DOCUMENT_ENDINGS = {
    ending: row.name for ending, row in FORMAT_OF_ENDING.items() if row.reader or row.name == "text"
}
TABLE_FORMATS = [name for name, row in FORMATS.items() if row.reader == _TABLES]
DOCUMENT_FORMATS = [name for name, row in FORMATS.items() if row.reader]


def document_format(name: str) -> Format:
    """Return a format of documents.

    Raises:
        UserError: There is none of this name.
    """
    if name not in DOCUMENT_FORMATS:
        raise UserError(f"`format` must be one of {', '.join(DOCUMENT_FORMATS)}, got {name!r}.")
    return FORMATS[name]


def corpus_endings(corpus: str) -> list[str]:
    """Return the endings of files that are parallel text, see [`Format.corpus`]."""
    return [ending for ending, row in FORMAT_OF_ENDING.items() if row.corpus == corpus]
