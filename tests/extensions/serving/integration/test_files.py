"""`POST /translate_file` and `GET /download_file`, as clients of LibreTranslate use them."""

import asyncio
from io import BytesIO
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from fastapi.testclient import TestClient

from tests.sweeps import sample
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.extensions.documents import DocumentTranslator, translate_document
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.libretranslate import TranslatedFiles, name_translation
from vanilla_transformer.extensions.serving.limits import Limits, Refusal
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS
from vanilla_transformer.text.languages import Direction

LANGUAGES = {"source": "en", "target": "de"}
FILES = {
    "page.html": "<p>Two <b>dogs</b>.</p>",
    "page.XML": "<doc><p>Two dogs.</p></doc>",
    "notes.md": "# Two dogs\n\nA *man*.\n",
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nTwo dogs.\n",
    "film.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nTwo dogs.\n",
    "text.txt": "Two dogs.\n\nA man.",
    "units.xlf": '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file '
    'original="a" datatype="x" source-language="en" target-language="de"><body><trans-unit '
    'id="1"><source>Two dogs.</source></trans-unit>'
    "</body></file></xliff>",
    "app.po": 'msgid "Two dogs."\nmsgstr ""\n',
    "app.json": '{"a": "Two dogs."}',
}


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    options = {"device": "cpu", "max_new_tokens": 8}
    return TranslationPipeline(tiny_model(), tiny_tokenizer, **options)


