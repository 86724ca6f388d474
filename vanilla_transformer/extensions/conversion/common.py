"""Read and check foreign checkpoints, build tokenizers, and compare a model before and after its conversion."""

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import MarianTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained
from vanilla_transformer.errors import MissingFileError, UserError, UserFileError, is_refusal
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.utils.user_input import least_parameters

Model = TypeVar("Model", bound=PreTrainedModel)

# A reason to refuse for every target format, since there the caller passes the source ids.
HEAD_WIDTHS = "its heads have separate widths (`attention_key_dim`, `attention_value_dim`)"
SOURCES_WITHOUT_EOS = "its sources have no EOS, which its tokenizer appends and the model masks (`source_eos`)"
NO_TOKENIZER_JSON = "its tokenizer has no `tokenizer.json`"
_ERRORS_OF_PARSERS = (
    *(LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RuntimeError, EOFError),
    *(yaml.YAMLError, MemoryError, StrictDataclassError, SafetensorError, BadZipFile),
)
_MAX_POSITIONS = 2**16


@contextmanager
def reading(source: str | Path, toolkit: str) -> Iterator[None]:
    """Turn every error about the files of another toolkit into one line that names them.

    Such files hold any values where names, numbers and lists belong, and their parsers and models raise many types.
    Write nothing in this context.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        if str(source) in str(error) and is_refusal(error):
            raise
        kind = UserFileError if isinstance(error, OSError) else UserError
        raise kind(f"Cannot convert {source}: {' '.join(str(error).split())}") from error
    except _ERRORS_OF_PARSERS as error:
        reason = f"an entry {error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        rule = f"it must be a complete model of {toolkit}, but a file is damaged or of another format"
        raise UserError(f"Cannot convert {source}: {rule} ({reason[:200]}).") from error


def check_supported(target: str, reasons: Mapping[str, bool]) -> None:
    """Raise one error that lists every reason why `target` cannot represent a model.

    Args:
        target: The subject of the message, such as `"CTranslate2"`.
        reasons: Whether each reason applies, by reason.
    """
    applying = [reason for reason, applies in reasons.items() if applies]
    if applying:
        raise UserError(f"{target} cannot represent this model: {'; '.join(applying)}.")


def option_reasons(options: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> dict[str, bool]:
    """
    Return a reason for each option with a value that this package has no counterpart for.

    Args:
        options: The options of another toolkit. The ones that are left out have its default.
        allowed: The values that an option may have, by name.
    """
    return {
        f"`{name}` is {options[name]!r}, not {' or '.join(map(repr, values))}": options[name] not in values
        for name, values in allowed.items()
        if name in options
    }


def side_reasons(encoder: Mapping[str, Any], decoder: Mapping[str, Any], names: Sequence[str]) -> dict[str, bool]:
    """Return a reason for each of these options that differs between encoder and decoder."""
    return {f"`{name}` of encoder and decoder differ": encoder.get(name) != decoder.get(name) for name in names}


def has_head_widths(config: VanillaTransformerConfig) -> bool:
    """Return whether keys or values of a head are not `d_model / h` wide."""
    heads = config.encoder_attention_heads, config.decoder_attention_heads
    return any(number * width != config.d_model for number in heads for width in config.head_dims(number))


def load_model(model_class: type[Model], name: str | Path, **kwargs: Any) -> Model:
    """Load a model of transformers in float32 for inference.

    Args:
        model_class: The class that the model must have.
        name: A folder, or a name on the Hub.
        kwargs: Passed to `from_pretrained`.
    """
    config, wanted = load_config(name), model_class.config_class.model_type
    if config.model_type != wanted:
        raise UserError(f"{name} must be a model of type {wanted!r}, got type {config.model_type!r}.")
    model = load_pretrained(model_class, name, dtype=torch.float32, **kwargs)
    if type(model) is not model_class:  # which may compute otherwise
        raise UserError(f"{name} must be a {model_class.__name__} itself, got its subclass {type(model).__name__}.")
    return model


def build_model(
    config: VanillaTransformerConfig, weights: Mapping[str, Any]
) -> VanillaTransformerForConditionalGeneration:
    """Build a model for inference, to load `weights` of another toolkit into, which may be tensors or NumPy arrays."""
    declared, found = least_parameters(config), sum(math.prod(np.shape(array)) for array in weights.values())
    num_layers = config.encoder_layers + config.decoder_layers
    if declared > found or num_layers > len(weights):
        raise UserError(
            f"The weights must fill the model that the options declare, with {num_layers:,} layers and at least "
            f"{declared:,} values, got {len(weights):,} arrays with {found:,} values. Correct the options."
        )
    if config.position_embedding_type == "learned" and config.max_position_embeddings > _MAX_POSITIONS:
        raise UserError(
            f"The options must declare at most {_MAX_POSITIONS:,} positions, got {config.max_position_embeddings:,}."
        )
    return VanillaTransformerForConditionalGeneration(config).eval()


@dataclass(frozen=True)
class ModuleNames:
    """
    The names of another toolkit's modules, by ours.

    Attributes:
        modules: Whole names, such as `decoder.embed_tokens` and `decoder.layers`.
        encoder_layer, decoder_layer: Names in a layer.
        projections: Names in an attention.
    """

    modules: Mapping[str, str]
    encoder_layer: Mapping[str, str]
    decoder_layer: Mapping[str, str]
    projections: Mapping[str, str]

    def translate(self, name: str) -> str:
        """Return the toolkit's name of our parameter."""
        path, _, kind = name.removeprefix("model.").rpartition(".")
        stack, *parts = path.split(".")
        if parts[:1] != ["layers"]:
            return f"{self.modules.get(path, path)}.{kind}"
        number, module, *projection = parts[1:]
        layers, layer = f"{stack}.layers", self.encoder_layer if stack == "encoder" else self.decoder_layer
        inner = (self.projections.get(part, part) for part in projection)
        return ".".join([self.modules.get(layers, layers), number, layer.get(module, module), *inner, kind])


