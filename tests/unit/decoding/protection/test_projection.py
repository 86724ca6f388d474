"""Spans of a source are put around the words of a translation that are mostly aligned with them."""

import pytest

from vanilla_transformer.decoding.protection.blocks import Span
from vanilla_transformer.decoding.protection.projection import project
from vanilla_transformer.decoding.translations import Link

SOURCE, TARGET = "big red dogs run", "A B C D"


@pytest.mark.parametrize(("inside", "end"), [(0.6, 5), (0.5, 5), (0.4, 3)])
def test_project_covers_the_words_of_which_half_is_aligned_with_the_span(inside, end):
    links = [
        Link(0, 3, 0, 1, 1.0),
        Link(4, 7, 2, 3, 1.0),
        Link(8, 12, 4, 5, inside),
        Link(13, 16, 4, 5, 1.0 - inside),
        Link(13, 16, 6, 7, 1.0),
    ]
    (span,) = project([Span(0, 12)], SOURCE, TARGET, links, [])
    assert (span.start, span.end) == (0, end)
