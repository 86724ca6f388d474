"""Documents that take all time or memory of the process that reads them, or that end it, whatever
formats can do.
"""

import os
import re
import signal

from vanilla_transformer.extensions.documents import DocumentTranslator


class Hostile:
    """The texts of a request, which do harm to whatever reads them.

    A search holds Python's lock.
    """

    def __init__(self, kind):
        self.kind = kind

    def __iter__(self):
        if self.kind == "endless":
            re.match(r"(a+)+$", "a" * 60 + "!")
        if self.kind == "large":
            yield "".join(chr(0x10000 + number % 1000) * 10_000_000 for number in range(1000))
        if self.kind == "deadly":
            os.kill(os.getpid(), signal.SIGSEGV)
        raise KeyError(self.kind)


KINDS = ("endless", "large", "deadly", "faulty")


class HostileTranslator(DocumentTranslator):
    """Translate documents, of which those whose only text is one of `KINDS` do harm."""

    def describe(self, texts, format, options, default):
        task = super().describe(texts, format, options, default)
        return task._replace(texts=Hostile(texts[0])) if texts[0] in KINDS else task
