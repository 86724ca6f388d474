"""Pages of other origins use a service in a browser if its owner says so."""

import pytest
from fastapi.testclient import TestClient

from tests.service_models import shout
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service

ORIGIN, OTHER = "https://reader.example", "https://other.example"
ALLOWED = "access-control-allow-origin"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def serving(*cors, **options):
    return TestClient(create_service(shout, Limits(max_body_bytes=100), cors=cors, **options))


def translate(client, origin, text="a", **headers):
    return client.post(
        "/translate", json={"q": text, "source": "en", "target": "de"}, headers={"origin": origin} | headers
    )


def test_no_other_page_is_allowed_by_default():
    with serving() as client:
        assert ALLOWED not in translate(client, ORIGIN).headers
        assert client.options("/translate", headers={"origin": ORIGIN, **ASKED}).status_code == 405


@pytest.mark.parametrize("path", ["/translate", "/translate_file", "/languages", "/frontend/settings"])
def test_a_browser_asks_without_a_key(path):
    with serving(ORIGIN, api_keys=["key"]) as client:
        answer = client.options(path, headers={"origin": ORIGIN, **ASKED})
        assert answer.status_code == 200 and answer.headers[ALLOWED] == ORIGIN
        assert {"Authorization", "Content-Type"} <= {*answer.headers["access-control-allow-headers"].split(", ")}
        assert "access-control-allow-credentials" not in answer.headers
        answer = client.options(path, headers={"origin": OTHER, **ASKED})
        assert answer.status_code == 400 and ALLOWED not in answer.headers


def test_keys_and_limits_hold_for_allowed_pages_which_read_why():
    with serving(ORIGIN, api_keys=["key"]) as client:
        for answer, status in (
            (translate(client, ORIGIN), 403),
            (translate(client, ORIGIN, authorization="Bearer key"), 200),
            (translate(client, ORIGIN, "a" * 200, authorization="Bearer key"), 413),
            (client.get("/nothing", headers={"origin": ORIGIN}), 404),
        ):
            assert (answer.status_code, answer.headers[ALLOWED]) == (status, ORIGIN)
        assert ALLOWED not in translate(client, OTHER, authorization="Bearer key").headers


def test_a_star_allows_every_page():
    with serving("*") as client:
        assert translate(client, OTHER).headers[ALLOWED] == "*"