def serving(pipeline, limits=None, **options):
    documents = DocumentTranslator(pipeline)
    options |= {"known": known_options(pipeline), "documents": documents}
    options |= {"directions": [Direction("en", "de")]}
    translate = translate_with(pipeline, documents)
    service = create_service(translate, limits, **options)
    return TestClient(service, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(pipeline):
    with serving(pipeline) as client:
        yield client


def send(client, name, content, **entries):
    files, data = {"file": (name, content)}, LANGUAGES | entries
    return client.post("/translate_file", files=files, data=data)


def download(client, answer):
    assert answer.status_code == 200, answer.text
    (url,) = answer.json().values()
    assert url.startswith("http://testserver/download_file/")
    return client.get(urlsplit(url).path)


@pytest.mark.parametrize("name", sample(FILES, "page.XML", "film.srt", "text.txt", "units.xlf"))
def test_a_file_is_translated_as_its_text_is(name, client):
    text = FILES[name]
    stem, _, ending = name.partition(".")
    ending = f".{ending}".lower()
    body = {"q": text, **LANGUAGES, "format": DOCUMENT_ENDINGS[ending]}
    expected = client.post("/translate", json=body).json()["translatedText"]
    answer = download(client, send(client, name, text.encode()))
    assert answer.content.decode() == expected != text
    disposition = f"attachment; filename*=utf-8''{stem}.de{ending}"
    assert answer.headers["content-disposition"] == disposition
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("columns", ["text", "2"])
def test_a_table_is_translated_by_its_columns(columns, client):
    content = 'Two dogs.,"Two dogs.",A man.\r\n'
    if columns == "text":
        content = "key,text,note\r\n" + content
    answer = download(client, send(client, "a.csv", content.encode(), columns=columns))
    before, translated, after = answer.content.decode().split('"')
    assert f'{before}"Two dogs."{after}' == content
    assert translated != "Two dogs."
    body = {"text": content, "format": "csv", "columns": columns}
    translations = client.post("/translate", json=body).json()["translations"]
    assert translations == [[answer.content.decode()]]


def send_versions(client, name, *parts):
    """Send files as the entries of a form."""
    files = [(entry, (name, content)) for entry, content in parts]
    return client.post("/translate_file", files=files, data=LANGUAGES)


MESSAGES = '{"a": "Two dogs.", "b": "A man.", "c": "A new house."}'
EARLIER = '{"a": "Two dogs.", "b": "A woman."}'
TRANSLATION = '{"a": "Zwei — Hunde.", "b": "Eine Frau."}'
CATALOG = 'msgid "Two dogs."\nmsgstr "%s"\n\nmsgid "A man."\nmsgstr ""\n'
UPDATES = {
    "existing": ("json", MESSAGES, TRANSLATION, []),
    "existing and previous": ("json", MESSAGES, TRANSLATION, [EARLIER]),
    "previous": ("json", MESSAGES, None, [EARLIER, TRANSLATION]),
    "previous catalog": ("po", CATALOG % "", None, [CATALOG % "Zwei — Hunde."]),
    "previous page": ("markdown", "Two dogs.\n\nA man.", None, ["Two dogs.", "Zwei — Hunde."]),
}


@pytest.mark.parametrize("kind", UPDATES)
def test_versions_of_a_document_have_the_meaning_of_the_command(kind, client, pipeline):
    form, source, existing, previous = UPDATES[kind]
    translate, splitter = pipeline.translate_sentences, find_splitter("abbreviations")
    settings = {"existing": existing, "previous": previous}
    expected = translate_document(
        source, form, translate, splitter, Direction("en", "de"), **settings
    )
    assert "Zwei — Hunde." in expected
    assert "Two dogs." not in expected.replace('msgid "Two dogs."', "")
    body = {"text": source, "format": form, **settings}
    assert client.post("/translate", json=body).json() == {"translations": [[expected]]}
    body = {"q": source, "format": form, **LANGUAGES, **settings}
    assert client.post("/translate", json=body).json() == {"translatedText": expected}
    parts = [("file", source), *(("previous", version) for version in previous)]
    if existing is not None:
        parts.append(("existing", existing))
    answer = send_versions(client, f"a.{'md' if form == 'markdown' else form}", *parts)
    assert download(client, answer).content.decode() == expected


def test_versions_in_a_form_are_in_order(client):
    entries = {"q": "Two dogs.", "format": "markdown", **LANGUAGES}
    entries["previous"] = ["Two dogs.", "Zwei — Hunde."]
    answer = client.post("/translate", data=entries)
    assert answer.json() == {"translatedText": "Zwei — Hunde."}


def test_a_filled_translation_keeps_its_encoding(client):
    parts = ("file", MESSAGES.encode()), ("existing", TRANSLATION.encode("utf-16"))
    content = download(client, send_versions(client, "a.json", *parts)).content
    assert '"a": "Zwei — Hunde."' in content.decode("utf-16")


VERSIONS_REFUSED = {
    "one of two": ([("previous", EARLIER)], "must be the earlier version and its translation"),
    "too many": ([("previous", EARLIER)] * 4, "Too many files. Maximum number of files is 4."),
    "a damaged one": ([("existing", "{")], "The existing translation cannot be filled."),
    "bytes": ([("existing", b"\xff")], "`existing` must be UTF-8, but"),
}


@pytest.mark.parametrize("kind", VERSIONS_REFUSED)
def test_versions_are_refused_in_one_line(kind, client):
    parts, said = VERSIONS_REFUSED[kind]
    answer = send_versions(client, "a.json", ("file", MESSAGES), *parts)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_an_earlier_version_without_its_translation_is_refused(client):
    body = {"text": "a", "format": "markdown", "previous": "b"}
    answer = client.post("/translate", json=body)
    expected = {"detail": "`previous` must be a list of texts, got 'b'."}
    assert (answer.status_code, answer.json()) == (422, expected)


@pytest.mark.parametrize("body", [{"text": "a"}, {"text": ["a", "b"], "format": "markdown"}])
def test_versions_are_for_one_document(body, client):
    for name, value in {"existing": "b", "previous": ["a", "b"]}.items():
        answer = client.post("/translate", json=body | {name: value})
        reason = answer.json()["detail"]
        assert answer.status_code == 422
        assert reason.startswith("`existing` and `previous` are for one document, got ")


@pytest.mark.parametrize("encoding", ["utf-16-le", "latin-1"])
def test_a_file_keeps_its_encoding(client, encoding):
    mark, name = ("\ufeff", "UTF-16") if encoding == "utf-16-le" else ("", "ISO-8859-1")
    before, after = f"{mark}<?xml version='1.0' encoding='{name}'?>\n<a>", "</a><!-- ä -->"
    content = f"{before}Two dogs.{after}".encode(encoding)
    answer = download(client, send(client, "a.xml", content))
    assert answer.content.startswith(before.encode(encoding))
    assert answer.content.endswith(after.encode(encoding))


def test_a_request_joins_the_lines_of_wrapped_text(client):
    def translate(text):
        body = {"q": text, **LANGUAGES, "format": "wrapped"}
        answer = client.post("/translate", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["translatedText"]

    lines = "Two dogs run and a man\r\nis sleeping on the grass.\r\n\r\nA man."
    joined = translate(lines)
    flat = translate("Two dogs run and a man is sleeping on the grass.\r\n\r\nA man.")
    last_line = flat.split("\r\n")[-1]
    assert joined.split() == flat.split()
    assert joined.endswith(f"\r\n\r\n{last_line}")


def test_a_file_keeps_blank_lines_around_its_text(client):
    def translate(content):
        return download(client, send(client, "a.txt", content)).text

    plain = translate("A man")
    for start, end in (("", "\n"), ("\r\n \r\n", "\r\n\r\n")):
        assert translate(f"{start}A man{end}") == f"{start}{plain}{end}"
        assert translate(start + end) == start + end
    assert translate(b"\xef\xbb\xbfA man") == plain


# Name and content of a file, other entries → words of the answer with status 400.
REFUSED = {
    "an unknown ending": ("program.exe", b"MZ", {}, "must end with one of .txt, .html"),
    "no ending": ("program", b"a", {}, "must end with one of"),
    "an ending alone": (".html", b"a", {}, "must end with one of"),
    "another encoding": (
        "a.txt",
        b"one\n\xff",
        {},
        "`file` must be UTF-8, but line 2 has the byte 0xff",
    ),
    "a malformed document": ("a.xml", b"<a>", {}, "(at position 0)"),
    "a table": ("a.csv", b"a,b\nc,d", {}, "of a, b, got none. Name them by `columns`."),
    "columns of a page": (
        "a.html",
        b"<p>a</p>",
        {"columns": "1"},
        "`columns` is for CSV and TSV, but `format` is html.",
    ),
    "a text instead of a translation": (
        "a.json",
        b'{"a": "b"}',
        {"existing": "{}"},
        "`existing` must be a file of the form, got a text.",
    ),
    "a long text": ("a.txt", b"a" * 5001, {}, "at most 5000 (--max_characters), got 5001"),
    "XLIFF of another language": (
        "a.xlf",
        FILES["units.xlf"].replace('"de"', '"fr"').encode(),
        {},
        "The target language of the file must be de, as of the model, but it is fr.",
    ),
    "another target": (
        "a.txt",
        b"a",
        {"target": "it"},
        "must be a direction of this service: en-de.",
    ),
    "another source": (
        "a.txt",
        b"a",
        {"source": "it"},
        "must be a direction of this service: en-de.",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_is_refused_in_one_line(kind, client):
    name, content, entries, said = REFUSED[kind]
    answer = send(client, name, content, **entries)
    assert answer.status_code == 400
    assert [*answer.json()] == ["error"]
    assert said in answer.json()["error"]
    assert len(answer.content) < 400


@pytest.mark.parametrize("name", ["source", "target", "api_key"])
@pytest.mark.parametrize("charset", ["", "; charset=unicode_escape"])
def test_a_form_that_is_not_utf_8_is_refused(charset, name, client):
    entries = {b"source": b"en", b"target": b"de", name.encode(): b"d\xe9 \\ud800"}
    parts = [b'name="%s"\r\n\r\n%s' % pair for pair in entries.items()]
    parts += [b'name="file"; filename="\xe9.txt"\r\n\r\na']
    start = b"--x\r\nContent-Disposition: form-data; "
    body = b"".join(start + part + b"\r\n" for part in parts) + b"--x--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x" + charset}
    answer = client.post("/translate_file", content=body, headers=headers)
    reason = f"`{name}` must be UTF-8, got other bytes."
    assert (answer.status_code, answer.json()) == (400, {"error": reason})


def test_a_form_may_have_other_spellings_of_codes_and_entries_in_the_query(client):
    file = {"file": ("größer.txt", b"Two dogs.")}
    plain = send(client, "a.txt", b"Two dogs.")
    other = client.post("/translate_file?source=EN&target=de-AT", files=file)
    assert download(client, other).content == download(client, plain).content
    assert "gr%C3%B6%C3%9Fer.de-AT.txt" in other.json()["translatedFileUrl"]


@pytest.mark.parametrize(
    ("data", "files", "said"),
    [
        (LANGUAGES, {"other": ("a.txt", b"a")}, "`file` must be given"),
        ({"target": "de"}, {"file": ("a.txt", b"a")}, "`source` must be given"),
        ({"source": "en"}, {"file": ("a.txt", b"a")}, "`target` must be given"),
        (
            LANGUAGES,
            {"file": ("a.txt", b"a"), "source": ("en", b"en")},
            "`source` must be a text, not a file.",
        ),
        (
            LANGUAGES,
            {"file": ("a.txt", b"a"), "target": ("en", b"en")},
            "`target` must be a text, not a file.",
        ),
    ],
)
def test_a_form_without_an_entry_is_refused(data, files, said, client):
    answer = client.post("/translate_file", files=files, data=data)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(said)


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"q": "a", **LANGUAGES}},
        {"data": {"file": "a", **LANGUAGES}},
        {
            "content": b"--x\r\nbroken",
            "headers": {"content-type": "multipart/form-data; boundary=x"},
        },
        {"content": b"", "headers": {"content-type": "multipart/form-data"}},
        {
            "content": b"\xff" * 100,
            "headers": {"content-type": b"multipart/form-data; boundary=\xff"},
        },
    ],
)
def test_a_body_that_is_no_form_with_a_file_is_refused(body, client):
    answer = client.post("/translate_file", **body)
    assert answer.status_code == 400
    assert [*answer.json()] == ["error"]
    assert len(answer.content) < 400
    assert client.get("/health").json()["status"] == "ok"


