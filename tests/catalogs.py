"""PO files for tests of their translation."""

from tests.document_translation import shout, translate_document
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.text.languages import Direction

HEADER = """msgid ""
msgstr ""
"Project-Id-Version: x 1\\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\\n"
"Last-Translator: me\\n"
"Language-Team: us\\n"
"Language: {}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
{}
"""
PO = (
    HEADER.format("de", '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n')
    + """# A note
#. Of the program
#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open %s now."
msgstr ""

#, fuzzy
msgid "New"
msgstr "Alt"

msgid "A dog"
msgstr "Ein   "
"Hund"

#, python-format
msgid "%(n)d dog"
msgid_plural "%(n)d dogs"
msgstr[0] ""
msgstr[1] ""

msgid "\\n  Two\\nlines.\\n"
msgstr ""

#~ msgid "Gone"
#~ msgstr "Weg"
"""
)
_ENTRY = '\n#, c-format\nmsgid "{}"\nmsgid_plural "{}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
PLURALS = (
    HEADER.format("", "") + _ENTRY.format("one dog", "%d dogs") + _ENTRY.format("%d cat", "%d cats")
)
# Language → the forms of "one dog", "%d dogs" (an argument that numbers other than 1 need) and of
# "%d cat", "%d cats".
FORMS = {
    "de": ("ONE DOG|%d DOGS", "%d CAT|%d CATS"),
    "fr": ("ONE DOG|%d DOGS", "%d CAT|%d CATS"),
    "ja": ("%d DOGS", "%d CATS"),
    "ru": ("%d DOGS|%d DOGS|%d DOGS", "%d CAT|%d CATS|%d CATS"),
    "ar": (
        "%d DOGS|ONE DOG|" + "|".join(["%d DOGS"] * 4),
        "%d CATS|%d CAT|" + "|".join(["%d CATS"] * 4),
    ),
}


def translate(text, form, target=None):
    return translate_document(
        text, form, shout, AbbreviationSplitter(), direction=Direction(None, target)
    )
