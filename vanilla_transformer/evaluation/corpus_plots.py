"""Plot the lengths of the pairs of a corpus, kept and dropped."""

import json
from pathlib import Path

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES

from .plots import new_figure

_PANELS = {
    "source": (LENGTH_EDGES, "characters of the source"),
    "target": (LENGTH_EDGES, "characters of the target"),
    "ratio": (RATIO_EDGES, "log2 of the target's length divided by the source's"),
}


def plot_lengths(report_file: str | Path, image_file: str | Path) -> Path:
    """Plot the lengths of both sides and their ratio from a `corpus.json`, and return the image's path.

    Raises:
        OSError: there is no such file, or matplotlib is not installed.
        ValueError: the report counts no lengths.
    """
    figure = new_figure(15, 4)
    histograms = json.loads(Path(report_file).read_text(encoding="utf-8"))["cleaning"].get("histograms")
    if not histograms:
        raise ValueError(f"{report_file} must count the lengths of pairs, which an older version did not.")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (name, (edges, label)) in zip(panels, _PANELS.items(), strict=True):
        for kind, color in (("kept", "tab:blue"), ("dropped", "tab:red")):
            axes.stairs(histograms[name][kind], edges, label=kind, color=color, fill=kind == "kept")
        axes.set(xlabel=label, ylabel="pairs", yscale="symlog", ylim=(0, None))
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(image_file, dpi=120)
    return Path(image_file)
