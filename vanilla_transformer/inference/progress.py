"""Report how much of a request is done, sentence by sentence."""

from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[int], None]  # of the sentences that were translated since the last report


def follow_progress(options: Mapping[str, Any], report: Report, total: int) -> tuple[dict[str, Any], Report]:
    """Return the options of a request without `progress`, and a report that calls it with sentences done and `total`.

    Args:
        options: Their `progress` is a function of two numbers, or missing.
        report: Of the request.
        total: Sentences of the request.
    """
    others = {name: value for name, value in options.items() if name != "progress"}
    progress = options.get("progress")
    if progress is None:
        return others, report
    done = 0

    def report_both(sentences: int) -> None:
        nonlocal done
        done += sentences
        report(sentences)
        progress(done, total)

    return others, report_both


__all__ = ["Report", "follow_progress"]
