"""The HTTP service: translations, limits, health, metrics and graceful shutdown."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from fastapi.testclient import TestClient

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.file_utils import save_model_folder
from vanilla_transformer.serving.batcher import Limits
from vanilla_transformer.serving.service import create_service, translate_with


def shout(texts, hypotheses):
    if "break" in texts:
        raise RuntimeError("broken")
    return [[text.upper()] * hypotheses for text in texts]


@pytest.fixture
def client():
    limits = Limits(max_body_bytes=2000, max_texts=3, max_characters=20, max_hypotheses=2)
    with TestClient(create_service(shout, limits), raise_server_exceptions=False) as client:
        yield client


def test_translate_answers_a_text_and_a_list(client):
    assert client.post("/translate", json={"text": "one"}).json() == {"translations": [["ONE"]]}
    asked = {"text": ["one", "two"], "num_return_sequences": 2}
    assert client.post("/translate", json=asked).json() == {"translations": [["ONE", "ONE"], ["TWO", "TWO"]]}
    assert client.post("/translate", json={"text": []}).json() == {"translations": []}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"text": ["a"] * 4}, 422, "at most 3, got 4"),
        ({"text": "a" * 21}, 422, "at most 20, got 21"),
        ({"text": "a", "num_return_sequences": 3}, 422, "at most 2, got 3"),
        ({"text": "a", "num_return_sequences": 0}, 422, "greater than or equal to 1"),
        ({"texts": "a"}, 422, "texts"),
        ({"text": 7}, 422, "valid string"),
        ({"text": "a" * 3000}, 413, "at most 2000 bytes"),
        ({"text": "break"}, 500, ""),
    ],
)
def test_translate_explains_errors_and_keeps_serving(body, status, said, client):
    answer = client.post("/translate", json=body)
    assert answer.status_code == status and said in answer.text
    assert client.post("/translate", json={"text": "one"}).status_code == 200


def test_body_limit_counts_a_chunked_body(client):
    def chunks():
        yield b'{"text": "'
        for _ in range(30):
            yield b"a" * 100

    assert client.post("/translate", content=chunks()).status_code == 413


def test_metrics_count_requests_and_texts(client):
    assert client.get("/health").json() == {"status": "ok"}
    client.post("/translate", json={"text": ["one", "two"]})
    client.post("/translate", json={"text": "a" * 21})
    metrics = client.get("/metrics").text
    for line in ('requests_total{status="200"} 1.0', 'requests_total{status="422"} 1.0', "texts 2.0", "waiting 0.0"):
        assert line in metrics


def test_translate_answers_503_if_the_queue_is_full():
    started, proceed = threading.Event(), threading.Event()

    def translate(texts, hypotheses):
        started.set()
        proceed.wait(10)
        return shout(texts, hypotheses)

    with TestClient(create_service(translate, Limits(max_waiting=1, max_batch_size=1))) as client:
        answers = []

        def ask():
            answers.append(client.post("/translate", json={"text": "a"}).status_code)

        at_work, waiting = threading.Thread(target=ask), threading.Thread(target=ask)
        at_work.start()
        assert started.wait(10)
        waiting.start()
        while "waiting 1.0" not in client.get("/metrics").text:
            time.sleep(0.01)
        refused = client.post("/translate", json={"text": "a"})
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
        proceed.set()
        for thread in (at_work, waiting):
            thread.join()
    assert answers == [200, 200]


def test_limits_refuse_a_value_below_1():
    with pytest.raises(ValueError, match="`max_texts` must be 1 or more, got 0"):
        Limits(max_texts=0)


def test_translate_answers_like_the_pipeline(tiny_model, tiny_tokenizer):
    translate = TranslationPipeline(tiny_model, tiny_tokenizer, task="translation")
    texts = ["A man is sleeping.", "Two dogs.\n\nGrass."]
    with TestClient(create_service(translate_with(translate))) as client:
        one = client.post("/translate", json={"text": texts}).json()["translations"]
        two = client.post("/translate", json={"text": texts, "num_return_sequences": 2}).json()["translations"]
    assert [row[0] for row in one] == [answer["translation_text"] for answer in translate(texts)]
    assert two == [[one["translation_text"] for one in row] for row in translate(texts, num_return_sequences=2)]


def test_serve_answers_and_stops_on_sigterm(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vanilla_transformer", "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/translate",
            json.dumps({"text": "A man is sleeping."}).encode(),
            {"Content-Type": "application/json"},
        )
        answer = json.load(urllib.request.urlopen(request, timeout=30))
        expected = TranslationPipeline(tiny_model, tiny_tokenizer, task="translation")("A man is sleeping.")
        assert answer["translations"] == [[expected[0]["translation_text"]]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()


def wait_for(url, process):
    for _ in range(300):
        try:
            return urllib.request.urlopen(url, timeout=5)
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
    raise AssertionError("the service did not come up")


def test_serve_answers_a_folder_without_a_model_in_one_line(tmp_path, capsys):
    assert main(["serve", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
