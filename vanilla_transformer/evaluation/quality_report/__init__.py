"""How good translations are, for readers who are no engineers, as one offline page."""

from .quality_report import Setup, render_report

__all__ = ["Setup", "render_report"]