class ForeignWeights(dict[str, Any]):
    """Tensors or NumPy arrays by the names of another toolkit, and the names that have been read."""

    def __init__(self, weights: Mapping[str, Any]):
        super().__init__(weights)
        self.read = set[str]()

    def first(self, *names: str) -> torch.Tensor:
        """Return the first of these weights that is there."""
        for name in names:
            if name in self:
                self.read.add(name)
                array = self[name]
                if isinstance(array, torch.Tensor):
                    return array
                return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        raise KeyError(names[0])


def load_weights(
    model: PreTrainedModel,
    weights: Mapping[str, Any],
    find: Callable[[str, torch.Tensor, ForeignWeights], torch.Tensor],
    unused: str = "",
) -> None:
    """
    Load weights of another toolkit, and list all that are missing, unknown or of another shape.

    Args:
        find: Returns the tensor for one of our parameters, given its name, its initial value and the weights.
        unused: A regular expression of the names of weights that the model does not need.
    """
    foreign, tensors, missing = ForeignWeights(weights), dict[str, torch.Tensor](), list[str]()
    initial = model.state_dict()
    for name, tensor in initial.items():
        try:
            tensors[name] = find(name, tensor, foreign)
        except KeyError as error:
            missing.append(error.args[0])
    other = [name for name, tensor in tensors.items() if tensor.shape != initial[name].shape]
    unknown = sorted(name for name in foreign.keys() - foreign.read if not re.fullmatch(unused, name))
    check_supported(
        "This package",
        {
            f"there are no weights for {missing[:1]}": bool(missing),
            f"its weights for {other[:1]} have another shape than its options say": bool(other),
            f"it has unknown weights {unknown[:1]}": bool(unknown) and not missing,
        },
    )
    model.load_state_dict(tensors)


