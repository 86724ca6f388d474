"""Concurrent requests share batches, and each gets its own answer."""

import asyncio
import threading

import pytest

from vanilla_transformer.serving.batcher import Batcher, Overloaded


def shout(texts, hypotheses):
    return [[text.upper()] * hypotheses for text in texts]


def served(scenario, translate=shout, **options):
    """Runs `scenario` with a batcher at work, and returns what it returns."""

    async def run():
        batcher = Batcher(translate, **options)
        worker = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(scenario(batcher), timeout=20)
        finally:
            worker.cancel()
            batcher.close()

    return asyncio.run(run())


def test_each_request_gets_its_own_answers_in_order():
    async def scenario(batcher):
        return await asyncio.gather(batcher.translate(["a", "b"], 1), batcher.translate(["c"], 2))

    assert served(scenario) == [[["A"], ["B"]], [["C", "C"]]]


def test_what_waits_while_a_batch_is_at_work_becomes_one_batch():
    started, go_on, sizes = threading.Event(), threading.Event(), []

    def translate(texts, hypotheses):
        sizes.append(len(texts))
        started.set()
        go_on.wait(10)
        return shout(texts, hypotheses)

    async def scenario(batcher):
        requests = [asyncio.create_task(batcher.translate(["first"], 1))]
        await asyncio.to_thread(started.wait, 10)
        requests += [asyncio.create_task(batcher.translate([str(number)], 1)) for number in range(5)]
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(*requests)

    assert [answer[0][0] for answer in served(scenario, translate, max_batch_size=4)] == ["FIRST", *"01234"]
    assert sizes == [1, 4, 1]


def test_a_failure_is_that_of_its_batch_alone():
    def translate(texts, hypotheses):
        if "bad" in texts:
            raise ValueError("no")
        return shout(texts, hypotheses)

    async def scenario(batcher):
        with pytest.raises(ValueError, match="no"):
            await batcher.translate(["bad"], 1)
        return await batcher.translate(["good"], 1)

    assert served(scenario, translate) == [["GOOD"]]


def test_more_than_may_wait_is_refused():
    async def scenario(batcher):
        with pytest.raises(Overloaded):
            await batcher.translate(["a", "b", "c"], 1)
        return await batcher.translate(["a", "b"], 1)

    assert served(scenario, max_waiting=2) == [["A"], ["B"]]


def test_draining_waits_for_what_was_taken_in():
    async def scenario(batcher):
        request = asyncio.create_task(batcher.translate(["a"], 1))
        await asyncio.sleep(0)
        await batcher.drain()
        return await request

    assert served(scenario) == [["A"]]


def test_nothing_is_answered_with_nothing():
    async def scenario(batcher):
        return await batcher.translate([], 1)

    assert served(scenario) == []
