"""A public client of LibreTranslate runs unchanged against a service with its real server."""

import logging
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.running_services import running_service
from tests.service_models import echo
from vanilla_transformer.extensions.serving.language_detection import detect_languages
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service
from vanilla_transformer.text.languages import Direction

GERMAN, ENGLISH = "Der Hund läuft durch das hohe Gras.", "A young woman is reading a book in the park."


@pytest.fixture(scope="module")
def address():
    directions, limits = [Direction("en", "fr"), Direction("de", "fr")], Limits()
    service = create_service(
        echo,
        limits,
        known=["src_lang", "tgt_lang"],
        directions=directions,
        detect=detect_languages,
        api_keys=["key"],
    )
    with running_service(service, limits) as server:
        host, port = server.address
        yield f"http://{host}:{port}"


def test_libretranslatepy_translates(address):
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(address, "key")
    assert client.translate(GERMAN, "de", "fr") == f"de-fr {GERMAN}"
    assert client.translate(ENGLISH, "auto", "FR") == f"en-fr {ENGLISH}"
    assert client.detect(GERMAN)[0]["language"] == "de"
    assert [each["code"] for each in client.languages()] == ["en", "de"]
    client.api_key = "other"
    with pytest.raises(HTTPError, match="403"):
        client.translate(GERMAN, "de", "fr")


def test_the_log_has_no_queries(address):
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    logging.getLogger("uvicorn.access").addHandler(handler)
    try:
        urlopen(Request(f"{address}/languages?api_key=key&q=secret")).close()
    finally:
        logging.getLogger("uvicorn.access").removeHandler(handler)
    (line,) = found
    assert line.endswith('"GET /languages HTTP/1.1" 200')
