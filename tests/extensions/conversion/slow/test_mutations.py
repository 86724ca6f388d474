"""200 mutations of a model of each format: a result or one line that names the model, soon and in
little memory.
"""

from functools import partial

import pytest

from tests.foreign_models import MAKERS, check_mutations
from tests.processes import run_limited


@pytest.mark.parametrize("start", range(0, 200, 20))
@pytest.mark.parametrize("form", MAKERS)
def test_readers_refuse_mutations(form, start, text_folder, tmp_path, capsys):
    limited = partial(run_limited, seconds=10, mebibytes=1024)
    numbers = range(start, start + 20)
    check_mutations(numbers, form, text_folder, tmp_path, capsys, limited)
