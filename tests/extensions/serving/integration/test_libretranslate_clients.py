"""Public clients of LibreTranslate, which run unchanged against a service with its real server."""

import json
import logging
import shutil
import subprocess
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.running_services import running_service
from vanilla_transformer.extensions.serving.language_detection import detect_languages
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service
from vanilla_transformer.text.languages import Direction

ORIGIN = "https://reader.example"
GERMAN, ENGLISH = "Der Hund läuft durch das hohe Gras.", "A young woman is reading a book in the park."


def echo(texts, hypotheses, **options):
    """Return the languages and the text."""
    return [["{src_lang}-{tgt_lang}".format(**options) + f" {text}"] * hypotheses for text in texts]


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
        cors=[ORIGIN],
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


def test_the_query_may_have_all_entries(address):
    # As `LibreTranslator` of deep-translator sends them, with an empty body.
    query = {"q": GERMAN, "source": "de", "target": "fr", "format": "text", "api_key": "key"}
    with urlopen(Request(f"{address}/translate?{urlencode(query)}", data=b"", method="POST")) as answer:
        assert json.load(answer) == {"translatedText": f"de-fr {GERMAN}"}


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


# Acts as a browser for the page of an origin: it asks first, and hides answers that are not for the page.
SCRIPT = """
const [address, origin, german, english] = process.argv.slice(1);
async function request(path, options, key) {
  const headers = {...options.headers, Origin: origin};
  if (key) headers.Authorization = `Bearer ${key}`;
  const named = Object.keys(headers).filter(name => name !== "Origin").map(name => name.toLowerCase()).join(",");
  if (named) {  // a form alone is sent at once
    const asked = {Origin: origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": named};
    const permit = await fetch(address + path, {method: "OPTIONS", headers: asked});
    const allowed = (permit.headers.get("access-control-allow-headers") || "").toLowerCase().split(", ");
    if (!permit.ok || permit.headers.get("access-control-allow-origin") !== origin) return "blocked";
    if (!named.split(",").every(name => allowed.includes(name))) return "header blocked";
  }
  const answer = await fetch(address + path, {method: "POST", ...options, headers});
  if (answer.headers.get("access-control-allow-origin") !== origin) return "hidden";
  return [answer.status, await answer.json()];
}
function form(entries) {
  const data = new FormData();
  for (const [name, value] of Object.entries(entries)) data.append(name, value);
  return {body: data};
}
function json(entries) {
  return {body: JSON.stringify(entries), headers: {"Content-Type": "application/json"}};
}
(async () => console.log(JSON.stringify({
  json: await request("/translate", json({q: german, source: "de-AT", target: "fr", api_key: "key"})),
  list: await request("/translate", json({q: [german, english], source: "auto", target: "fr"}), "key"),
  form: await request("/translate", form({q: german, source: "DE", target: "fr-FR", api_key: "key"})),
  lines: await request("/translate", form({q: "a\\nb", source: "en", target: "fr", api_key: "key"})),
  detect: await request("/detect", form({q: german, api_key: "key"})),
  refused: await request("/translate", form({q: german, source: "de", target: "fr"})),
})))();
"""


def run_script(address, origin):
    node = shutil.which("node") or pytest.skip("Node.js is not installed")
    words = [node, "-e", SCRIPT, address, origin, GERMAN, ENGLISH]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fetch_of_a_page_translates(address):
    found = run_script(address, ORIGIN)
    assert found["json"] == found["form"] == [200, {"translatedText": f"de-fr {GERMAN}"}]
    status, answer = found["list"]
    assert (status, answer["translatedText"]) == (200, [f"de-fr {GERMAN}", f"en-fr {ENGLISH}"])
    assert [each["language"] for each in answer["detectedLanguage"]] == ["de", "en"]
    assert found["lines"] == [200, {"translatedText": "en-fr a\nb"}]
    assert found["detect"][1][0]["language"] == "de"
    status, answer = found["refused"]
    assert status == 403 and "API key is required" in answer["error"]


def test_fetch_of_another_page_is_blocked(address):
    found = run_script(address, "https://other.example")
    assert found["json"] == found["list"] == "blocked"
    assert {*found.values()} == {"blocked", "hidden"}
