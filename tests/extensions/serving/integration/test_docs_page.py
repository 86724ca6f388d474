"""The page at `/docs`: it describes each path, without a script and without other machines."""

import re
from xml.etree import ElementTree

import html5lib
import pytest
from fastapi.testclient import TestClient

from vanilla_transformer.extensions.serving.language_detection import detect_languages
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service
from vanilla_transformer.utils.resources import hash_content


@pytest.fixture(scope="module")
def client():
    service = create_service(lambda texts, count: [["x"]], docs=True, metrics=True, detect=detect_languages)
    with TestClient(service) as client:
        yield client


@pytest.fixture(scope="module")
def page(client):
    return client.get("/docs").text


def texts(element, tag):
    return ["".join(each.itertext()) for each in element.iter(tag)]


def test_docs_load_nothing_and_run_no_script(page):
    markup = re.sub("<pre>.*?</pre>", "", page, flags=re.DOTALL)  # without examples
    assert "<script" not in page
    assert not re.findall(r"""(?:src|action)=|href=["'](?!data:|openapi)|url\(|https?:""", markup)
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    assert f"default-src 'none'; img-src data:; style-src '{hash_content(style)}'" in page


def test_docs_are_valid_html(page):
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    assert isinstance(parser.parse(page), ElementTree.Element)


def test_docs_describe_each_path_with_its_entries_and_examples(client, page):
    document = client.get("/openapi.json").json()
    root = html5lib.parse(page, namespaceHTMLElements=False)
    paths = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert {*texts(root, "h2")} == paths and len(paths) == 9
    cells = [text.partition(" (")[0] for text in texts(root, "td")]
    assert {*ENTRIES, "q", "source", "api_key"} <= {*cells}
    examples = " ".join(texts(root, "pre"))
    assert '{"text": "The child sleeps.", "return_scores": true}' in examples and '{"translatedText":' in examples
    for status in ("408", "413", "503"):
        assert status in texts(root, "dt")
