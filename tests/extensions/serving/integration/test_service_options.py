"""Options of requests: samples and documents."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.extensions.documents import (
    DocumentTranslator,
    parse_document,
    translate_documents,
    translator_by,
)
from vanilla_transformer.extensions.serving.features import SEARCHES, supported_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction

LIMITS = Limits(max_characters=2000, max_texts=4)


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer)


@pytest.fixture
def client(translate):
    wrapped = translate_with(translate, DocumentTranslator(translate))
    service = create_service(wrapped, LIMITS, known=ENTRIES, check_document=parse_document)
    with TestClient(service, raise_server_exceptions=False) as client:
        yield client


def ask(client, text, **options):
    answer = client.post("/translate", json={"text": text} | options)
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def test_service_samples_like_the_pipeline(client, translate):
    options = {"do_sample": True, "seed": 7, "temperature": 1.5, "top_k": 20}
    found = ask(client, ["A man.", "Two dogs.\nA man."], num_return_sequences=3, **options)
    expected = [
        translate([text], num_return_sequences=3, num_beams=1, **options)[0] for text in ["A man.", "Two dogs."]
    ]
    assert found[0] == [answer["translation_text"] for answer in expected[0]] and len(set(found[0])) > 1
    first_lines = [sample.split("\n")[0] for sample in found[1]]
    assert first_lines == [answer["translation_text"] for answer in expected[1]]


def test_service_samples_do_not_depend_on_other_requests(client):
    options = {"do_sample": True, "seed": 7, "num_return_sequences": 2}
    (alone,) = ask(client, "A man.", **options)
    assert ask(client, ["Two dogs.", "A man.", "A man."], **options)[1:] == [alone, alone]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: ask(client, "A man.", **options), range(8)))
    assert together == [[alone]] * 8


def test_service_samples_differ_without_a_seed(client):
    found = {json.dumps(ask(client, "Two dogs run.", do_sample=True, temperature=3.0, top_k=0)) for _ in range(4)}
    assert len(found) > 1


def test_service_returns_scores_of_samples(client):
    ((sample,),) = ask(client, "A man.", do_sample=True, seed=1, return_scores=True)
    assert [*sample] == ["text", "score", "log_probability"] and sample["log_probability"] < 0


DOCUMENTS = {
    "html": "<p>Two <b>dogs</b> run. A man is <a href='x'>sleeping</a>.</p>",
    "xml": "<?xml version='1.0'?><doc><p>Two dogs.</p><p>A <i>man</i>.</p></doc>",
    "markdown": "# Two dogs\n\nA *man* is sleeping, `code`.\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\nTwo dogs.\n\n2\n00:00:03,000 --> 00:00:04,000\nA man.\n",
    "xliff": '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" datatype="x" '
    'source-language="en" target-language="de"><body><trans-unit id="1"><source>Two dogs.</source></trans-unit>'
    "</body></file></xliff>",
}


@pytest.mark.parametrize("format", DOCUMENTS)
def test_service_translates_documents_like_the_command(format, client, translate):
    text, translator = DOCUMENTS[format], translator_by(translate, find_splitter("abbreviations"))
    (expected,) = translate_documents([text], format, translator)
    assert ask(client, text, format=format) == [[expected]] and expected != text
    assert ask(client, [text, text], format=format) == [[expected], [expected]]


def test_service_keeps_the_bytes_of_a_page_and_names_its_language(translate):
    before, after = "<!DOCTYPE html>\r\n<html lang=en><p>", "<br /><!-- A man -->\r\n<p lang='fr'>Un homme"
    documents = DocumentTranslator(translate, direction=Direction("en", "de"))
    (found,) = documents([f"{before}A man{after}"], "html")
    assert found.startswith(before.replace("en", "de")) and found.endswith(after) and "A man<br" not in found


def test_service_translates_documents_beside_texts(client):
    html = DOCUMENTS["html"]
    expected = ask(client, html, format="html"), ask(client, html), ask(client, "A man.", format="text")
    with ThreadPoolExecutor(3) as pool:
        waiting = threading.Barrier(3)
        requests = [(html, {"format": "html"}), (html, {}), ("A man.", {})]
        found = pool.map(lambda request: waiting.wait() and None or ask(client, request[0], **request[1]), requests)
    assert tuple(found) == expected


# Body → words of the answer with status 422.
REFUSED = {
    "an unknown format": ({"text": "a", "format": "docx"}, "`format` must be one of html, xml, markdown, srt, xliff"),
    "a number as the format": ({"text": "a", "format": 1}, "`format` must be a string"),
    "malformed XML": ({"text": ["<a/>", "<a>"], "format": "xml"}, "(at position 1)"),
    "malformed XLIFF": ({"text": "<a/>", "format": "xliff"}, "(at position 0)"),
    "malformed subtitles": ({"text": "1\nText", "format": "srt"}, "(at position 0)"),
    "a long tag": ({"text": f"<{'a' * 1900}>", "format": "xml"}, "(at position 0)"),
    "a long document": ({"text": "<p>" + "a" * 2000, "format": "html"}, "characters of a text may be at most 2000"),
    "a document that is a number": ({"text": [1], "format": "html"}, "Each text must be a string"),
    "documents with scores": ({"text": "a", "format": "html", "return_scores": True}, "With `format` there is one"),
    "two translations": ({"text": "a", "format": "html", "num_return_sequences": 2}, "With `format` there is one"),
    "a temperature alone": ({"text": "a", "temperature": 0.5}, "`temperature` is an option of sampling"),
    "a seed alone": ({"text": "a", "seed": 1}, "`seed` is an option of sampling"),
    "an enormous seed": ({"text": "a", "do_sample": True, "seed": 10**400}, "`seed` must be"),
    "half a token": ({"text": "a", "do_sample": True, "top_k": 0.5}, "top_k"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_service_explains_options_that_it_refuses(kind, client):
    body, said = REFUSED[kind]
    answer = client.post("/translate", json=body)
    assert answer.status_code == 422 and said in answer.json()["detail"], answer.text
    assert len(answer.content) < 400, "an error must not repeat the request"
    assert client.get("/health").json()["failures"] == 0


@pytest.mark.parametrize("format", ["html", "xml", "markdown"])
def test_service_survives_deep_nesting(format, client):
    text = {"html": "<b>" * 600 + "a", "xml": "<b>" * 280 + "a" + "</b>" * 280, "markdown": "> " * 900 + "a"}[format]
    assert client.post("/translate", json={"text": text, "format": format}).status_code in (200, 422)
    assert client.get("/health").json() == {"status": "ok", "failures": 0, "last_failure": None}


@pytest.mark.parametrize(
    ("option", "said"), [({"do_sample": True}, "no sampling"), ({"format": "html"}, "no documents")]
)
def test_service_names_an_option_that_it_lacks(option, said, translate):
    with TestClient(create_service(translate_with(translate))) as client:
        answer = client.post("/translate", json={"text": "a"} | option)
        assert answer.status_code == 422 and said in answer.json()["detail"]


def test_engine_options_need_an_engine_and_alignment_heads(translate):
    plain = ["return_scores", "return_tokens", "return_warnings", "do_sample", "glossary", "constraints"]
    plain += ["target_prefix", *SEARCHES]
    assert supported_options(translate.model) == plain
    assert "return_alignments" in supported_options(tiny_model(alignment_heads=[[0, 0]]))
    assert supported_options(object()) == []
