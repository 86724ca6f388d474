"""Tiny COMET models, whose weights are values of a formula, in the files that COMET writes.

This module needs nothing of this package, so that it also runs where unbabel-comet 2.2.7 is
installed. The scores in `tests/extensions/quality/unit/comet_2_2_7.json` are of that package, for
each of `VARIANTS` and for `SAMPLES`:

    folder = write_comet(folder, options)
    comet.load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt")).predict(SAMPLES,
    gpus=0).scores
"""

import json

import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel

PIECES = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    *"abcdefghijklmnopqrstuvwxyzABDEGHKMZäöü.,▁",
    "▁a",
    "en",
    "er",
    "ei",
    "in",
]
PIECES += ["▁d", "ch", "▁Ein", "▁man", "▁dog", "▁H", "<mask>"]
SPECIAL = {piece: place for place, piece in enumerate(PIECES) if piece.startswith("<")}
ENCODER = {
    "vocab_size": len(PIECES),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
}
ENCODER |= {"intermediate_size": 24, "max_position_embeddings": 34, "type_vocab_size": 1}
_COMMON = {
    "encoder_model": "XLM-RoBERTa",
    "activations": "Tanh",
    "final_activation": None,
    "layer_norm": False,
}
_COMMON |= {
    "hidden_sizes": [12, 7],
    "dropout": 0.1,
    "nr_frozen_epochs": 0.3,
    "train_data": ["data/train.csv"],
}
REGRESSION = {**_COMMON, "class_identifier": "regression_metric", "layer": "mix", "pool": "avg"}
REGRESSION |= {"layer_transformation": "sparsemax"}
UNIFIED = {
    **_COMMON,
    "class_identifier": "unified_metric",
    "sent_layer": "mix",
    "input_segments": ["mt", "src"],
}
UNIFIED |= {
    "layer_transformation": "sparsemax_patch",
    "word_level_training": False,
    "word_layer": 3,
}
VARIANTS = {
    "regression": REGRESSION,
    "regression_cls": {**REGRESSION, "layer_transformation": "softmax", "pool": "cls"},
    "regression_normalized": {
        **REGRESSION,
        "layer_norm": True,
        "final_activation": "Sigmoid",
        "hidden_sizes": [9],
    },
    "unified": UNIFIED,
    "unified_words": {
        **UNIFIED,
        "word_level_training": True,
        "word_layer": 2,
    },  # tags of words change no score
    "unified_sparsemax": {**UNIFIED, "layer_transformation": "sparsemax", "layer_norm": True},
}
# Texts that are cut, empty, unknown, or hold the token of padding.
SAMPLES = [
    {"src": "A man.", "mt": "Ein Mann.", "ref": "Ein Mann."},
    {
        "src": "Two dogs run, and a man is sleeping in the garden.",
        "mt": "Zwei Hunde",
        "ref": "Zwei Hunde rennen",
    },
    {"src": "", "mt": "a", "ref": "b"},
    {"src": "x", "mt": "", "ref": "x"},
    {"src": "A <pad> man 日本", "mt": "Ein <pad> Mann 語", "ref": "<pad>"},
    {
        "src": "dogs in a hotel of a man",
        "mt": "Ein Mann, der keine Hunde hat, rennt und rennt.",
        "ref": "q" * 50,
    },
]


def write_comet(folder, options):
    """Write a model with the options into a folder, and its encoder beside it."""
    encoder = folder.with_name(f"{folder.name}-encoder")
    write_encoder(encoder)
    (folder / "checkpoints").mkdir(parents=True)
    options = {**options, "pretrained_model": str(encoder)}
    (folder / "hparams.yaml").write_text(yaml.dump(options))
    model = XLMRobertaModel(XLMRobertaConfig(**ENCODER), add_pooling_layer=False)
    shapes = {
        f"encoder.model.{name}": tuple(value.shape) for name, value in model.state_dict().items()
    }
    shapes |= {f"layerwise_attention.scalar_parameters.{layer}": (1,) for layer in range(4)}
    shapes["layerwise_attention.gamma"] = (1,)
    widths = [
        16 * (6 if options["class_identifier"] == "regression_metric" else 1),
        *options["hidden_sizes"],
        1,
    ]
    for place, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        shapes |= {
            f"estimator.ff.{3 * place}.weight": (outputs, inputs),
            f"estimator.ff.{3 * place}.bias": (outputs,),
        }
    weights = {name: formula(name, shape) for name, shape in shapes.items()}
    saved = {
        **options,
        "layer_transformation": options["layer_transformation"].removesuffix("_patch"),
    }
    content = {
        "state_dict": weights,
        "hyper_parameters": saved,
        "pytorch-lightning_version": "2.6.6",
        "epoch": 1,
    }
    torch.save(content, folder / "checkpoints" / "model.ckpt")
    return folder


def formula(name, shape):
    """Return the values of a weight, which depend on its name: products of sines around 0, or
    around 1.
    """
    seed = sum(place * ord(letter) for place, letter in enumerate(name, start=1)) % 997
    places = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    values = torch.sin(seed + 1.7 * places) * torch.cos(0.3 * seed + 0.91 * places * places)
    center = 1.0 if "LayerNorm.weight" in name or name.endswith("gamma") else 0.0
    return (center + 0.6 * values).float().reshape(shape)


def write_encoder(folder):
    """Write the configuration and the tokenizer of XLM-RoBERTa."""
    XLMRobertaConfig(**ENCODER).save_pretrained(folder)
    scores = [0.0 if piece in SPECIAL else 2.0 * len(piece) - 9 for piece in PIECES]
    tokenizer = Tokenizer(
        models.Unigram([*zip(PIECES, scores, strict=True)], unk_id=SPECIAL["<unk>"])
    )
    parts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.add_special_tokens([*SPECIAL])
    ends = [(piece, SPECIAL[piece]) for piece in ("<s>", "</s>")]
    pair = "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=ends
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "XLMRobertaTokenizer"})
    )
