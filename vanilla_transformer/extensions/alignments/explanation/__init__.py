"""How a model came to a translation: attention, probabilities of tokens and the beam search, as one
offline page.
"""

from .explanation import Explanation, explain
from .explanation_page import render_page

__all__ = ["Explanation", "explain", "render_page"]