def fairseq_sinusoids(num_positions: int, d_model: int, first_position: int = 0) -> torch.Tensor:
    """Compute the positional encodings of fairseq, Marian and Tensor2Tensor, shape `(num_positions, d_model)`.

    All sines precede all cosines, and the wavelengths reach 10000 · 2π exactly: exponents are divided by
    `d_model / 2 - 1`. Section 3.5 of the paper divides them by `d_model / 2`.
    """
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000) / (half - 1)))
    positions = torch.arange(num_positions, dtype=torch.float64) + first_position
    angles = positions[:, None] * frequencies  # (num_positions, d_model / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def find_sentencepiece_model(name: str | Path, folder: Path) -> Path:
    """Find a SentencePiece model at the path that a configuration names, or in `folder`."""
    name = Path(name)
    for path in (name, folder / name, folder / name.name):
        if path.is_file():
            return path
    raise MissingFileError(f"There is no SentencePiece model {name}, neither at that path nor in {folder}.")


def build_sentencepiece_tokenizer(
    spm_paths: tuple[Path, Path], vocabularies: tuple[Sequence[str], Sequence[str]], special_tokens: Mapping[str, str]
) -> MarianTokenizer:
    """Build a Marian tokenizer, which combines SentencePiece models with vocabularies that number the pieces.

    Args:
        spm_paths: The SentencePiece models of source and target.
        vocabularies: The tokens of source and target in the order of their ids.
        special_tokens: The special tokens by their names in transformers, such as `pad_token`.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, tokens in zip(("vocab", "target_vocab_file"), vocabularies, strict=True):
            path = Path(folder, f"{name}.json")
            ids = {token: index for index, token in enumerate(tokens)}
            path.write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
            files[name] = str(path)
        separate = list(vocabularies[0]) != list(vocabularies[1])
        return MarianTokenizer(*map(str, spm_paths), **files, separate_vocabs=separate, **special_tokens)


# The same for every comparison.
BATCH_SIZE = 16
MAX_NEW_TOKENS = 128
# In float32 both models differ by rounding, at most by Marian's other layer-norm epsilon.
_MAX_LOGIT_DIFFERENCE = 0.05
_MIN_IDENTICAL = 0.9  # rounding decides between tokens that are about equally likely
_ADDED_TOKENS = 8  # in a sentence
Translator = Callable[[Sequence[str]], list[list[int]]]


class Comparison(NamedTuple):
    """Differences between the original and the converted model.

    Attributes:
        num_sentences: Sentences translated by both.
        num_identical: Sentences with the same token ids.
        max_logit_difference: The largest absolute difference, or None if a runtime does not return logits.
        speedup: Decoding time of the original divided by the time of the converted model.
        chrf: chrF of the converted model's translations, with the original's as the references.
    """

    num_sentences: int
    num_identical: int
    max_logit_difference: float | None
    speedup: float
    chrf: float | None = None

    def __str__(self) -> str:
        difference = self.max_logit_difference
        logits = "" if difference is None else f", largest logit difference {difference:.1e}"
        chrf = "" if self.chrf is None else f", chrF between both {self.chrf:.1f}"
        same = f"{self.num_identical} of {self.num_sentences} outputs identical"
        return f"{same}{chrf}{logits}, speedup {self.speedup:.2f}"


def compare_models(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> Comparison:
    """Compare two models of transformers: the tokens of greedy search, and the logits along the original's tokens."""
    comparison = compare_translators(
        greedy_translator(original, tokenizer), greedy_translator(converted, tokenizer), sentences, tokenizer
    )
    difference = max_logit_difference(original, converted, tokenizer, sentences)
    ours = original if isinstance(original, VanillaTransformerForConditionalGeneration) else converted
    return require_same(comparison._replace(max_logit_difference=difference), ours, tokenizer, sentences)


