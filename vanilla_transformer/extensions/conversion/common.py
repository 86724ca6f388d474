"""Read and check models of other toolkits, load their weights, and build their tokenizers."""

import json
import math
import re
import reprlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import MarianTokenizer, PreTrainedModel

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained
from vanilla_transformer.errors import (
    MissingFileError,
    UserError,
    UserErrors,
    UserFileError,
    is_refusal,
)
from vanilla_transformer.files.text_files import decode_text
from vanilla_transformer.loading.model_names import least_parameters
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.user_input.reasons import Reasons

Model = TypeVar("Model", bound=PreTrainedModel)

# A reason to refuse for every target format, since there the caller passes the source ids.
SOURCES_WITHOUT_EOS = (
    "its sources have no EOS, which its tokenizer appends and the model masks (`source_eos`)"
)
OTHER_SIZES = "its vocabularies of source and target have other sizes, and one tokenizer"
NO_TOKENIZER_JSON = "its tokenizer has no `tokenizer.json`"
PARSER_ERRORS = (
    *(
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        RuntimeError,
        EOFError,
    ),
    *(yaml.YAMLError, MemoryError, StrictDataclassError, SafetensorError, BadZipFile),
)
_MAX_POSITIONS = 2**16
_MOST_OPTIONS = 100_000


@contextmanager
def reading(source: str | Path, toolkit: str) -> Iterator[None]:
    """Turn every error about the files of another toolkit into one line for each mistake, which
    names them.

    Such files hold any values where names, numbers and lists belong, and their parsers and models
    raise many types. Write nothing in this context.
    """
    try:
        yield
    except UserErrors as error:
        mistakes = [UserError(f"Cannot convert {source}: {mistake}") for mistake in error.mistakes]
        raise UserErrors(mistakes) from error
    except (ValueError, OSError) as error:
        if str(source) in str(error) and is_refusal(error):
            raise
        kind = UserFileError if isinstance(error, OSError) else UserError
        raise kind(f"Cannot convert {source}: {' '.join(str(error).split())}") from error
    except PARSER_ERRORS as error:
        if isinstance(error, KeyError):
            reason = f"an entry {error} is missing"
        else:
            reason = " ".join(str(error).split())
        requirement = (
            f"it must be a complete model of {toolkit}, but a file is damaged or of another format"
        )
        raise UserError(f"Cannot convert {source}: {requirement} ({reason[:200]}).") from error


def check_supported(target: str, reasons: Mapping[str, bool]) -> None:
    """Raise one error with all reasons that apply why `target`, such as CTranslate2, cannot
    represent a model.
    """
    applying = [reason for reason, applies in reasons.items() if applies]
    if applying:
        raise UserError(f"{target} cannot represent this model: {'; '.join(applying)}.")


def option_reasons(
    options: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]
) -> dict[str, bool]:
    """Return a reason for each option of another toolkit that is given and has none of the allowed
    values.
    """
    reasons = {}
    for name, values in allowed.items():
        if name in options:
            known = " or ".join(map(repr, values))
            reason = f"`{name}` is {reprlib.repr(options[name])}, not {known}"
            reasons[reason] = options[name] not in values
    return reasons


def read_lines(path: Path, form: str, content: str) -> list[re.Match[str]]:
    """Return the lines of a file of another toolkit, as matches of `form`. Blank lines are left
    out.

    Args:
        content: What each line must have, for the error.
    """
    lines = read_utf8(path).split("\n")
    matches = [re.fullmatch(form, line) for line in lines if line.strip()]
    if not matches or None in matches:
        wrong = next((line for line in lines if not re.fullmatch(form, line)), "")
        raise UserError(f"{path} must have {content} in each line, got {reprlib.repr(wrong)}.")
    return [match for match in matches if match is not None]


def read_utf8(path: Path) -> str:
    """Return the text of a file of another toolkit."""
    return decode_text(path.read_bytes(), str(path)).replace("\r\n", "\n")


def load_options(text: str, name: str) -> dict[str, Any]:
    """Return the options of another toolkit in YAML.

    Args:
        name: What the text is, for the error.
    """
    options = yaml.safe_load(text)
    if not isinstance(options, dict):
        raise UserError(f"{name} must have options and their values, got {reprlib.repr(options)}.")
    count, left = 0, [options]
    while left and count <= _MOST_OPTIONS:
        value = left.pop()
        count += 1
        left += value.values() if isinstance(value, dict) else ()
        left += value if isinstance(value, list) else ()
    if left:  # by aliases of aliases, a few lines stand for billions of values
        raise UserError(f"{name} must have at most {_MOST_OPTIONS:,} values, also by its aliases.")
    return options


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested options by their paths, such as `encoder.layers`."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def side_reasons(
    encoder: Mapping[str, Any], decoder: Mapping[str, Any], names: Sequence[str]
) -> dict[str, bool]:
    """Return a reason for each of these options of encoder and decoder."""
    reasons = {}
    for name in names:
        is_other = encoder.get(name) != decoder.get(name)
        reasons[f"`{name}` of encoder and decoder differ"] = is_other
    return reasons


