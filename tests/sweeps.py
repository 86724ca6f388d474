"""Cases and examples of which `make test` runs a few and `make test-slow` all."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def rare(case: object) -> Any:
    """Return a case as parameters of a test that only `make test-slow` runs with them."""
    values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
    return pytest.param(*values, marks=pytest.mark.sweep)


def sample(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the cases as parameters of a test. `make test` runs only the ones that are `kept`."""
    cases = list(cases)
    assert all(case in cases for case in kept), f"{kept} are not all among the cases."
    return [case if case in kept else rare(case) for case in cases]


def examples(number: int, **others: Any) -> settings:
    """Return settings of a property test that draws a fifth of `number` examples in `make test`,
    with `others`.
    """
    share = 1 if settings.default is settings.get_profile("random") else 5
    return settings(max_examples=number // share, deadline=None, **others)