def test_a_large_file_is_refused_by_the_limit_of_its_kind(pipeline):
    limits = Limits(max_body_bytes=2000, max_document_bytes=4000, max_characters=10)
    with serving(pipeline, limits) as client:
        content = b"<p>a</p>" + b"\n" * 3000
        assert send(client, "a.html", content).status_code == 200
        sizes = {"a.txt": (3000, "2000 bytes (--max_body")}
        sizes["a.html"] = (5000, "4000 bytes (--max_doc")
        for name, (size, said) in sizes.items():
            answer = send(client, name, b"a" * size)
            assert answer.status_code == 413
            assert said in answer.json()["error"]


def test_a_file_needs_a_key_and_its_download_needs_none(pipeline):
    with serving(pipeline, api_keys=["first"]) as client:
        assert send(client, "a.txt", b"a").status_code == 403
        assert send(client, "a.txt", b"a", api_key="x").status_code == 403
        answer = send(client, "a.txt", b"a", api_key="first")
        assert download(client, answer).status_code == 200
        data = {"api_key": "first", **LANGUAGES}
        answer = client.post("/translate_file", data=data)
        assert answer.status_code == 400
        assert "`file` must be given" in answer.json()["error"]


@pytest.mark.parametrize("name", ["x.html", "..", "%2e%2e%2fetc%2fpasswd", "a" * 3000])
def test_a_file_that_is_not_there_is_refused(name, client):
    answer = client.get(f"/download_file/{name}")
    assert answer.status_code == 404 and len(answer.content) < 300


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd.txt", "passwd.de.txt"),
        ("C:\\files\\my file.HTML", "my_file.de.html"),
        ('a"\r\nX: b.md', "a_X_b.de.md"),
        ("Übersicht.v2.md", "Übersicht_v2.de.md"),
        ("हिन्दी m².md", "हिन्दी_m².de.md"),
        ("a" * 999 + ".srt", "a" * 100 + ".de.srt"),
    ],
)
def test_name_translation_is_harmless(name, expected):
    assert name_translation(name, "de") == expected


