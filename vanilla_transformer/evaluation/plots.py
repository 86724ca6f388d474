"""Plot the learning curve of a run and the cross-attention of a model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES
from vanilla_transformer.decoding.segments import begin_with_languages, forced_language
from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction


def new_figure(width: float, height: float) -> Any:
    """Create a figure that is drawn into a file. Without pyplot, the backend of a notebook stays as it is."""
    with requires_extra("plots", "A plot"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plot_learning_curve(metrics_file: str | Path, image_file: str | Path) -> Path:
    """Plot loss and BLEU over minutes of training from the lines of `metrics.jsonl`, and return the image's path.

    Raises:
        OSError: there is no such file, or matplotlib is not installed.
    """
    figure = new_figure(11, 4)
    entries = [json.loads(line) for line in Path(metrics_file).read_text(encoding="utf-8").splitlines()]
    loss_axes, bleu_axes = figure.subplots(1, 2)
    for name, label in (("loss", "training"), ("validation_loss", "validation")):
        loss_axes.plot(*_extract_curve(entries, name), label=label, marker="o" if name == "validation_loss" else None)
    loss_axes.set(xlabel="minutes", ylabel="nats per target token", title="Cross-entropy", ylim=(0, None))
    loss_axes.legend()
    bleu_axes.plot(*_extract_curve(entries, "bleu"), marker="o", color="tab:green")
    bleu_axes.set(xlabel="minutes", ylabel="BLEU", title="Validation (greedy; last point: beam 4)", ylim=(0, None))
    for axes in (loss_axes, bleu_axes):
        axes.grid(alpha=0.3)
    figure.savefig(image_file, dpi=120)
    return Path(image_file)


def _extract_curve(entries: Sequence[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Return minutes and values of the entries with the value `name`: of the trained model, and of the final one."""
    found = [entry for entry in entries if name in entry]
    selected = [entry for entry in found if "model" not in entry or entry is found[-1]]
    return [entry["minutes"] for entry in selected], [entry[name] for entry in selected]


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
    source_tokens, target_tokens = ([tokenizer.decode(token) for token in ids] for ids in (source[0], target[0, 1:]))
    return source_tokens, target_tokens, outputs.cross_attentions[-1][0].cpu()


def plot_attention(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentence: str,
    image_file: str | Path,
    **languages: str,
) -> Path:
    """Plot the cross-attention of the last decoder layer for a translation of `sentence`, one panel per head.

    Raises:
        OSError: matplotlib is not installed.
    """
    source, target, heads = cross_attention(model, tokenizer, sentence, **languages)
    width, height = 1.2 + 0.34 * len(source), 1.6 + 0.28 * len(target)
    figure = new_figure(width * len(heads), height)
    panels = figure.subplots(1, len(heads), sharey=True, squeeze=False)[0]
    for number, (panel, head) in enumerate(zip(panels, heads, strict=True), start=1):
        panel.imshow(head, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        panel.set_xticks(range(len(source)), source, rotation=60, ha="right")
        panel.set_yticks(range(len(target)), target)
        panel.set_title(f"head {number}")
    figure.suptitle("Encoder-decoder attention of the last layer")
    figure.savefig(image_file, dpi=120)
    return Path(image_file)


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
