"""The batcher: concurrent requests share batches, and each gets its own translations."""

import asyncio

import pytest

from tests.services import SlowModel, shout
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.extensions.serving.limits import Limits, Refusal
from vanilla_transformer.extensions.serving.queue import (
    Batcher,
    ModelFailure,
    TextRequest,
    call_on_thread,
)

NO_OPTIONS = TranslationOptions()


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


def translate(batcher, *texts, **request):
    return batcher.translate(TextRequest([*texts], **request))


async def start(batcher, *texts):
    """Begin to translate, and return the task after its texts are in the queue."""
    task = asyncio.create_task(translate(batcher, *texts))
    waiting = batcher.waiting
    for _ in range(200):
        await asyncio.sleep(0.001)
        if batcher.waiting > waiting or task.done():
            break
    return task


async def start_alone(batcher, model):
    """Begin to translate a text, and return the task after the model is at work."""
    task = asyncio.create_task(translate(batcher, "first"))
    await model.is_at_work()
    return task


def test_batcher_answers_each_request_in_order_with_its_options():
    def with_options(texts, options, format):
        return [[(text, options.return_scores)] * options.count for text in texts]

    wanted = {"num_return_sequences": 2, "return_scores": True}

    async def scenario(batcher):
        scored = translate(batcher, "c", options=TranslationOptions(**wanted))
        return await asyncio.gather(translate(batcher, "a", "b"), scored)

    plain = [[("a", False)], [("b", False)]]
    expected = [plain, [[("c", True)] * 2]]
    assert run_with_batcher(scenario, with_options) == expected


def test_batcher_keeps_texts_with_a_target_prefix_apart_from_others():
    model = SlowModel()

    def with_prefixes(texts, options, format):
        model(texts, options, format)
        prefixes = options.target_prefix or [None] * len(texts)
        rows = zip(texts, prefixes, strict=True)
        return [[(text, prefix)] * options.count for text, prefix in rows]

    async def scenario(batcher):
        requests = [await start_alone(batcher, model), await start(batcher, "plain")]
        begun = translate(batcher, "begun", prefixes=["B"])
        requests.append(asyncio.create_task(begun))
        while batcher.waiting < 2:
            await asyncio.sleep(0.001)
        model.proceed.set()
        return await asyncio.gather(*requests)

    _, plain, begun = run_with_batcher(scenario, with_prefixes)
    assert plain == [[("plain", None)]]
    assert begun == [[("begun", "B")]]


def test_batcher_gives_each_text_its_draft():
    def with_drafts(texts, options, format):
        drafts = options.draft or [None] * len(texts)
        rows = zip(texts, drafts, strict=True)
        return [[(text, draft)] * options.count for text, draft in rows]

    async def scenario(batcher):
        drafted = translate(batcher, "a", "b", drafts=["A", ""])
        return await asyncio.gather(drafted, translate(batcher, "c"))

    expected = [[[("a", "A")], [("b", "")]], [[("c", None)]]]
    assert run_with_batcher(scenario, with_drafts) == expected


def test_batcher_joins_waiting_texts_to_one_batch():
    model = SlowModel()

    async def scenario(batcher):
        requests = [await start_alone(batcher, model)]
        requests += [await start(batcher, str(number)) for number in range(5)]
        model.proceed.set()
        return await asyncio.gather(*requests)

    answers = run_with_batcher(scenario, model, max_batch_size=4)
    assert [answer[0][0] for answer in answers] == ["FIRST", *"01234"]
    assert [len(call) for call in model.calls] == [1, 4, 1]


def test_batcher_joins_texts_with_equal_options_alone():
    model = SlowModel()
    glossaries = [[("dog", "Hund")], [("dog", "Hund")], [("dog", "Köter")]]

    async def scenario(batcher):
        requests = [await start_alone(batcher, model)]
        for position, terms in enumerate(glossaries, start=1):
            options = TranslationOptions(glossary=terms, term_mode="soft")
            request = translate(batcher, f"dog {position}", options=options)
            requests.append(asyncio.create_task(request))
            while batcher.waiting < position:
                await asyncio.sleep(0.001)
        model.proceed.set()
        await asyncio.gather(*requests)

    run_with_batcher(scenario, model)
    assert model.calls == [["first"], ["dog 1", "dog 2"], ["dog 3"]]


def test_batcher_fails_only_the_text_with_the_error():
    """The texts of a failed batch are translated one by one."""
    model = SlowModel()

    def fail(texts, options, format):
        translations = model(texts, options, format)
        if "bad" in texts:
            raise ValueError("no")
        return translations

    async def scenario(batcher):
        requests = [await start_alone(batcher, model)]
        for text in ("a", "bad", "b"):
            requests.append(await start(batcher, text))
        model.proceed.set()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        return answers, (batcher.failures, batcher.last_failure, batcher.broken)

    (first, one, failed, other), state = run_with_batcher(scenario, fail)
    assert ["first"] in model.calls
    assert ["a", "bad", "b"] in model.calls
    assert (first, one, other) == ([["FIRST"]], [["A"]], [["B"]])
    assert isinstance(failed, ModelFailure)
    assert "ValueError: no" in str(failed)
    assert state == (1, "ValueError", False)


ERRORS = [KeyboardInterrupt, SystemExit, StopIteration, MemoryError]
ERRORS += [asyncio.CancelledError]
WRONG_NUMBERS = [[], [["a"], ["b"]], [[]]]