def test_a_strange_host_does_no_harm(client):
    request = {"files": {"file": ("a.txt", b"a")}, "data": LANGUAGES}
    answer = client.post("/translate_file", **request, headers={"host": "[a"})
    assert answer.status_code in (200, 400)


def keep(files, *sent):
    """Add files in an event loop, which deletes them after their time, and return the names by
    which they are kept.
    """

    async def add():
        return [files.add(*file) for file in sent]

    return asyncio.run(add())


def test_files_are_deleted_after_their_time():
    async def run():
        files = TranslatedFiles(Limits(file_seconds=1))
        name = files.add("a.txt", b"one", "client")
        await asyncio.sleep(0.8)
        assert files.find(name).content == b"one"
        await asyncio.sleep(0.4)
        assert not files._files  # without a further request
        with pytest.raises(Refusal, match="deleted after 1 seconds"):
            files.find(name)

    asyncio.run(run())


def test_a_client_with_many_files_takes_room_from_itself():
    files = TranslatedFiles(Limits(max_file_bytes=120))
    large = [("a.txt", b"a" * 40, "other")] * 5
    names = keep(files, ("a.txt", b"a" * 30, "one"), *large)
    left = {f"{token}.a.txt" for token in files._files}
    assert [name in left for name in names] == [True, False, False, False, True, True]
    keep(files, ("a.txt", b"a" * 121, "third"))
    assert len(files._files) == 3, "a file beyond all room is not kept"


def test_a_zip_is_translated(pipeline):
    file, member = BytesIO(), "content.xml"
    namespace = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
    with ZipFile(file, "w") as archive:
        archive.writestr(member, f'<p xmlns="{namespace}">Two dogs.</p>')
        archive.writestr("picture.png", bytes(range(256)))
    with serving(pipeline, Limits(max_tokens=5000)) as client:
        answer = download(client, send(client, "a.odt", file.getvalue()))
        (text,) = pipeline(["Two dogs."])
    assert "a.de.odt" in answer.headers["content-disposition"]
    with ZipFile(BytesIO(answer.content)) as archive:
        assert archive.read("picture.png") == bytes(range(256))
        assert f">{text['translation_text']}</p>" in archive.read(member).decode()
