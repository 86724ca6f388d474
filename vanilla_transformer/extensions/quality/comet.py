"""
Score translations by COMET: an encoder, a mix of its layers, and a feed-forward estimator.

With the hidden states h of XLM-RoBERTa, a text has the vector pool(γ Σ_l softmax(w)_l h_l), or
sparsemax instead of softmax. Two kinds of models estimate a score from vectors (Rei et al., 2020
and 2022):

- `regression_metric` of s, t and r, the source, translation and reference, which are encoded one by
  one and pooled by their mean: [t; r; t ⊙ r; |t - r|; t ⊙ s; |t - s|];
- `unified_metric` of translation and source as one text, pooled by its first token: quality without
  a reference.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from accelerate import init_empty_weights
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.decoding.forced_decoding import plan_scoring_batches
from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.decoding.pretrained import (
    COMET_FILES,
    limit_threads,
    load_config,
    load_tokenizer,
)
from vanilla_transformer.errors import MissingFileError, UserError, UserFileError

HPARAMS, CHECKPOINT = COMET_FILES
REGRESSION, UNIFIED = "regression_metric", "unified_metric"
_ACTIVATIONS: dict[Any, Callable[[], nn.Module]] = {"Tanh": nn.Tanh, "Sigmoid": nn.Sigmoid}
# Of a model that was trained with softmax although its options said sparsemax
_PATCH = "sparsemax_patch"
# The default of each option, and the values that are implemented.
_OPTIONS: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    REGRESSION: {
        "layer": ("mix", ["mix"]),
        "pool": ("avg", ["avg", "cls"]),
        "layer_transformation": ("softmax", ["softmax", "sparsemax"]),
    },
    UNIFIED: {
        "sent_layer": ("mix", ["mix"]),
        "input_segments": (["mt", "src", "ref"], [["mt", "src"]]),
        "layer_transformation": ("sparsemax", ["softmax", "sparsemax"]),
    },
}
for _options in _OPTIONS.values():
    _options["encoder_model"] = ("XLM-RoBERTa", ["XLM-RoBERTa"])
    _options["layer_norm"] = (True, [True, False])
    _options["activations"] = ("Tanh", [*_ACTIVATIONS])
    _options["final_activation"] = (None, [None, *_ACTIVATIONS])
_ELSEWHERE = "Score by unbabel-comet in another environment, or use another model."
_WINDOW, _MOST_TOKENS = 256, 2048  # pairs at a time, and padded tokens of a batch


class Comet(nn.Module):
    """
    A COMET model. Its parameters have the names of the checkpoint.

    Args:
        name: Name for messages.
        options: The class and its options, checked.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        encoder: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
    ):
        super().__init__()
        config: Any = encoder.config
        self.name = name
        self.tokenizer = tokenizer
        self.most_tokens = config.max_position_embeddings - 2
        self.needs_references = options["class_identifier"] == REGRESSION
        self.pool = options["pool"] if self.needs_references else "cls"
        self.encoder = nn.ModuleDict({"model": encoder})
        self.layerwise_attention = LayerMix(config.num_hidden_layers + 1, options)
        vectors = 6 if self.needs_references else 1
        widths = [config.hidden_size * vectors, *options["hidden_sizes"]]
        activation = _ACTIVATIONS[options["activations"]]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), activation(), nn.Dropout()]
        layers.append(nn.Linear(widths[-1], 1))
        if options["final_activation"] is not None:
            layers.append(_ACTIVATIONS[options["final_activation"]]())
        self.estimator = nn.ModuleDict({"ff": nn.Sequential(*layers)})

    @classmethod
    def load(cls, name: str | Path, without_references: bool = False) -> "Comet":
        """Load the model of a folder or of a name on the Hub. Weights stay in their file until they
        are moved or used.

        Args:
            without_references: Whether the model must score translations without references.
        """
        limit_threads()
        folder = Path(name)
        if not folder.is_dir():
            try:
                snapshot = snapshot_download(str(name), allow_patterns=[*COMET_FILES])
                folder = Path(snapshot)
            # Of the Hub library, of the network, or of a name that no model can have.
            except Exception as error:
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                raise MissingFileError(
                    f"There is no folder {name}, and the Hub gives no such model: {reason}"
                ) from error
        if not all((folder / file).is_file() for file in COMET_FILES):
            raise MissingFileError(
                f"A COMET model must have the files {' and '.join(COMET_FILES)}, not so {name}."
            )
        content = load_pickled_checkpoint(folder / CHECKPOINT, "COMET", "state_dict", mmap=True)
        options = _read_options(folder / HPARAMS, content.get("hyper_parameters") or {})
        if without_references and options["class_identifier"] != UNIFIED:
            raise UserError(
                f"A model of quality must be a {UNIFIED}, which needs no references, but {name} is "
                f"a {REGRESSION}. Use another one, such as Unbabel/wmt22-cometkiwi-da."
            )
        config = load_config(options["pretrained_model"])
        if config.model_type != "xlm-roberta":
            raise UserError(
                f"The `pretrained_model` of {name} must be an xlm-roberta model, got "
                f"{config.model_type}. {_ELSEWHERE}"
            )
        with init_empty_weights(include_buffers=False):
            encoder = AutoModel.from_config(config, add_pooling_layer=False)
            tokenizer = load_tokenizer(options["pretrained_model"])
            model = cls(str(name), options, encoder, tokenizer)
        weights = {key: value.float() for key, value in content["state_dict"].items()}
        try:
            keys = model.load_state_dict(weights, strict=False, assign=True)
            missing = keys.missing_keys
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserFileError(
                f"The weights of {name} do not fit its options: {reason}"
            ) from error
        if missing:
            raise UserFileError(
                f"The weights of {name} lack {missing[0]}. Copy or download the model again."
            )
        return model.eval().requires_grad_(False)

    @torch.inference_mode()
    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        references: Sequence[str] = (),
        progress_bar: bool = False,
    ) -> np.ndarray:
        """Return the score of each translation, `(sentences,)`; most are from 0 to 1.

        Args:
            references: The references, if the model needs them.
            progress_bar: Whether a terminal shows the progress.
        """
        sides = [translations, sources]
        if self.needs_references:
            sides.append(references)
        rows = list(zip(*sides, strict=True))
        lengths = [sum(map(len, row)) for row in rows]
        order = sorted(range(len(rows)), key=lengths.__getitem__, reverse=True)
        scores = np.zeros(len(rows))
        hidden = None if progress_bar else True  # or where there is no terminal
        with logging.tqdm(
            total=len(rows), unit="pair", desc=f"Scoring by {self.name}", disable=hidden
        ) as bar:
            for start in range(0, len(order), _WINDOW):
                window = order[start : start + _WINDOW]
                estimates = self._estimate([rows[index] for index in window])
                scores[window] = estimates.cpu().numpy()
                bar.update(len(window))
        if not np.isfinite(scores).all():
            raise UserFileError(
                f"The scores of {self.name} must be numbers, but some are not. Its weights may be "
                "damaged."
            )
        return scores

    def _estimate(self, rows: Sequence[tuple[str, ...]]) -> Tensor:
        """Return the score of each row, which has a translation, a source and perhaps a
        reference.
        """
        limits = {"truncation": True, "max_length": self.most_tokens - 2}
        sides = [list(side) for side in zip(*rows, strict=True)]
        ids = [self.tokenizer(side, **limits)["input_ids"] for side in sides]
        if self.needs_references:
            mt, src, ref = self._embed(list(chain.from_iterable(ids))).chunk(3)
            vectors = [mt, ref, mt * ref, (mt - ref).abs(), mt * src, (mt - src).abs()]
            features = torch.cat(vectors, dim=1)
        else:
            pad, sep = self.tokenizer.pad_token_id, self.tokenizer.sep_token_id
            texts = []
            for translation, source in zip(*ids, strict=True):
                text = [token for token in [*translation, sep, *source[1:]] if token != pad]
                texts.append(text[: self.most_tokens])
            features = self._embed(texts)
        return self.estimator["ff"](features)[:, 0]

    def _embed(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return the vector of each text, `(texts, hidden size)`."""
        different = [*dict.fromkeys(map(tuple, texts))]
        vectors = dict[tuple[int, ...], Tensor]()
        lengths = [(len(text), 0) for text in different]
        for batch in plan_scoring_batches(lengths, _MOST_TOKENS):
            batch_texts = [different[index] for index in batch]
            vectors |= zip(batch_texts, self._embed_batch(batch_texts), strict=True)
        return torch.stack([vectors[tuple(text)] for text in texts])

    def _embed_batch(self, texts: Sequence[Sequence[int]]) -> Tensor:
        pad = self.tokenizer.pad_token_id
        device = self.layerwise_attention.gamma.device
        rows = [torch.tensor(text) for text in texts]
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        ids = padded.to(device)
        lengths = torch.tensor([len(text) for text in texts], device=device)
        mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]
        outputs = self.encoder["model"](
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True
        )
        mixed = self.layerwise_attention(outputs.hidden_states, mask)
        if self.pool == "cls":
            return mixed[:, 0]
        is_text = ids != pad  # a text may contain "<pad>"
        return (mixed * is_text[:, :, None]).sum(dim=1) / lengths[:, None]


class LayerMix(nn.Module):
    """Compute γ Σ_l p_l h_l of hidden states h, where p is the softmax or sparsemax of a weight for
    each layer.
    """

    def __init__(self, num_layers: int, options: Mapping[str, Any]):
        super().__init__()
        scalars = [torch.zeros(1) for _ in range(num_layers)]
        self.scalar_parameters = nn.ParameterList(scalars)
        self.gamma = nn.Parameter(torch.ones(1))
        self.normalizes = options["layer_norm"]
        self.transformation = options["layer_transformation"]

    def forward(self, hidden: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the mix of hidden states, `(B, S, hidden size)` each; the mask is True for
        tokens.
        """
        scores = torch.cat([*self.scalar_parameters])
        weights = sparsemax(scores) if self.transformation == "sparsemax" else scores.softmax(0)
        if self.normalizes:
            hidden = [_normalize(states, mask) for states in hidden]
        pairs = zip(weights, hidden, strict=True)
        weighted = (weight * states for weight, states in pairs)
        return self.gamma * sum(weighted)


def _normalize(hidden: Tensor, mask: Tensor) -> Tensor:
    """Shift and scale the values of all tokens of a text together to mean 0 and variance 1."""
    seen = mask[:, :, None]
    count = mask.sum(dim=1)[:, None, None] * hidden.shape[2]
    mean = (hidden * seen).sum(dim=(1, 2), keepdim=True) / count
    variance = ((hidden - mean).square() * seen).sum(dim=(1, 2), keepdim=True) / count
    return (hidden - mean) / (variance + 1e-12).sqrt()


def sparsemax(scores: Tensor) -> Tensor:
    """Return the point of the probability simplex that is closest to a vector (Martins and
    Astudillo, 2016).
    """
    descending, _ = scores.sort(descending=True)
    ranks = torch.arange(1, len(scores) + 1, device=scores.device)
    thresholds = (descending.cumsum(0) - 1) / ranks
    support = int((descending > thresholds).sum())
    return (scores - thresholds[support - 1]).clamp(min=0)


def _read_options(path: Path, of_checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a model. The ones in its checkpoint come first, as in COMET."""
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"{path} must be YAML of plain values: {' '.join(str(error).split())[:200]}"
        ) from error
    if not isinstance(stored, dict) or stored.get("class_identifier") not in _OPTIONS:
        kind: object = type(stored).__name__
        if isinstance(stored, dict):
            kind = stored.get("class_identifier")
        raise UserError(
            f"`class_identifier` in {path} must be {' or '.join(_OPTIONS)}, got {kind!r}. "
            f"{_ELSEWHERE}"
        )
    known = _OPTIONS[stored["class_identifier"]]
    options = {key: default for key, (default, _) in known.items()}
    options["hidden_sizes"] = [3072, 1024]
    identifier = {"class_identifier": stored["class_identifier"]}
    options |= stored | dict(of_checkpoint) | identifier
    if _PATCH in (stored.get("layer_transformation"), options["layer_transformation"]):
        options["layer_transformation"] = "softmax"
    for key, (_, values) in known.items():
        if options[key] not in values:
            raise UserError(
                f"`{key}` in {path} must be {' or '.join(map(repr, values))}, got "
                f"{options[key]!r}. {_ELSEWHERE}"
            )
    sizes, name = options["hidden_sizes"], options.get("pretrained_model")
    is_list = isinstance(sizes, list) and len(sizes) > 0
    if not is_list or not all(type(size) is int and size > 0 for size in sizes):
        raise UserError(
            f"`hidden_sizes` in {path} must be a list of positive integers, got {sizes!r}."
        )
    if not isinstance(name, str) or not name:
        raise UserError(f"`pretrained_model` in {path} must name a model, got {name!r}.")
    return options
