"""200 mutations of a model of each format: a result or one line that names the model, soon and in little memory."""

import signal
import tracemalloc

import pytest

from tests.foreign_models import MAKERS
from tests.foreign_mutations import check_mutations

SECONDS = 10  # for each mutation
GIBIBYTE = 2**30


class Hanging(BaseException):
    """Stand for a conversion that does not end."""


@pytest.mark.parametrize("start", range(0, 200, 20))
@pytest.mark.parametrize("form", MAKERS)
def test_readers_refuse_mutations(form, start, text_folder, tmp_path, capsys):
    def hang(*_):
        raise Hanging

    signal.signal(signal.SIGALRM, hang)
    tracemalloc.start()
    signal.alarm(SECONDS * 20)
    try:
        check_mutations(range(start, start + 20), form, text_folder, tmp_path, capsys)
        assert tracemalloc.get_traced_memory()[1] < GIBIBYTE
    finally:
        signal.alarm(0)
        tracemalloc.stop()
