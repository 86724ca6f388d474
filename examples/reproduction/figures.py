"""The self-attention of a trained encoder for a sentence: all heads of some layers, as in figures 3
to 5.

python examples/reproduction/figures.py --model runs/demo --sentence "The child sleeps."
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiment import MODEL, Experiment

from vanilla_transformer.decoding.pretrained import hash_model, load_seq2seq, load_tokenizer
from vanilla_transformer.decoding.segments import begin_with_languages
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import draw_attention, token_labels
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import NO_DIRECTION


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return the one run."""
    return {"attention": partial(measure, options.model, options.sentence, options.budget)}


def identity(options: Any) -> dict[str, Any]:
    """Return the model, the hashes of a local one, and the sentence."""
    if options.model is None:
        raise UserError(
            "Name a trained model by --model, such as runs/demo of `vanilla-transformer demo`."
        )
    files = hash_model(options.model) if Path(options.model).is_dir() else {}
    return {"model": options.model, "files": files, "sentence": options.sentence}


@torch.no_grad()
def measure(name: str, sentence: str, most_layers: int, folder: Path) -> dict[str, Any]:
    """Return the tokens, and the weights of each head of the last layers,
    `(layers, heads, length, length)`.
    """
    model, tokenizer = load_seq2seq(name, "can be looked into"), load_tokenizer(name)
    model.set_attn_implementation("eager")  # the only implementation that returns the weights
    ids = torch.tensor(
        begin_with_languages(tokenizer, encode_sentences(tokenizer, [sentence]), NO_DIRECTION)
    )
    attentions = model.get_encoder()(input_ids=ids, output_attentions=True).attentions
    if not attentions:
        raise UserError(
            f"The encoder of {name} must have softmax attention, got {model.config.model_type}."
        )
    first = max(0, len(attentions) - most_layers)
    weights = [attention[0].tolist() for attention in attentions[first:]]
    tokens = token_labels(tokenizer, ids[0].tolist(), as_source=True)
    return {"tokens": tokens, "first_layer": first + 1, "weights": weights}


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each head: how far it looks on average, and how much weight its largest one
    has.
    """
    attention = values["attention"]
    weights = torch.tensor(attention["weights"])
    places = torch.arange(weights.shape[-1])
    distances = (weights * (places[:, None] - places).abs()).sum(dim=-1).mean(dim=-1)
    largest = weights.amax(dim=-1).mean(dim=-1)
    return [
        {
            "layer": attention["first_layer"] + layer,
            "head": head + 1,
            "mean distance in tokens": float(distances[layer, head]),
            "mean largest weight": float(largest[layer, head]),
            "tokens": attention["tokens"],
            "weights": attention["weights"][layer][head],
        }
        for layer in range(weights.shape[0])
        for head in range(weights.shape[1])
    ]


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure with a panel for each head."""
    tokens, titles = (
        table[0]["tokens"],
        [f"layer {row['layer']}, head {row['head']}" for row in table],
    )
    weights = torch.tensor([row["weights"] for row in table])
    return draw_attention(
        tokens, tokens, weights, titles, "Self-attention of the encoder", ("attends to", "token")
    )


TITLE = "Self-attention of the encoder for a sentence (figures 3 to 5)"
FLAGS = {**MODEL, "sentence": ("Tom gave me a red apple.", "sentence whose attention is drawn")}
EXPERIMENT = Experiment(
    "figures", TITLE, 2, "layers, the last ones", runs, rows, draw, FLAGS, identity
)
if __name__ == "__main__":
    EXPERIMENT.run_script()
