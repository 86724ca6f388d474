"""What commands switch for their whole process is switched back."""

import pytest
from transformers.utils import logging


@pytest.fixture(autouse=True)
def _bars_are_shown_again():
    yield
    logging.enable_progress_bar()