def require_same(
    comparison: Comparison, ours: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> Comparison:
    """Return the comparison if the models differ only by rounding in float32.

    Both may be wrong in the same way. So the engine, which computes the decoder by other code, must agree, too.

    Args:
        ours: The model of this package.
    """
    difference = comparison.max_logit_difference
    if difference is None:
        same = comparison.num_identical >= _MIN_IDENTICAL * comparison.num_sentences
    else:
        same = difference <= _MAX_LOGIT_DIFFERENCE
    if not same:
        raise UserError(
            f"The converted model must compute what the original does, but does not: {comparison}. Nothing was "
            "written. Report this with the options of the model."
        )
    some = sentences[: 2 * BATCH_SIZE]
    search = {"suppress_tokens": None}  # padding may be a token
    options = TranslationOptions.resolve(_greedy_options(ours) | search, None, ours.generation_config)
    engine = EnginePool(ours.eval(), compile=False).find(options)
    if engine is None:  # which does not follow an option of the model
        return comparison
    outputs = [
        greedy_translator(ours, tokenizer, **search, **further)(some) for further in ({}, {"custom_generate": engine})
    ]
    identical = sum(first == second for first, second in zip(*outputs, strict=True))
    if identical < _MIN_IDENTICAL * len(some):
        raise UserError(
            "The engine of this package must translate as `generate()` of transformers does with the model, but "
            f"does not: {identical} of {len(some)} outputs identical. Nothing was written. Report this with the "
            "options of the model."
        )
    return comparison


def compare_translators(
    original: Translator, converted: Translator, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> Comparison:
    """Compare token ids, without special tokens, their texts, and the time after a batch that both translate first.

    Each added token of the vocabulary is in a sentence, because a runtime may not know it.
    """
    import sacrebleu  # which a machine with a GPU may lack that runs benchmarks

    if not sentences:
        raise UserError("A comparison needs at least one sentence, got none.")
    named = tokenizer.special_tokens_map.values()
    added = [token for token in tokenizer.get_added_vocab() if token not in named]
    marked = [" ".join(added[start : start + _ADDED_TOKENS]) for start in range(0, len(added), _ADDED_TOKENS)]
    sentences = [*sentences, *marked]
    outputs, seconds = [], []
    for translate in (original, converted):
        translate(sentences[:BATCH_SIZE])
    for translate in (original, converted):
        start = time.perf_counter()
        outputs.append(translate(sentences))
        seconds.append(time.perf_counter() - start)
    num_identical = sum(first == second for first, second in zip(*outputs, strict=True))
    before, after = (tokenizer.batch_decode(rows, skip_special_tokens=True) for rows in outputs)
    chrf = sacrebleu.corpus_chrf(after, [before]).score
    return Comparison(len(sentences), num_identical, None, seconds[0] / seconds[1], chrf)


def tokenized_batches(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield `input_ids` and `attention_mask` of `BATCH_SIZE` sentences at a time."""
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = tokenizer(list(sentences[start : start + BATCH_SIZE]), padding=True, return_tensors="pt")
        yield {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def greedy_translator(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **further: Any) -> Translator:
    """Return a function from sentences to the token ids that `model` generates by greedy search.

    Args:
        further: Arguments of `generate()`.
    """
    options = _greedy_options(model) | further
    special = {model.config.pad_token_id, model.config.eos_token_id, model.config.decoder_start_token_id}

    @torch.no_grad()
    def translate(sentences: Sequence[str]) -> list[list[int]]:
        model.eval()
        rows: list[list[int]] = []
        for inputs in tokenized_batches(tokenizer, sentences):
            rows += model.generate(**inputs, **options).tolist()
        return [[token for token in row if token not in special] for row in rows]

    return translate


def _greedy_options(model: PreTrainedModel) -> dict[str, Any]:
    """Return the arguments of `generate()`. Padding is suppressed because only some toolkits can generate it."""
    pad = model.config.pad_token_id
    return {"num_beams": 1, "do_sample": False, "max_new_tokens": MAX_NEW_TOKENS, "suppress_tokens": [pad]}


@torch.no_grad()
def max_logit_difference(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> float:
    """Return the largest absolute difference of logits, over all tokens that the original generates."""
    largest = 0.0
    for inputs in tokenized_batches(tokenizer, sentences):
        tokens = original.eval().generate(**inputs, **_greedy_options(original))
        kept = tokens.ne(original.config.pad_token_id)
        kept[:, 0] = True  # Marian's start token is padding
        first, second = (
            model.eval()(**inputs, decoder_input_ids=tokens, use_cache=False).logits[kept]
            for model in (original, converted)
        )
        finite = torch.isfinite(first) & torch.isfinite(second)  # a bias of minus infinity bans a token
        if not torch.equal(torch.isfinite(first), torch.isfinite(second)) or first.isnan().any():
            return float("inf")
        largest = max(largest, float((first - second)[finite].abs().max()))
    return largest
