"""The queue of the service: clients take turns, small requests do not wait for large ones."""

from collections import deque
from dataclasses import replace

import pytest

from vanilla_transformer.extensions.serving.limits import Limits, Refusal
from vanilla_transformer.extensions.serving.queue import FairQueue, QueuedRequest, QueuedText

LIMITS = Limits(
    max_batch_size=8,
    max_batch_tokens=1000,
    max_waiting=250,
    max_waiting_per_client=200,
)


def request(client, name, texts, tokens=10):
    queued = deque()
    for number in range(texts):
        queued.append(QueuedText(f"{name}{number}", tokens, None))
    return QueuedRequest(client, queued)


@pytest.fixture
def queue():
    return FairQueue(LIMITS)


def names(batch):
    return [text.text for text in batch]


def test_fair_queue_takes_the_texts_of_a_request_in_order(queue):
    queue.add(request("a", "x", 10))
    assert len(queue) == 10
    assert names(queue.take()) == [f"x{number}" for number in range(8)]
    assert names(queue.take()) == ["x8", "x9"]
    assert queue.take() == [] and len(queue) == 0


def test_fair_queue_gives_each_client_its_turn(queue):
    for name in "xyz":
        queue.add(request("a", name, 5))
    queue.add(request("b", "w", 2))
    assert names(queue.take()) == ["x0", "w0", "x1", "w1", "x2", "x3", "x4", "y0"]
    queue.add(request("c", "late", 1))
    assert names(queue.take())[:2] == ["y1", "late0"]


def test_fair_queue_fills_batches_with_small_requests_first(queue):
    queue.add(request("a", "large", 200))
    queue.add(request("b", "small", 3))
    expected = ["small0", "small1", "small2", *(f"large{number}" for number in range(5))]
    assert names(queue.take()) == expected
    queue.add(request("a", "small of the same client", 1))
    assert names(queue.take())[0] == "small of the same client0"
    queue.add(request("b", "many", 25))
    batches = names(queue.take()) + names(queue.take()) + names(queue.take())
    assert sum("large" in name for name in batches) == 5, "their share is a fifth"


def test_fair_queue_does_not_prefer_a_client_with_many_small_requests(queue):
    for number in range(100):
        queue.add(request("a", f"flood{number}-", 1))
    assert len(queue) == 100
    for number in range(5):
        queue.add(request("b", f"next{number}-", 1))
        batch = names(queue.take())
        assert f"next{number}-0" in batch
        assert len(batch) == 8


def test_fair_queue_serves_a_long_text_although_small_requests_keep_coming(queue):
    queue.add(request("a", "long", 1, tokens=900))
    batches = []
    for number in range(100):
        for text in range(5):
            queue.add(request("b", f"small{number}-{text}-", 1))
        batches.append(names(queue.take()))
    position = batches.index(["long0"])
    assert batches[0] == [f"small0-{text}-0" for text in range(5)]
    assert 900 // 8 / 10 < position < 80


def test_fair_queue_fills_a_batch_past_a_text_that_does_not_fit(queue):
    queue.add(request("a", "first", 1))
    queue.add(request("a", "long", 1, tokens=900))
    queue.add(request("b", "large", 30))
    assert names(queue.take()) == ["first0", *(f"large{number}" for number in range(7))]


def test_fair_queue_keeps_its_clock_where_a_text_that_did_not_fit_comes_last():
    queue = FairQueue(LIMITS.model_copy(update={"max_batch_tokens": 300}))
    queue.add(request("a", "wide", 1, tokens=200))
    queue.add(request("b", "x", 21))
    assert [len(queue.take()) for _ in range(3)] == [8, 8, 5]
    queue.add(request("c", "early", 1))
    assert names(queue.take()) == ["wide0"]
    queue.add(request("d", "late", 1))
    assert names(queue.take()) == ["early0", "late0"]


def test_fair_queue_bounds_the_tokens_of_a_batch_with_padding(queue):
    queue.add(request("a", "x", 3, tokens=400))
    assert names(queue.take()) == ["x0", "x1"]
    queue.add(request("a", "y", 1, tokens=5000))
    assert names(queue.take()) == ["x2"]
    # A text that is too long for any batch is alone in one.
    assert names(queue.take()) == ["y0"]


def test_fair_queue_discards_a_request(queue):
    gone, kept = request("a", "gone", 30), request("a", "kept", 1)
    taken = request("b", "taken", 1)
    for waiting in (gone, taken, kept):
        queue.add(waiting)
    queue.discard(gone)
    queue.discard(gone)
    assert len(queue) == 2
    assert sorted(names(queue.take())) == ["kept0", "taken0"]
    queue.discard(taken)
    assert queue.take() == []


def test_fair_queue_takes_few_sentences_of_a_document_as_a_large_request(queue):
    sentences = request("a", "sentence", 8)
    queue.add(replace(sentences, is_part=True))
    queue.add(request("b", "large", 200))
    assert len(names(queue.take())) == 8, "no small request makes the batch of the large one small"
    queue.add(replace(request("a", "sentence", 8), is_part=True))
    queue.add(request("c", "small", 2))
    assert names(queue.take())[:2] == ["small0", "small1"]


def test_fair_queue_takes_small_requests_after_a_discarded_one(queue):
    """The discarded one is large and was next."""
    large = request("a", "large", 1, tokens=600)
    for waiting in (request("b", "first", 1), large):
        queue.add(waiting)
    assert names(queue.take()) == ["first0"], "the large one is next"
    queue.discard(large)
    queue.add(request("b", "second", 1))
    assert names(queue.take()) == ["second0"]


def test_fair_queue_ignores_an_empty_request(queue):
    queue.add(request("a", "x", 0))
    assert queue.take() == [] and len(queue) == 0


def test_fair_queue_refuses_texts_beyond_its_limits(queue):
    """Large requests do not take the places of small ones. The service is only busy."""
    queue.add(request("a", "large", 200))
    with pytest.raises(Refusal, match="Too many of your texts wait") as of_client:
        queue.add(request("a", "large", 100))
    with pytest.raises(Refusal, match="Too many texts wait") as of_all:
        queue.add(request("b", "large", 100))
    assert of_client.value.status == of_all.value.status == 429
    queue.add(request("a", "small", 20))
    assert len(queue) == 220
