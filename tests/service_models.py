"""Functions that services call instead of models."""

import asyncio
import threading


def shout(texts, options, format):
    """Return each text in upper case."""
    return [[text.upper()] * options.count for text in texts]


def echo(texts, options, format):
    """Return each text with its languages."""
    return [[f"{options.src_lang}-{options.tgt_lang} {text}"] * options.count for text in texts]


class SlowModel:
    """A model that shouts, and waits for `proceed` in each call.

    `started` is set as soon as it is at work.
    """

    def __init__(self):
        self.started, self.proceed, self.calls = threading.Event(), threading.Event(), []

    def __call__(self, texts, options, format):
        self.calls.append(list(texts))
        self.started.set()
        assert self.proceed.wait(20)
        return shout(texts, options, format)

    async def is_at_work(self):
        await asyncio.to_thread(self.started.wait, 10)
