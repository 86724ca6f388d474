"""Tiny COMET models, whose weights are values of a formula, in the files that COMET writes.

This module needs nothing of this package, so that it also runs where unbabel-comet 2.2.7 is
installed. The scores in `tests/extensions/quality/unit/comet_2_2_7.json` are of that package, for
each of `VARIANTS` and for `SAMPLES`:

    folder = write_comet(folder, options)
    comet.load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt")).predict(SAMPLES,
    gpus=0).scores
"""

import json
import operator
from itertools import count, pairwise

import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel

PIECES = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyzABDEGHKMZäöü.,▁"]
PIECES += ["▁a", "en", "er", "ei", "in"]
PIECES += ["▁d", "ch", "▁Ein", "▁man", "▁dog", "▁H", "<mask>"]
SPECIAL = {piece: index for index, piece in enumerate(PIECES) if piece.startswith("<")}
ENCODER = {"vocab_size": len(PIECES), "hidden_size": 16}
ENCODER |= {"num_hidden_layers": 3, "num_attention_heads": 2}
ENCODER |= {"intermediate_size": 24, "max_position_embeddings": 34, "type_vocab_size": 1}
_COMMON = {"encoder_model": "XLM-RoBERTa", "activations": "Tanh"}
_COMMON |= {"final_activation": None, "layer_norm": False, "hidden_sizes": [12, 7]}
_COMMON |= {"dropout": 0.1, "nr_frozen_epochs": 0.3, "train_data": ["data/train.csv"]}
REGRESSION = _COMMON | {"class_identifier": "regression_metric", "layer": "mix"}
REGRESSION |= {"pool": "avg", "layer_transformation": "sparsemax"}
UNIFIED = _COMMON | {"class_identifier": "unified_metric", "sent_layer": "mix"}
UNIFIED |= {"input_segments": ["mt", "src"], "layer_transformation": "sparsemax_patch"}
UNIFIED |= {"word_level_training": False, "word_layer": 3}
NORMALIZED = {"layer_norm": True, "final_activation": "Sigmoid", "hidden_sizes": [9]}
WORDS = {"word_level_training": True, "word_layer": 2}  # tags of words change no score
SPARSEMAX = {"layer_transformation": "sparsemax", "layer_norm": True}
VARIANTS = {
    "regression": REGRESSION,
    "regression_cls": REGRESSION | {"layer_transformation": "softmax", "pool": "cls"},
    "regression_normalized": REGRESSION | NORMALIZED,
    "unified": UNIFIED,
    "unified_words": UNIFIED | WORDS,
    "unified_sparsemax": UNIFIED | SPARSEMAX,
}
# Texts that are cut, empty, unknown, or hold the token of padding.
LONG_SOURCE = "Two dogs run, and a man is sleeping in the garden."
LONG_TRANSLATION = "Ein Mann, der keine Hunde hat, rennt und rennt."
SAMPLES = [
    {"src": "A man.", "mt": "Ein Mann.", "ref": "Ein Mann."},
    {"src": LONG_SOURCE, "mt": "Zwei Hunde", "ref": "Zwei Hunde rennen"},
    {"src": "", "mt": "a", "ref": "b"},
    {"src": "x", "mt": "", "ref": "x"},
    {"src": "A <pad> man 日本", "mt": "Ein <pad> Mann 語", "ref": "<pad>"},
    {"src": "dogs in a hotel of a man", "mt": LONG_TRANSLATION, "ref": "q" * 50},
]


def write_comet(folder, options):
    """Write a model with the options into a folder, and its encoder beside it."""
    encoder = folder.with_name(f"{folder.name}-encoder")
    write_encoder(encoder)
    (folder / "checkpoints").mkdir(parents=True)
    options = {**options, "pretrained_model": str(encoder)}
    (folder / "hparams.yaml").write_text(yaml.dump(options))
    model = XLMRobertaModel(XLMRobertaConfig(**ENCODER), add_pooling_layer=False)
    shapes = {}
    for name, value in model.state_dict().items():
        shapes[f"encoder.model.{name}"] = tuple(value.shape)
    for layer in range(4):
        shapes[f"layerwise_attention.scalar_parameters.{layer}"] = (1,)
    shapes["layerwise_attention.gamma"] = (1,)
    vectors = 6 if options["class_identifier"] == "regression_metric" else 1
    widths = [16 * vectors, *options["hidden_sizes"], 1]
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        shapes[f"estimator.ff.{3 * index}.weight"] = (outputs, inputs)
        shapes[f"estimator.ff.{3 * index}.bias"] = (outputs,)
    weights = {name: formula(name, shape) for name, shape in shapes.items()}
    transformation = options["layer_transformation"].removesuffix("_patch")
    saved = options | {"layer_transformation": transformation}
    content = {"state_dict": weights, "hyper_parameters": saved, "epoch": 1}
    content["pytorch-lightning_version"] = "2.6.6"
    torch.save(content, folder / "checkpoints" / "model.ckpt")
    return folder


def formula(name, shape):
    """Return the values of a weight, which depend on its name: products of sines around 0, or
    around 1.
    """
    seed = sum(map(operator.mul, map(ord, name), count(1))) % 997
    indices = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    sines = torch.sin(seed + 1.7 * indices)
    values = sines * torch.cos(0.3 * seed + 0.91 * indices * indices)
    center = float("LayerNorm.weight" in name or name.endswith("gamma"))
    return (center + 0.6 * values).float().reshape(shape)


def write_encoder(folder):
    """Write the configuration and the tokenizer of XLM-RoBERTa."""
    XLMRobertaConfig(**ENCODER).save_pretrained(folder)
    scores = dict.fromkeys(SPECIAL, 0.0)
    pieces = [(piece, scores.get(piece, 2.0 * len(piece) - 9)) for piece in PIECES]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=SPECIAL["<unk>"]))
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    parts = [pre_tokenizers.WhitespaceSplit(), metaspace]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.add_special_tokens([*SPECIAL])
    ends = [(piece, SPECIAL[piece]) for piece in ("<s>", "</s>")]
    templates = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}
    template = processors.TemplateProcessing(**templates, special_tokens=ends)
    tokenizer.post_processor = template
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