def target_reasons(config: VanillaTransformerConfig) -> dict[str, bool]:
    """Return the reasons why hardly any target format represents a model, and whether each
    applies.
    """
    heads = config.encoder_attention_heads, config.decoder_attention_heads
    widths = [number * width for number in heads for width in config.head_dims(number)]
    has_widths = {*widths} != {config.d_model}
    return {
        "its heads have separate widths (`attention_key_dim`, `attention_value_dim`)": has_widths,
        SOURCES_WITHOUT_EOS: not config.source_eos,
    }


def load_model(model_class: type[Model], name: str | Path) -> Model:
    """Load a model of this very class in float32 for inference, from a folder or a name on the
    Hub.
    """
    config, wanted = load_config(name), model_class.config_class.model_type
    if config.model_type != wanted:
        raise UserError(
            f"{name} must be a model of type {wanted!r}, got type {config.model_type!r}."
        )
    model = load_pretrained(model_class, name, dtype=torch.float32)
    if type(model) is not model_class:  # which may compute otherwise
        raise UserError(
            f"{name} must be a {model_class.__name__} itself, got its subclass "
            f"{type(model).__name__}."
        )
    return model


def rename(name: str, rules: Mapping[str, Any]) -> str:
    """Return another toolkit's name of our parameter: its parts are replaced in order, as `re.sub`
    does.
    """
    for pattern, replacement in rules.items():
        name = re.sub(pattern, replacement, name)
    return name


class ForeignWeights(dict[str, Any]):
    """Tensors or NumPy arrays by the names of another toolkit, and the names that have been
    read.
    """

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


def build_model(
    config: VanillaTransformerConfig,
    weights: Mapping[str, Any],
    find: Callable[[str, torch.Tensor, ForeignWeights], torch.Tensor],
    unused: str = "",
) -> VanillaTransformerForConditionalGeneration:
    """
    Build a model with the weights of another toolkit, and list all that are missing, unknown or of
    another shape.

    Args:
        weights: Tensors or NumPy arrays, which must fill the model that the options declare.
        find: Returns the tensor for one of our parameters, given its name, its initial value and
            the weights.
        unused: A regular expression of the names of weights that the model does not need.
    """
    declared = least_parameters(config)
    stored = sum(math.prod(np.shape(array)) for array in weights.values())
    num_layers = config.encoder_layers + config.decoder_layers
    with Reasons() as reasons:
        if declared > stored or num_layers > len(weights):
            reasons.add(
                "The weights must fill the model that the options declare, with "
                f"{num_layers:,} layers and at least {declared:,} values, got {len(weights):,} "
                f"arrays with {stored:,} values. Correct the options."
            )
        is_learned = config.position_embedding_type == "learned"
        if is_learned and config.max_position_embeddings > _MAX_POSITIONS:
            reasons.add(
                f"The options must declare at most {_MAX_POSITIONS:,} positions, got "
                f"{config.max_position_embeddings:,}."
            )
    model = VanillaTransformerForConditionalGeneration(config).eval()
    foreign = ForeignWeights(weights)
    tensors, missing = dict[str, torch.Tensor](), list[str]()
    initial = model.state_dict()
    for name, tensor in initial.items():
        try:
            tensors[name] = find(name, tensor, foreign)
        except KeyError as error:
            missing.append(error.args[0])
    other = []
    for name, tensor in tensors.items():
        if tensor.shape != initial[name].shape:
            other.append(name)
    unread = foreign.keys() - foreign.read
    unknown = sorted(name for name in unread if not re.fullmatch(unused, name))
    check_supported(
        "This package",
        {
            f"there are no weights for {missing[:1]}": bool(missing),
            f"its weights for {other[:1]} have another shape than its options and vocabularies "
            "say": bool(other),
            f"it has unknown weights {unknown[:1]}": bool(unknown) and not missing,
        },
    )
    model.load_state_dict(tensors)
    return model


def find_sentencepiece_model(name: str | Path, folder: Path) -> Path:
    """Find a SentencePiece model at the path that a configuration names, or in `folder`."""
    name = Path(name)
    for path in (name, folder / name, folder / name.name):
        if path.is_file():
            return path
    raise MissingFileError(
        f"There is no SentencePiece model {name}, neither at that path nor in {folder}."
    )


def build_sentencepiece_tokenizer(
    spm_paths: tuple[Path, Path],
    vocabularies: tuple[Sequence[str], Sequence[str]],
    special_tokens: Mapping[str, str],
) -> MarianTokenizer:
    """Build a Marian tokenizer, which combines SentencePiece models with vocabularies that number
    the pieces.

    Args:
        vocabularies: The tokens of source and target in the order of their ids.
        special_tokens: Special tokens by their names in transformers, such as `pad_token`.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, tokens in zip(("vocab", "target_vocab_file"), vocabularies, strict=True):
            path = Path(folder, f"{name}.json")
            ids = {token: index for index, token in enumerate(tokens)}
            path.write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
            files[name] = str(path)
        separate = list(vocabularies[0]) != list(vocabularies[1])
        return MarianTokenizer(
            *map(str, spm_paths), **files, separate_vocabs=separate, **special_tokens
        )
