"""Plot the learning curves of runs, the lengths of a corpus and the cross-attention of a model.

Texts are drawn in the fonts that are installed. Each must have the characters of a script, such as
a font of Noto.
"""

import json
import logging
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import regex
import torch
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES
from vanilla_transformer.decoding.segments import begin_with_languages, forced_language
from vanilla_transformer.decoding.token_texts import token_texts
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_file
from vanilla_transformer.files.json_files import read_json_lines
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.scripts import count_scripts

logger = logging.getLogger(__name__)

_IN_WORD = regex.compile(r"[\p{L}\p{N}\p{M}\p{Cf}]")


def new_figure(width: float, height: float) -> Any:
    """Create a figure that is drawn into a file.

    Without pyplot, the backend of a notebook stays as it is.
    """
    with requires_extra("plots", "A plot"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plot_learning_curve(metrics_file: str | Path, image_file: str | Path) -> Path:
    """Plot loss and BLEU over minutes of training from the lines of `metrics.jsonl`, and return the
    image's path.

    The final model, which another search scores, is a point alone.
    """
    figure = new_figure(11, 4)
    entries = read_json_lines(Path(metrics_file))
    loss_axes, bleu_axes = figure.subplots(1, 2)
    _draw_curve(loss_axes, entries, "loss", label="training", color="tab:blue")
    style = {"label": "validation", "color": "tab:orange"}
    _draw_curve(loss_axes, entries, "validation_loss", final="final model", **style)
    style = {"label": "during training, greedy", "color": "tab:green"}
    _draw_curve(bleu_axes, entries, "bleu", final="final model, its own search", **style)
    _label_panel(loss_axes, "Cross-entropy", "nats per target token")
    _label_panel(bleu_axes, "BLEU of the validation text", "BLEU")
    return save_figure(figure, image_file)


def plot_runs(
    runs: Sequence[str | Path], image_file: str | Path, over: Literal["minutes", "step"] = "minutes"
) -> Path:
    """Plot validation loss, BLEU and chrF of several runs in one picture, and return its path.

    The final model of a run, which another search scores, is a star.

    Args:
        runs: Folders of runs, which have a `metrics.jsonl`.
    """
    curves = {str(run): read_json_lines(Path(run) / "metrics.jsonl") for run in runs}
    figure = new_figure(15, 4)
    panels = (
        ("validation_loss", "Cross-entropy", "nats per target token"),
        ("bleu", "BLEU", "BLEU"),
        ("chrf", "chrF", "chrF"),
    )
    all_axes = figure.subplots(1, len(panels))
    for axes, (metric, title, unit) in zip(all_axes, panels, strict=True):
        for number, (name, entries) in enumerate(curves.items()):
            _draw_curve(axes, entries, metric, over, label=name, color=f"C{number}")
        _label_panel(axes, f"{title} of the validation text", unit, over)
    return save_figure(figure, image_file)


def _draw_curve(
    axes: Any,
    entries: Sequence[Mapping[str, Any]],
    name: str,
    over: str = "minutes",
    final: str = "",
    **style: Any,
) -> None:
    """Draw a metric as a line, and its value of the final model as a star."""
    measured, curve = [], []
    for entry in entries:
        if name in entry:
            measured.append(entry)
            if "model" not in entry:
                curve.append(entry)
    marker = None if name == "loss" else "o"
    times = [entry[over] for entry in curve]
    values = [entry[name] for entry in curve]
    axes.plot(times, values, marker=marker, **style)
    if measured and (last := measured[-1]) not in curve:
        star = {
            "marker": "*",
            "markersize": 15,
            "fillstyle": "none",
            "linestyle": "none",
            "clip_on": False,
            "label": final or None,
        }
        axes.plot([last[over]], [last[name]], **style | star)


def _label_panel(axes: Any, title: str, unit: str, over: str = "minutes") -> None:
    """Label a panel whose axes begin at 0, and end where no star touches the edge."""
    right = 1.05 * axes.get_xlim()[1]
    top = 1.05 * axes.get_ylim()[1]
    axes.set(title=title, xlabel=over, ylabel=unit, xlim=(0, right), ylim=(0, top))
    axes.grid(alpha=0.3)
    axes.legend()


def save_figure(figure: Any, image_file: str | Path) -> Path:
    """Write a figure to a file, and return its path.

    Its texts get the installed fonts that have their characters.
    """
    from matplotlib.text import Text

    path, texts = Path(image_file), figure.findobj(Text)
    characters = "".join(text.get_text() for text in texts)
    families, missing = find_fonts(characters, texts[0].get_fontfamily())
    for text in texts:
        text.set_fontfamily(families)
    if missing:
        scripts = ", ".join(sorted(count_scripts(missing)))
        scripts = scripts.title().replace("Cjk", "Han")
        shown = scripts or f"characters such as {missing[0]}"
        logger.warning(
            "Pictures need a font for each script, but none has %s. Install fonts of Noto.", shown
        )
    with atomic_file(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(file, dpi=120, format=path.suffix[1:] or None)
    return path


def find_fonts(text: str, families: Sequence[str]) -> tuple[list[str], str]:
    """Return font families, followed by installed ones that have further characters of a text, and
    what none has.
    """
    from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager

    fonts = [*families]

    missing = {character for character in text if unicodedata.category(character)[0] != "C"}
    upright: list[FontEntry] = []
    for font in fontManager.ttflist:
        if font.weight == 400 and font.style == "normal":
            upright.append(font)
    upright.sort(key=lambda font: (not font.name.startswith("Noto Sans"), font.name))
    paths = {name: str(findfont(FontProperties(family=[name]))) for name in families}
    paths |= {font.name: font.fname for font in upright}
    for name, path in paths.items():
        if not missing:
            break
        if name.startswith("Last Resort"):  # which has a box for every character
            continue
        covered = missing & _characters_of(path)
        missing -= covered
        if covered and name not in fonts:
            fonts.append(name)
    return fonts, "".join(sorted(missing))


@cache
def _characters_of(path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    return frozenset(map(chr, get_font(path).get_charmap()))


def draw_picture(what: str, plot: Callable[..., Path], *arguments: Any) -> None:
    """Plot a picture and log its place, or log one line if that fails; a reason such as missing
    matplotlib once.

    Args:
        what: The begin of the line, such as `"lengths are"`.
    """
    try:
        logger.info("The %s in %s.", what, plot(*arguments))
    except (OSError, ValueError) as error:  # a ValueError of matplotlib, too
        _log_missing_pictures(str(error))


@cache
def _log_missing_pictures(reason: str) -> None:
    logger.warning("No pictures were drawn. %s", reason)


@torch.no_grad()
def cross_attention(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    **languages: str,
) -> tuple[list[str], list[str], torch.Tensor]:
    """Translate `sentence` and return its tokens, the tokens of the translation, and the
    cross-attention weights.

    The weights are the last decoder layer's, shape `(num_heads, target_length, source_length)`;
    each row sums to 1.

    Args:
        languages: `src_lang` and `tgt_lang`, for a model that has several.
    """
    direction = Direction(languages.get("src_lang"), languages.get("tgt_lang"))
    source_ids = encode_sentences(tokenizer, [sentence])
    source_ids = begin_with_languages(tokenizer, source_ids, direction)
    source = torch.tensor(source_ids, device=model.device)
    target = model.generate(source, **forced_language(tokenizer, direction))
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only implementation that returns the weights
    try:
        model.eval()
        inputs = {"input_ids": source, "decoder_input_ids": target[:, :-1]}
        outputs = model(**inputs, output_attentions=True)
    finally:
        model.set_attn_implementation(implementation)
    source_tokens = token_labels(tokenizer, source[0].tolist(), as_source=True)
    target_tokens = token_labels(tokenizer, target[0, 1:].tolist())
    return source_tokens, target_tokens, outputs.cross_attentions[-1][0].cpu()


def token_labels(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], as_source: bool = False
) -> list[str]:
    """Return the [`token_texts`], after a dot if it continues a word, or dots for a part of a
    character.
    """
    labels, before = [], " "
    for text in token_texts(tokenizer, ids, as_source):
        if _IN_WORD.match(text) and _IN_WORD.match(before[-1:]):
            labels.append(f"·{text}")
        else:
            shown = "".join(map(_visible, text.strip()))
            labels.append(shown or "…")
        before = text
    return labels


def _visible(character: str) -> str:
    """Return a character, or its number if it is a control character."""
    if unicodedata.category(character) == "Cc":
        return f"U+{ord(character):04X}"
    return character


def plot_attention(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    image_file: str | Path,
    **languages: str,
) -> Path:
    """Plot the cross-attention of the last decoder layer for a translation of `sentence`, one panel
    per head.

    A dot before a subword says that it continues a word.
    """
    attention = cross_attention(model, tokenizer, sentence, **languages)
    figure = draw_attention(*attention)
    return save_figure(figure, image_file)


def draw_attention(
    source: Sequence[str],
    target: Sequence[str],
    heads: torch.Tensor,
    titles: Sequence[str] | None = None,
    title: str = "Encoder-decoder attention of the last layer",
    sides: tuple[str, str] = ("source", "translation"),
) -> Any:
    """Return a figure of attention weights.

    Args:
        source: S labels of columns.
        target: T labels of rows.
        heads: Weights `(num_heads, T, S)`.
        titles: Titles of the panels; by default the numbers of heads.
        sides: Labels of the columns and the rows.
    """
    width = 0.6 + 0.2 * len(source)
    most = max(1, min(_PANELS_IN_A_ROW, int(_ROW_WIDTH / width)))
    balanced = -(-len(heads) // -(-len(heads) // most))  # columns of the fewest rows
    columns = balanced
    # Whole rows, if more than half as many columns make them.
    for number in range(balanced, balanced // 2, -1):
        if len(heads) % number == 0:
            columns = number
            break
    rows = -(-len(heads) // columns)
    height = 1.0 + 0.2 * len(target)
    figure = new_figure(1.5 + width * columns, 0.6 + height * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for number, panel in enumerate(panels.flat):
        if number >= len(heads):
            panel.set_axis_off()
            continue
        image = panel.imshow(heads[number], cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        panel.set_xticks(range(len(source)), source, rotation=90, parse_math=False)
        panel.set_yticks(range(len(target)), target, parse_math=False)
        has_none_below = number + columns >= len(heads)
        panel.tick_params(labelbottom=has_none_below)
        panel.set_title(f"head {number + 1}" if titles is None else titles[number])
    figure.colorbar(image, ax=panels, label="attention weight", pad=0.01, aspect=20 * rows)
    figure.suptitle(title)
    figure.supxlabel(sides[0])
    figure.supylabel(sides[1])
    return figure


# The most heads and inches, so that a page shows labels in a readable size.
_PANELS_IN_A_ROW = 4
_ROW_WIDTH = 8.0  # inches, whose labels can be read on a page of 700 pixels
_PANELS = {
    "source": (LENGTH_EDGES, "characters of the source"),
    "target": (LENGTH_EDGES, "characters of the target"),
    "ratio": (RATIO_EDGES, "log2 of the target's length divided by the source's"),
}


def plot_lengths(report_file: str | Path, image_file: str | Path) -> Path:
    """Plot the lengths of both sides and their ratio from a `corpus.json`, and return the image's
    path.

    Each panel ends where the pairs end.
    """
    figure = new_figure(15, 4)
    report = json.loads(Path(report_file).read_text(encoding="utf-8"))
    histograms = report["cleaning"].get("histograms")
    if not histograms:
        raise UserError(
            f"{report_file} must count the lengths of pairs, which an older version did not."
        )
    panels = figure.subplots(1, len(_PANELS))
    for axes, (name, (edges, label)) in zip(panels, _PANELS.items(), strict=True):
        counts = {kind: counted for kind, counted in histograms[name].items() if any(counted)}
        filled: list[int] = []
        for counted in counts.values():
            filled += [index for index, count in enumerate(counted) if count]
        first = min(filled, default=0)
        last = max(filled, default=len(edges) - 2) + 1
        bins = edges[first : last + 1]
        for kind, counted in counts.items():
            color = {"kept": "tab:blue", "dropped": "tab:red"}[kind]
            style = {"label": kind, "color": color, "fill": kind == "kept"}
            axes.stairs(counted[first:last], bins, **style)
        axes.set(xlabel=label, ylabel="pairs", yscale="symlog", ylim=(0, None))
        axes.grid(alpha=0.3)
        if counts:
            axes.legend()
    return save_figure(figure, image_file)
