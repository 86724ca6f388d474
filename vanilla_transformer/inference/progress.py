"""Report how much of a request is done, sentence by sentence."""

from collections.abc import Callable
from dataclasses import dataclass

Report = Callable[[int], None]  # of the sentences that were translated since the last report


@dataclass(frozen=True)
class ProgressOptions:
    """
    Options of a request about its progress.

    Args:
        progress: A function that is called with the numbers of sentences that are done and of all sentences.
    """

    progress: Callable[[int, int], object] | None = None

    def follow(self, report: Report, total: int) -> Report:
        """Return a report that calls `progress`, too.

        Args:
            report: Of the request.
            total: Sentences of the request.
        """
        progress, done = self.progress, 0
        if progress is None:
            return report

        def report_both(sentences: int) -> None:
            nonlocal done
            done += sentences
            report(sentences)
            progress(done, total)

        return report_both


__all__ = ["ProgressOptions", "Report"]
