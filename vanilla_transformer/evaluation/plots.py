"""Plot the learning curve of a run and the cross-attention of a model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import regex
import torch
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES
from vanilla_transformer.decoding.segments import begin_with_languages, forced_language
from vanilla_transformer.decoding.token_texts import token_texts
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.utils.file_utils import atomic_file, read_json_lines
from vanilla_transformer.utils.import_utils import requires_extra

_IN_WORD = regex.compile(r"[\p{L}\p{N}\p{M}\p{Cf}]")


def new_figure(width: float, height: float) -> Any:
    """Create a figure that is drawn into a file. Without pyplot, the backend of a notebook stays as it is."""
    with requires_extra("plots", "A plot"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plot_learning_curve(metrics_file: str | Path, image_file: str | Path) -> Path:
    """Plot loss and BLEU over minutes of training from the lines of `metrics.jsonl`, and return the image's path.

    The final model, which another search scores, is a point alone.
    """
    figure = new_figure(11, 4)
    entries = read_json_lines(Path(metrics_file))
    loss_axes, bleu_axes = figure.subplots(1, 2)
    for axes, name, label, color in (
        (loss_axes, "loss", "training", "tab:blue"),
        (loss_axes, "validation_loss", "validation", "tab:orange"),
        (bleu_axes, "bleu", "during training, greedy", "tab:green"),
    ):
        found = [entry for entry in entries if name in entry]
        curve = [entry for entry in found if "model" not in entry]
        minutes, values = [entry["minutes"] for entry in curve], [entry[name] for entry in curve]
        axes.plot(minutes, values, label=label, color=color, marker=None if name == "loss" else "o")
        if found and (last := found[-1]) not in curve:
            final = "final model, its own search" if name == "bleu" else "final model"
            style = {"marker": "*", "markersize": 15, "fillstyle": "none", "linestyle": "none"}
            axes.plot([last["minutes"]], [last[name]], label=final, color=color, **style)
    loss_axes.set(ylabel="nats per target token", title="Cross-entropy")
    bleu_axes.set(ylabel="BLEU", title="BLEU of the validation text")
    for axes in (loss_axes, bleu_axes):
        axes.margins(0.05)
        # No star touches the upper edge.
        axes.set(xlabel="minutes", xlim=(0, None), ylim=(0, 1.05 * axes.get_ylim()[1]))
        axes.grid(alpha=0.3)
        axes.legend()
    return save_figure(figure, image_file)


def save_figure(figure: Any, image_file: str | Path) -> Path:
    """Write a figure to a file, and return its path."""
    path = Path(image_file)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix[1:] or None)
    return path


@torch.no_grad()
def cross_attention(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    **languages: str,
) -> tuple[list[str], list[str], torch.Tensor]:
    """Translate `sentence` and return its tokens, the tokens of the translation, and the cross-attention weights.

    The weights are the last decoder layer's, shape `(num_heads, target_length, source_length)`; each row sums to 1.

    Args:
        languages: `src_lang` and `tgt_lang`, for a model that has several.
    """
    direction = Direction(languages.get("src_lang"), languages.get("tgt_lang"))
    source_ids = begin_with_languages(tokenizer, encode_sentences(tokenizer, [sentence]), direction)
    source = torch.tensor(source_ids, device=model.device)
    target = model.generate(source, **forced_language(tokenizer, direction))
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only implementation that returns the weights
    try:
        outputs = model.eval()(input_ids=source, decoder_input_ids=target[:, :-1], output_attentions=True)
    finally:
        model.set_attn_implementation(implementation)
    source_tokens = token_labels(tokenizer, source[0].tolist(), as_source=True)
    return source_tokens, token_labels(tokenizer, target[0, 1:].tolist()), outputs.cross_attentions[-1][0].cpu()


def token_labels(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], as_source: bool = False) -> list[str]:
    """Return the [`token_texts`], after a dot if it continues a word, or dots for a part of a character."""
    labels, before = [], " "
    for text in token_texts(tokenizer, ids, as_source):
        continues = _IN_WORD.match(text) and _IN_WORD.match(before[-1:])
        labels.append(f"·{text}" if continues else text.strip() or "…")
        before = text
    return labels


def plot_attention(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    image_file: str | Path,
    **languages: str,
) -> Path:
    """Plot the cross-attention of the last decoder layer for a translation of `sentence`, one panel per head.

    A dot before a subword says that it continues a word.
    """
    return save_figure(draw_attention(*cross_attention(model, tokenizer, sentence, **languages)), image_file)


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
    # Whole rows, if more than half as many columns make them.
    columns = next((number for number in range(balanced, balanced // 2, -1) if len(heads) % number == 0), balanced)
    rows = -(-len(heads) // columns)
    figure = new_figure(1.5 + width * columns, 0.6 + (1.0 + 0.2 * len(target)) * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for number, panel in enumerate(panels.flat):
        if number >= len(heads):
            panel.set_axis_off()
            continue
        image = panel.imshow(heads[number], cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        panel.set_xticks(range(len(source)), source, rotation=90)
        panel.set_yticks(range(len(target)), target)
        panel.tick_params(labelbottom=number + columns >= len(heads))  # a panel with none below it
        panel.set_title(f"head {number + 1}" if titles is None else titles[number])
    figure.colorbar(image, ax=panels, label="attention weight", pad=0.01, aspect=20 * rows)
    figure.suptitle(title)
    figure.supxlabel(sides[0])
    figure.supylabel(sides[1])
    return figure


_PANELS_IN_A_ROW, _ROW_WIDTH = 4, 12.0  # the most heads and inches, so that a page shows labels in a readable size
_PANELS = {
    "source": (LENGTH_EDGES, "characters of the source"),
    "target": (LENGTH_EDGES, "characters of the target"),
    "ratio": (RATIO_EDGES, "log2 of the target's length divided by the source's"),
}


def plot_lengths(report_file: str | Path, image_file: str | Path) -> Path:
    """Plot the lengths of both sides and their ratio from a `corpus.json`, and return the image's path.

    Each panel ends where the pairs end.
    """
    figure = new_figure(15, 4)
    histograms = json.loads(Path(report_file).read_text(encoding="utf-8"))["cleaning"].get("histograms")
    if not histograms:
        raise UserError(f"{report_file} must count the lengths of pairs, which an older version did not.")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (name, (edges, label)) in zip(panels, _PANELS.items(), strict=True):
        counts = {kind: counted for kind, counted in histograms[name].items() if any(counted)}
        filled = [place for counted in counts.values() for place, count in enumerate(counted) if count]
        first, last = min(filled, default=0), max(filled, default=len(edges) - 2) + 1
        for kind, counted in counts.items():
            color = {"kept": "tab:blue", "dropped": "tab:red"}[kind]
            axes.stairs(counted[first:last], edges[first : last + 1], label=kind, color=color, fill=kind == "kept")
        axes.set(xlabel=label, ylabel="pairs", yscale="symlog", ylim=(0, None))
        axes.grid(alpha=0.3)
        if counts:
            axes.legend()
    return save_figure(figure, image_file)
