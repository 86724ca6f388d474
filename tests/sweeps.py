"""Cases and examples of which `make test` runs a few and `make test-slow` all."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def sample(cases: Iterable[Any], *kept: int) -> list[Any]:
    """Return the cases as parameters of a test. `make test` runs only the ones at the indices `kept`."""
    return [case if number in kept else _rare(case) for number, case in enumerate(cases)]


def examples(number: int) -> settings:
    """Return the settings of a property test that draws a fifth of `number` examples in `make test`."""
    share = 1 if settings.default is settings.get_profile("random") else 5
    return settings(max_examples=number // share, deadline=None)


def _rare(case: Any) -> Any:
    values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
    return pytest.param(*values, marks=pytest.mark.sweep)
