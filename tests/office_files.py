"""Files of office programs, built as zips of their smallest members."""

from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DOCUMENT = f'<?xml version="1.0"?>\n<w:document xmlns:w="{W}"><w:body>%s</w:body></w:document>'
BOLD = "<w:rPr><w:b/></w:rPr>"


def pack(*members):
    """Return the text of a zip of members that are stored, and deflated if their names end with
    `.xml`.
    """
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for name, content in members:
            kind = ZIP_DEFLATED if name.endswith(".xml") else ZIP_STORED
            archive.writestr(name, content, kind)
    return file.getvalue().decode("latin-1")


def unpack(text):
    return ZipFile(BytesIO(text.encode("latin-1")))


def run(text, properties=""):
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs):
    return f'<w:p><w:pPr><w:jc w:val="left"/></w:pPr>{"".join(runs)}</w:p>'