@pytest.mark.parametrize("wrong", ERRORS + WRONG_NUMBERS)
def test_batcher_survives_exceptions_and_wrong_numbers(wrong):
    def fail(texts, options, format):
        if "bad" in texts and isinstance(wrong, type):
            raise wrong
        return wrong if "bad" in texts else shout(texts, options, format)

    async def scenario(batcher):
        message = wrong.__name__ if isinstance(wrong, type) else "must have 1 tr"
        with pytest.raises(ModelFailure, match=message):
            await translate(batcher, "bad")
        return await translate(batcher, "good")

    assert run_with_batcher(scenario, fail) == [["GOOD"]]


def test_batcher_reports_a_broken_model():
    """A model that fails on a harmless text as well is broken: all requests fail at once, later
    ones too.
    """

    def fail(texts, options, format):
        raise RuntimeError("no device")

    async def scenario(batcher):
        told = asyncio.Event()
        batcher.on_broken = told.set
        requests = [translate(batcher, text) for text in "abc"]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        with pytest.raises(ModelFailure):
            await translate(batcher, "later")
        return answers, told.is_set(), batcher.broken

    answers, told, broken = run_with_batcher(scenario, fail)
    assert told
    assert broken
    for answer in answers:
        assert isinstance(answer, ModelFailure)


def test_batcher_reports_a_model_that_hangs(monkeypatch):
    monkeypatch.setattr("vanilla_transformer.extensions.serving.queue._HANGING", 0.05)
    model = SlowModel()

    async def scenario(batcher):
        told = asyncio.Event()
        batcher.on_broken = told.set
        with pytest.raises(ModelFailure):
            await translate(batcher, "a")
        model.proceed.set()
        return told.is_set(), batcher.last_failure, batcher.busy_seconds > 0

    state = run_with_batcher(scenario, model, request_seconds=1)
    assert state == (True, "TimeoutError", True)


def test_batcher_does_not_count_calls_of_others_as_hanging(monkeypatch):
    """Models of one service share a thread: one that waits for its turn works."""
    monkeypatch.setattr("vanilla_transformer.extensions.serving.queue._HANGING", 0.05)
    model = SlowModel()

    async def scenario(batcher):
        others = call_on_thread(batcher._model_thread, model, ["long"], NO_OPTIONS, "text")
        calls = asyncio.gather(others, translate(batcher, "a"))
        await model.is_at_work()
        await asyncio.sleep(0.3)  # six times as long as a call may take
        is_idle = batcher.busy_seconds == 0
        model.proceed.set()
        return is_idle, (await calls)[1], batcher.broken

    assert run_with_batcher(scenario, request_seconds=1) == (True, [["A"]], False)


def test_batcher_is_busy_as_long_as_its_thread_although_it_was_canceled():
    """At the end of the service, a thread at work keeps the process alive."""
    model = SlowModel()

    async def scenario():
        batcher = Batcher(model, Limits())
        worker = asyncio.create_task(batcher.run())
        request = asyncio.create_task(translate(batcher, "a"))
        await model.is_at_work()
        worker.cancel()
        await asyncio.gather(worker, request, return_exceptions=True)
        batcher.close()
        is_busy = batcher.busy_seconds > 0
        model.proceed.set()
        return is_busy

    assert asyncio.run(scenario())


def test_batcher_is_broken_if_its_loop_ends():
    async def scenario(batcher):
        batcher._queue.take = {}.popitem  # fails
        for _ in range(2):
            with pytest.raises(ModelFailure):
                await translate(batcher, "a")
        return batcher.broken, batcher.last_failure

    assert run_with_batcher(scenario) == (True, "KeyError")


def test_batcher_drops_the_texts_of_a_canceled_request():
    model = SlowModel()

    async def scenario(batcher):
        first = await start_alone(batcher, model)
        gone = await start(batcher, "gone", "gone too")
        kept = await start(batcher, "kept")
        assert batcher.waiting == 3
        gone.cancel()
        await asyncio.sleep(0.01)
        assert batcher.waiting == 1
        model.proceed.set()
        return await asyncio.gather(first, kept)

    assert run_with_batcher(scenario, model) == [[["FIRST"]], [["KEPT"]]]
    assert model.calls == [["first"], ["kept"]]


def test_batcher_ends_a_request_at_its_deadline():
    model = SlowModel()

    async def scenario(batcher):
        first = await start_alone(batcher, model)
        with pytest.raises(Refusal, match="took longer than 1 seconds"):
            await translate(batcher, "late")
        assert batcher.waiting == 0
        model.proceed.set()
        with pytest.raises(Refusal):
            await first
        return await translate(batcher, "next")

    assert run_with_batcher(scenario, model, request_seconds=1) == [["NEXT"]]
    assert ["late"] not in model.calls


def test_batcher_stop_refuses_accepted_texts():
    model = SlowModel()

    async def scenario(batcher):
        requests = [await start_alone(batcher, model), await start(batcher, "second")]
        batcher.stop()
        answers = await asyncio.gather(
            *requests, translate(batcher, "third"), return_exceptions=True
        )
        model.proceed.set()
        return answers

    answers = run_with_batcher(scenario, model)
    assert [str(answer) for answer in answers] == ["The service is shutting down."] * 3
