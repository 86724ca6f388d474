"""The times of /health beside documents that once stopped the service, each one within all limits
of requests.
"""

import http.client
import json
import threading
import time

import psutil
import pytest

from benchmarks.bench_service import running_service, save_random_model
from tests.docs_pages import ROOT

RULES = (
    '<d xmlns:its="http://www.w3.org/2005/11/its"><its:rules version="2.0" '
    'xmlns:re="http://exslt.org/regular-expressions"><its:translateRule translate="no" '
    'selector="{}"/></its:rules>{}</d>'
)
TIMES = "1\n00:00:01,000 --> 00:00:02,000\n"
UNIT = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    '<trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>'
)
PLURALS = 'msgid ""\nmsgstr "Plural-Forms: {}\\n"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'
# Format and text of a document.
DOCUMENTS = {
    "expression of XSLT": ("xml", RULES.format("//*[re:test('" + "a" * 32 + "!','^(a+)+$')]", "")),
    "nested counts": ("xml", RULES.format("//*[count(//*[count(//*)&gt;0])&gt;0]", "<p/>" * 3000)),
    "blank lines": ("srt", f"{TIMES}A" + "\n" * 4000 + "B\n"),
    "declarations": ("xml", "<a>" + "<?xml " * 30_000),
    "titles": ("markdown", "!!! note " + "!!!" * 30_000),
    "spaces of a segment": ("xliff", UNIT.format("A" + " " * 60_000 + "b")),
    "spaces of a message": ("json", json.dumps({"a": "A" + " " * 60_000 + "b"})),
    "emphasis": ("markdown", "*a" * 30_000),
    "tags": ("html", "<b>" * 33_000),
    "plural forms": ("po", PLURALS.format("nplurals=1000000000; plural=(n != 1);")),
    "division by zero": ("po", PLURALS.format("nplurals=2; plural=n/0;")),
    "half a character": ("json", '{"a": "A dog \\ud83d runs."}'),
    "digits of a character": ("html", "<p>&#" + "1" * 4400 + ";</p>"),
}
# Content of a file.
PAGES = {
    "spaces of a charset": b"<html><meta charset=" + b" " * 60_000 + b"<",
    "meta tags": b"<" + b"<meta " * 660 + b"a" * 5_000_000,
    "another encoding": "ä".encode("latin-1") * 200_000,
}
# Bodies of /translate, most of which say nothing.
BODIES = {
    "lists": '{"text": [' + "[]," * 3_300_000 + '[]], "format": "html"}',
    "keys": json.dumps({str(key): 0 for key in range(700_000)}),
    "page": json.dumps({"text": "<p>A dog.</p>" + "<!-- -->" * 1_200_000, "format": "html"}),
    "entries of a form": "q=a&" * 2_400_000,
    "signs of a form": "format=html&q=" + "%20" * 3_300_000,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(save_random_model(tmp_path_factory.mktemp("served")), str(ROOT)) as server:
        body = json.dumps({"text": "<p>A dog.</p>", "format": "html"})
        assert send(server, "/translate", body, "application/json")[0] == 200
        yield server


def send(service, path, body, content_type):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    connection.request("POST", path, body, {"Content-Type": content_type})
    answer = connection.getresponse()
    return answer.status, answer.read()


def send_beside_health(service, *request):
    """Send a request; return its status and answer, and the seconds of each request of /health
    meanwhile.
    """
    seconds, ended = [], threading.Event()

    def ask():
        while not ended.is_set():
            started = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
            seconds.append(time.monotonic() - started)
            time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    status, answer = send(service, *request)
    time.sleep(0.3)
    ended.set()
    asking.join()
    return status, answer, seconds


def check(service, status, answer, seconds):
    """Check one answer in one line, the times of /health but for some of a busy machine, and the
    memory.
    """
    assert status in (200, 400, 413, 422, 500)
    if status != 200:
        (reason,) = json.loads(answer).values()
        assert 0 < len(reason) < 500 and "\n" not in reason and "Traceback" not in reason
    slow = [second for second in seconds if second > 0.5]
    assert len(slow) <= len(seconds) / 20, slow
    assert psutil.Process(service.process.pid).memory_info().rss < 1.5e9


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_service_is_well_beside_a_document(kind, service):
    form, text = DOCUMENTS[kind]
    body = json.dumps({"text": text, "format": form})
    check(service, *send_beside_health(service, "/translate", body, "application/json"))


@pytest.mark.parametrize("kind", PAGES)
def test_service_is_well_beside_a_file(kind, service):
    parts = [b'name="source"\r\n\r\nen', b'name="target"\r\n\r\nde']
    parts.append(b'name="file"; filename="a.html"\r\n\r\n' + PAGES[kind])
    head = b"--x\r\nContent-Disposition: form-data; "
    body = b"".join(head + part + b"\r\n" for part in parts) + b"--x--\r\n"
    request = "/translate_file", body, "multipart/form-data; boundary=x"
    check(service, *send_beside_health(service, *request))


@pytest.mark.parametrize("kind", BODIES)
def test_service_is_well_beside_a_body(kind, service):
    request = "/translate", BODIES[kind], "application/x-www-form-urlencoded"
    check(service, *send_beside_health(service, *request))
