"""`translate --format` writes a document, and answers mistakes by one line before a model is
loaded.
"""

import copy
import gzip
import io
import re
import textwrap
import zipfile

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.decoding import answers
from vanilla_transformer.extensions.documents import commands, html_format
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, store_direction


@pytest.fixture(autouse=True)
def no_warnings(monkeypatch):
    """Find no warnings about the text that random weights write."""
    monkeypatch.setattr(answers, "find_warnings", lambda *arguments: [])


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>A man is <b>sleeping</b> at https://a.example/b.</p><!-- c -->")
    return path


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


@pytest.mark.parametrize("name", ["page.html", "page.HTML.gz"])
def test_translate_writes_a_document(folder, tmp_path, page, capsys, name):
    output = tmp_path / "new" / "page.html"
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(page.read_bytes()))
    flags = ["--input", str(tmp_path / name), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags, "--output", str(output)]) == 0
    written = output.read_text()
    assert written.startswith("<p>") and written.endswith("</p><!-- c -->")
    assert written.count("<b>") == written.count("</b>") == 1
    assert "https://a.example/b" in written
    assert [path.name for path in output.parent.iterdir()] == ["page.html"]
    assert main(["translate", str(folder), *flags]) == 0
    assert capsys.readouterr().out == written


def test_translate_keeps_the_bytes_of_a_page(folder, tmp_path):
    """Name its language as well."""
    page, output = tmp_path / "page.html", tmp_path / "out.html"
    before = "\ufeff<!doctype html>\r\n<html lang='en'>\r\n<p>"
    after = "<p lang=fr>Un homme</p>\r\n<!-- A man --><br />"
    page.write_bytes(f"{before}A man{after}".encode())
    flags = ["--input", str(page), "--output", str(output)]
    flags += ["--format", "html", "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags]) == 0
    written = output.read_bytes().decode()
    assert written.startswith(before) and written.endswith(after)
    assert "A man<p" not in written
    flags += ["--overwrite", "--source_language", "en", "--target_language", "de"]
    assert main(["translate", str(folder), *flags]) == 0
    named = output.read_bytes().decode()
    assert named == written.replace("'en'", "'de'")


@pytest.fixture
def folder_with(tiny_model, tiny_tokenizer, tmp_path):
    """Return a function that writes a model with directions."""

    def write(directions):
        tokenizer = copy.deepcopy(tiny_tokenizer)
        store_direction(tokenizer, directions)
        return save_model_folder(tiny_model, tokenizer, tmp_path / "model")

    return write


def test_translate_knows_the_languages_of_its_model(folder_with, tmp_path, capsys):
    folder = folder_with(EN_DE)
    (tmp_path / "page.html").write_text("<html lang=en><p>A man <p lang=fr>Un homme")
    flags = ["--format", "html", "--max_new_tokens", "5"]
    flags += ["--input", str(tmp_path / "page.html")]
    for further, named in (([], "de"), (["--target_language", "de-AT"], "de-AT")):
        assert main(["translate", str(folder), *flags, *further]) == 0
        written = capsys.readouterr().out
        assert written.startswith(f"<html lang={named}><p>")
        assert written.endswith(" <p lang=fr>Un homme")
    for side, expected in (("source", "en"), ("target", "de")):
        assert main(["translate", str(folder), *flags, f"--{side}_language", "fr"]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        message = f"The {side} language must be {expected}, as of the model, got fr."
        assert error == f"error: {message}"


def test_translate_no_protect_leaves_all_text_to_the_model(folder, page, capsys):
    flags = ["--input", str(page), "--no_protect"]
    flags += ["--format", "html", "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags]) == 0
    assert "https://a.example/b" not in capsys.readouterr().out


def test_translate_reads_and_writes_files_of_text(folder, tmp_path, capsys):
    flags = ["--input", str(tmp_path / "in.txt"), "--max_new_tokens", "5"]
    output = tmp_path / "out.txt"
    for text in ("A man.\n\nTwo dogs.\n", "\n \n\n"):
        (tmp_path / "in.txt").write_text(text)
        assert main(["translate", str(folder), *flags]) == 0
        printed = capsys.readouterr().out
        files = [*flags, "--overwrite", "--output", str(output)]
        assert main(["translate", str(folder), *files]) == 0
        assert output.read_text() == printed and printed.count("\n") == 3
        assert bool(printed.strip()) == bool(text.strip())


def test_translate_names_a_malformed_document(tmp_path, capsys):
    """Keep the old output."""
    source, output = tmp_path / "in.xlf", tmp_path / "out.xlf"
    source.write_text("<xliff><file></xliff>")
    output.write_text("old")
    flags = ["--input", str(source), "--output", str(output), "--overwrite"]
    assert main(["translate", "no/model", "--format", "xliff", *flags]) == 2
    error = capsys.readouterr().err
    assert f"error: {source}: The text must be well-formed XML" in error
    assert "line 1" in error and error.count("\n") == 1
    assert output.read_text() == "old"


VTT = "WEBVTT\n\n00:01.000 --> 00:02.500\nA man.\n"
XML = "<?xml version='1.0' encoding='ISO-8859-1'?>\n<a title='\xe4'><p>A man.</p></a>"
FILES = {
    "a.vtt": ("\ufeff" + VTT).encode("utf-16-be"),
    "a.srt": ("\ufeff1" + VTT[7:]).encode("utf-16-le"),
    "a.xml": XML.encode("latin-1"),
    "a.html": b"<html><meta charset='windows-1252'><p>A man.</p><!-- \x80 -->",
}


def test_translate_names_a_document_that_takes_too_long(monkeypatch, page, capsys):
    def read_endlessly(text, direction):
        re.match(r"(a+)+$", "a" * 60 + "!")

    monkeypatch.setattr(html_format, "HtmlDocument", read_endlessly)
    monkeypatch.setattr(commands, "_SECONDS", 1)
    output = page.with_name("out.html")
    files = ["--input", str(page), "--output", str(output)]
    assert main(["translate", "no/model", *files]) == 2
    message = "The document must be read and written within 1 seconds of the processor."
    assert capsys.readouterr().err == f"error: {page}: {message} Split it.\n"
    assert not output.exists()


@pytest.mark.parametrize("name", FILES)
def test_translate_keeps_the_encoding_of_a_document(folder, tmp_path, capfdbinary, name):
    path, output = tmp_path / name, tmp_path / "new" / name
    path.write_bytes(FILES[name])
    flags = ["--input", str(path), "--max_new_tokens", "3"]
    assert main(["translate", str(folder), *flags, "--output", str(output)]) == 0
    encoding = {"a.vtt": "utf-16-be", "a.srt": "utf-16-le"}.get(name, "ascii")
    before, after = FILES[name].split("A man.".encode(encoding))
    written = output.read_bytes()
    assert written.startswith(before) and written.endswith(after)
    assert written != FILES[name]
    capfdbinary.readouterr()
    assert main(["translate", str(folder), *flags]) == 0
    assert capfdbinary.readouterr().out == written


UNIT = '\ufeff<?xml version="1.0" encoding="utf-8" ?>\r\n<xliff version="1.2">'
UNIT += "<file source-language=\"en\" target-language='{}'><body>\r\n"
UNIT += '<trans-unit id = "1"><source>A man.</source>{}</trans-unit></body></file></xliff>'
EN_DE = [Direction("en", "de")]
TRANSLATED = "Translated 1 of 1 segments. Skipped: none."
TRANSLATED += " 0 messages that break your build; 0 stayed open."
WHOLE = "No segment is open, so the file stays as it is. Skipped: 1 with a translation."
REFUSED = "error: in.xlf: The target language of the file must be de, as of the model,"
REFUSED += " but it is fr. Choose a model for it, or correct the file."
ASKED = "warning: The file asks for fr, and the model does not say what it writes."
ASKED += " Name its language by --target_language."
TO_GERMAN = ["--target_language", "de"]
SEGMENTS = [
    ("de-DE", "", EN_DE, [], 0, [TRANSLATED]),
    ("de-DE", "", EN_DE, ["--quiet"], 0, []),
    ("de", "<target>Ein Mann.</target>", EN_DE, [], 0, [WHOLE]),
    ("fr", "", EN_DE, [], 2, [REFUSED]),
    ("fr", "", [], TO_GERMAN, 2, [REFUSED]),
    ("de", "", [], TO_GERMAN, 0, [TRANSLATED]),
    ("fr", "", [], [], 0, [ASKED, TRANSLATED]),
    ("", "", [], [], 0, [TRANSLATED]),  # the file names no language
]


@pytest.mark.parametrize(
    ("language", "target", "directions", "flags", "status", "messages"), SEGMENTS
)
def test_translate_says_what_it_did_with_segments(
    language, target, directions, flags, status, messages, folder_with, tmp_path, capsys
):
    folder = folder_with(directions)
    text = UNIT.format(language, target)
    source, output = tmp_path / "in.xlf", tmp_path / "out.xlf"
    source.write_bytes(text.encode())
    words = ["--input", str(source), "--output", str(output)]
    words += ["--format", "xliff", "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *words, *flags]) == status
    printed = capsys.readouterr().err.replace(f"{source}:", "in.xlf:")
    assert without_bars(printed) == messages
    assert output.exists() is (status == 0)
    if target:
        assert output.read_bytes() == source.read_bytes()
    elif status == 0:
        written = output.read_bytes().decode()
        start, end = text.split("</trans-unit>")
        assert written.startswith(start + "<target")
        assert written.endswith("</target></trans-unit>" + end)


@pytest.mark.parametrize("directions", [EN_DE, []])
def test_translate_names_the_language_of_xliff_2(directions, folder_with, tmp_path, capsys):
    folder = folder_with(directions)
    text = '<xliff version="2.0" srcLang="en"><file id="a"><unit id="1">'
    text += "<segment><source>A man.</source></segment></unit></file></xliff>"
    source, output = tmp_path / "in.xlf", tmp_path / "out.xlf"
    source.write_text(text)
    flags = ["--input", str(source), "--output", str(output), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags]) == (0 if directions else 2)
    if directions:
        assert '<xliff version="2.0" srcLang="en" trgLang="de"><' in output.read_text()
    else:
        message = "has no attribute `trgLang`. Add it, or name the language by --target_"
        assert message in capsys.readouterr().err
        assert not output.exists()


def without_bars(printed):
    """Return the lines that are no progress bars."""
    return [line for line in printed.splitlines() if line and "%|" not in line]


WRAPPED = "A man and two dogs are sleeping on the grass near a small house while"
WRAPPED += " children are playing with a ball."


@pytest.fixture
def translate_text(folder, tmp_path, capsys, monkeypatch):
    """Return a function that translates a file of text, or standard input, and returns both
    outputs.
    """

    def translate(text, *flags, name="in.txt"):
        path, content = tmp_path / name, text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        if name != "-":
            flags = ["--input", str(path), *flags]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["translate", str(folder), *flags, "--max_new_tokens", "5"]) == 0
        printed = capsys.readouterr()
        return printed.out, without_bars(printed.err)

    return translate


@pytest.mark.parametrize("name", ["in.txt", "in.txt.gz", "-"])
def test_translate_join_lines_finds_wrapped_text(name, translate_text):
    text = textwrap.fill(WRAPPED, 30) + "\n\nTwo dogs.\n"
    joined, printed = translate_text(text, "--join_lines", "auto", name=name)
    message = "The lines are wrapped at 30 characters, so their paragraphs are translated;"
    assert printed == [f"{message} --join_lines no translates each line."]
    flags = ["--join_lines", "auto", "--quiet"]
    assert translate_text(text, *flags, name=name) == (joined, [])
    assert translate_text(text, "--join_lines", "yes", name=name) == (joined, [])
    apart, _ = translate_text(text, name=name)
    assert joined != apart and "\n\n" in joined
    assert max(map(len, joined.split("\n"))) <= 30


@pytest.mark.parametrize("name", ["in.txt", "-"])
def test_translate_join_lines_leaves_other_text(name, translate_text):
    text = "A man.\r\nTwo dogs are sleeping.\r\nGrass.\r\n\r\nTwo.  A man.\r\n"
    flags = "--split_sentences", "--num_beams", "1"
    expected = translate_text(text, *flags, name=name)
    assert translate_text(text, *flags, "--join_lines", "auto", name=name) == expected


def test_translate_writes_a_zip(folder, tmp_path, capsys):
    source, output = tmp_path / "a.odt", tmp_path / "b.odt"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        namespace = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
        archive.writestr("content.xml", f'<p xmlns="{namespace}">A man</p>')
        archive.writestr("picture.png", bytes(range(256)))
    flags = ["translate", str(folder), "--input", str(source), "--max_new_tokens", "5"]
    assert main([*flags, "--output", str(output)]) == 0
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == ["mimetype", "content.xml", "picture.png"]
        assert archive.read("picture.png") == bytes(range(256))
        assert b">A man<" not in archive.read("content.xml")
    source.write_bytes(source.read_bytes()[:-9])
    capsys.readouterr()
    assert main([*flags, "--output", str(output), "--overwrite"]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and zipfile.is_zipfile(output)
    assert main([*flags, "--output", str(tmp_path / "b.docx")]) == 2
    assert "the name" in capsys.readouterr().err


def test_translate_fills_an_existing_translation(folder, tmp_path, capsys):
    source, existing = tmp_path / "en.json", tmp_path / "de.json"
    source.write_text('{\n  "a": "A man.",\n  "b": "Two dogs."\n}\n')
    text = '\ufeff{\r\n  "b":"Zwei Hunde.",\n "c": ""}'
    existing.write_bytes(text.encode("utf-16-le"))
    flags = ["translate", str(folder), "--input", str(source), "--max_new_tokens", "5"]
    flags += ["--existing", str(existing), "--output"]
    assert main([*flags, str(existing)]) == 0
    message = "Translated 1 of 1 missing messages. 0 messages that break your build; 0 stayed open."
    assert f"{message} Kept, but not in the source: 1 (c).\n" in capsys.readouterr().err
    filled = existing.read_bytes()
    before, _, rest = filled.decode("utf-16-le").partition('\r\n  "a": "')
    assert before + rest.partition('",')[2] == text and "A man" not in rest
    other = tmp_path / "new" / "de.json"
    assert main([*flags, str(other)]) == 0
    assert other.read_bytes() == existing.read_bytes() == filled
    assert main([*flags, str(other)]) == 2
    assert "must be a new file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "existing", "words"),
    [
        ("en.json", "de.po", "in its format, such as JSON, got de.po for an --input in the format"),
        ("en.txt", "de.txt", "got de.txt for an --input in the format text."),
        ("en.po", "de.po", "a file with both languages gets what it lacks without it"),
        ("en.docx", "de.docx", "got docx. Leave it out"),
        ("en.json", "de.json", "The existing translation cannot be filled. The text must be JSON"),
        ("en.json", "none.json", "none.json"),
    ],
)
def test_translate_refuses_to_fill_other_files(
    source, existing, words, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in (source, existing):
        if not name.startswith("none"):
            (tmp_path / name).write_text('{"a": "b"' + "}" * name.startswith("en"))
    flags = ["--input", source, "--existing", existing, "--output", existing]
    assert main(["translate", "no/model", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
