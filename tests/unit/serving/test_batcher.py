"""The batcher: concurrent requests share batches, and each gets its own translations."""

import asyncio
import threading

import pytest

from vanilla_transformer.serving.batcher import Batcher, Limits, QueueFull


def shout(texts, hypotheses):
    return [[text.upper()] * hypotheses for text in texts]


def run_with_batcher(scenario, translate=shout, **limits):
    """Run `scenario` with a running batcher and return its result."""

    async def run():
        batcher = Batcher(translate, Limits(**limits))
        worker = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(scenario(batcher), timeout=20)
        finally:
            worker.cancel()
            batcher.close()

    return asyncio.run(run())


def test_batcher_answers_each_request_in_order():
    async def scenario(batcher):
        return await asyncio.gather(batcher.translate(["a", "b"], 1), batcher.translate(["c"], 2))

    assert run_with_batcher(scenario) == [[["A"], ["B"]], [["C", "C"]]]


def test_batcher_joins_waiting_texts_to_one_batch():
    started, proceed, sizes = threading.Event(), threading.Event(), []

    def translate(texts, hypotheses):
        sizes.append(len(texts))
        started.set()
        proceed.wait(10)
        return shout(texts, hypotheses)

    async def scenario(batcher):
        requests = [asyncio.create_task(batcher.translate(["first"], 1))]
        await asyncio.to_thread(started.wait, 10)
        requests += [asyncio.create_task(batcher.translate([str(number)], 1)) for number in range(5)]
        await asyncio.sleep(0)
        proceed.set()
        return await asyncio.gather(*requests)

    assert [answer[0][0] for answer in run_with_batcher(scenario, translate, max_batch_size=4)] == ["FIRST", *"01234"]
    assert sizes == [1, 4, 1]


def test_batcher_fails_only_the_batch_with_the_error():
    def translate(texts, hypotheses):
        if "bad" in texts:
            raise ValueError("no")
        return shout(texts, hypotheses)

    async def scenario(batcher):
        with pytest.raises(ValueError, match="no"):
            await batcher.translate(["bad"], 1)
        return await batcher.translate(["good"], 1)

    assert run_with_batcher(scenario, translate) == [["GOOD"]]


def test_batcher_refuses_texts_beyond_the_queue():
    async def scenario(batcher):
        with pytest.raises(QueueFull):
            await batcher.translate(["a", "b", "c"], 1)
        return await batcher.translate(["a", "b"], 1)

    assert run_with_batcher(scenario, max_waiting=2) == [["A"], ["B"]]


def test_batcher_drain_waits_for_accepted_texts():
    async def scenario(batcher):
        request = asyncio.create_task(batcher.translate(["a"], 1))
        await asyncio.sleep(0)
        await batcher.drain()
        return await request

    assert run_with_batcher(scenario) == [["A"]]


def test_batcher_answers_an_empty_request():
    async def scenario(batcher):
        return await batcher.translate([], 1)

    assert run_with_batcher(scenario) == []
