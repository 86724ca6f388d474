"""A request has the answer that it has alone, whatever other clients request meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.sweeps import examples
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.serving.service import create_service, translate_with

WORDS = ["a", "man", "two", "dogs", "run", "across", "the", "green", "grass"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@pytest.fixture(scope="module")
def client():
    translate = TranslationPipeline(tiny_model(init_std=0.4), tiny_tokenizer(), compile=False, num_beams=4)
    with TestClient(create_service(translate_with(translate))) as client, ThreadPoolExecutor(12) as clients:
        client.clients = clients
        yield client


def translation(client, text):
    return client.post("/translate", json={"text": text}).json()["translations"][0][0]


@examples(20)
@given(texts=st.lists(TEXTS, min_size=2, max_size=8))
def test_requests_of_other_clients_change_nothing(client, texts):
    alone = [translation(client, text) for text in texts]
    assert [*client.clients.map(lambda text: translation(client, text), texts)] == alone


def test_requests_of_other_clients_share_batches(client):
    batcher = next(iter(client.app.state.models)).batcher
    texts, batches = batcher.texts, batcher.batches
    [*client.clients.map(lambda text: translation(client, text), ["a man"] * 60)]
    assert batcher.texts - texts == 60 and batcher.batches - batches < 60
