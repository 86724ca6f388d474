"""How long requests wait for the queue and a model whose batches take 50 ms and 2 ms a text."""

import heapq
import random
from collections import deque
from itertools import count
from statistics import mean, quantiles

import pytest

from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.queue import FairQueue, QueuedRequest, QueuedText

TOKENS = 12  # of a short sentence
FULL = 32  # texts of a batch
MODEL = (0.05, 0.002)  # seconds of a batch, and of each text in it
LARGE_MODEL = (0.3, 0.03)


class FirstCome:
    """A queue without turns."""

    def __init__(self, limits):
        self._texts = deque()

    def add(self, request):
        self._texts.extend(request.texts)

    def take(self):
        return [self._texts.popleft() for _ in range(min(FULL, len(self._texts)))]

    def measure(self, batch, seconds):
        pass


class Client:
    """A client that asks at a time, and, if it asks again, after each answer."""

    def __init__(self, address, texts=1, start=0.0, again=False, is_part=False):
        self.address, self.start, self.again = address, start, again
        self.size, self.is_part = texts, is_part
        self.seconds, self.batches = [], []  # that each answer took

    def request(self, identity):
        texts = deque(QueuedText(identity, TOKENS, None) for _ in range(self.size))
        return QueuedRequest(self.address, texts, self.is_part)


def simulate(clients, model=MODEL, seconds=8.0, queue_type=FairQueue):
    """Let clients ask for some seconds, and return the sizes of the batches."""
    queue, sizes, now, identities = queue_type(Limits()), [], 0.0, count()
    asking = [(client.start, next(identities), client) for client in clients]
    heapq.heapify(asking)
    asked = {}
    while now < seconds:
        while asking and asking[0][0] <= now:
            at, identity, client = heapq.heappop(asking)
            queue.add(client.request(identity))
            asked[identity] = [client, at, client.size, len(sizes)]
        batch = queue.take()
        if not batch:
            if not asking:
                break
            now = asking[0][0]
            continue
        sizes.append(len(batch))
        took = model[0] + model[1] * len(batch)
        queue.measure(batch, took)
        now += took
        for text in batch:
            entry = asked[text.text]
            entry[2] -= 1
            if entry[2] == 0:
                client, at, _, before = asked.pop(text.text)
                client.seconds.append(now - at)
                client.batches.append(len(sizes) - before)
                if client.again:
                    heapq.heappush(asking, (now, next(identities), client))
    return sizes


def crowd(addresses):
    """Return 256 clients with short requests, at some addresses, who begin within a second."""
    generator = random.Random(0)
    clients = []
    for number in range(256):
        start = generator.random()
        clients.append(Client(f"address {number % addresses}", 1, start, again=True))
    return clients


def slowest_tenth(clients):
    """Return the 90th percentile of the seconds of all answers."""
    waited = []
    for client in clients:
        waited += client.seconds
    return quantiles(waited, n=10)[-1]


@pytest.mark.parametrize("addresses", [1, 8, 256])
def test_equal_requests_are_answered_in_their_order_and_in_full_batches(addresses):
    clients, others = crowd(addresses), crowd(addresses)
    sizes = simulate(clients)
    simulate(others, queue_type=FirstCome)
    assert slowest_tenth(clients) <= 1.2 * slowest_tenth(others)
    assert mean(sizes) >= 30


@pytest.mark.parametrize("model", [MODEL, LARGE_MODEL])
def test_a_large_request_after_a_short_one_takes_little_longer_than_alone(model):
    alone, late = Client("a", 128), Client("a", 128, start=0.01)
    simulate([alone], model)
    simulate([Client("b", start=0.0), late], model)
    assert late.seconds[0] <= 1.3 * alone.seconds[0]


def test_a_large_request_beside_a_client_that_asks_again_and_again():
    alone, large = Client("a", 256), Client("a", 256)
    short = Client("b", again=True)
    simulate([alone])
    simulate([large, short], seconds=10)
    assert large.seconds[0] <= 1.3 * alone.seconds[0]
    assert max(short.batches) <= 2


@pytest.mark.parametrize("address", ["a", "b"])
def test_a_short_request_beside_a_document_waits_for_two_batches(address):
    """The document has 60 kB, of which some sentences wait at once; its client asks too."""
    sentences = []
    for _ in range(2 * FULL):
        sentences.append(Client("a", is_part=True, again=True))
    short = Client(address, start=1.0, again=True)
    sizes = simulate([*sentences, short], seconds=10)
    assert max(short.batches) <= 2
    assert mean(sizes) >= 30


@pytest.mark.parametrize("address", ["address 0", "another"])
def test_a_large_request_beside_a_crowd_of_short_ones_is_answered(address):
    large = Client(address, 256, start=2.0)
    clients = crowd(1)
    simulate([*clients, large])
    assert large.seconds[0] < 10
    assert slowest_tenth(clients) < 2


def test_a_flood_of_short_requests_does_not_delay_another_client():
    flood, other = crowd(1), Client("another", again=True)
    simulate([*flood, other])
    assert max(other.batches) <= 2


def test_a_large_request_makes_no_batch_that_takes_long():
    """A batch of a slow model takes a quarter of a second, or five times its fixed part."""
    for model, longest in (((0.02, 0.05), 0.3), (LARGE_MODEL, 1.5)):
        short = Client("b", again=True)
        documents = [Client("a", 128, again=True) for _ in range(2)]
        sizes = simulate([*documents, short], model, seconds=60)
        assert model[0] + model[1] * max(sizes[8:]) <= longest + 1e-9
