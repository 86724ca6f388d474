"""Limits of time and memory for a document that a command reads."""

import re
import resource
import signal
import sys

import pytest
import regex

from tests.sweeps import rare
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents.document_process import limited_work

ENDLESS = "a" * 60 + "!"


@pytest.mark.parametrize(
    "search",
    [rare(lambda: re.match(r"(a+)+$", ENDLESS)), lambda: regex.match(r"(a|aa)+$", ENDLESS)],
    ids=["re", "regex"],
)
def test_limited_work_ends_a_search(search):
    handler = signal.getsignal(signal.SIGVTALRM)
    message = "^The document must be read and written within 1 seconds"
    with pytest.raises(UserError, match=message), limited_work(1, 10**9):
        search()
    assert signal.getsignal(signal.SIGVTALRM) is handler
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
def test_limited_work_limits_memory():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    message = r"^The document must be .* in 100,000,000 bytes of memory"
    with pytest.raises(UserError, match=message), limited_work(9, 10**8):
        bytearray(10**9)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_limited_work_leaves_other_errors_alone():
    with pytest.raises(KeyError), limited_work(9, 10**9):
        raise KeyError("a")
