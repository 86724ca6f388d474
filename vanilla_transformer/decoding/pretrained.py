"""Load models for the commands, and refuse what transformers would replace by random weights or
default settings.
"""

import logging
import os
import pickle
import re
import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    modeling_utils,
)
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, GENERATION_CONFIG_NAME, cached_file

from vanilla_transformer.errors import MissingFileError, UserError, UserFileError, is_refusal
from vanilla_transformer.files.atomic import has_leftover
from vanilla_transformer.files.hashes import hash_file, refuse_damage
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.model_folders import TOKENIZER_FILES, has_weights
from vanilla_transformer.loading.model_files import check_model_file, most_of_size
from vanilla_transformer.loading.model_folders import mapping
from vanilla_transformer.loading.model_names import (
    check_hub,
    check_local_model,
    least_parameters,
    reporting_panics,
)
from vanilla_transformer.machine.cores import usable_cores
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.user_input.reasons import first_line
from vanilla_transformer.user_input.user_modules import USER_MODULE

from .ensemble import Ensemble, check_weights
from .options import TranslationOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vanilla_transformer.decoding.ensemble import DecodedModel

Model = TypeVar("Model", bound=PreTrainedModel)
# Options of a generation config that transformers does not validate.
_COUNTS = {
    "num_beams",
    "num_return_sequences",
    "max_length",
    "max_new_tokens",
    "max_new_tokens_beyond_source",
}
# Of the settings of a folder, in which a stranger could ask for hours of work
_MOST_BEAMS = 100
_TOKENS = (
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "force_words_ids",
)
# What transformers raises for values of a wrong type, or of an unknown type of models.
_INVALID_CONFIG = (
    StrictDataclassError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
    ImportError,
)
# Constants that old checkpoints of other architectures keep beside their weights.
_CONSTANTS = re.compile(r".*\.(version|position_ids|embed_positions\.(weights|_float_tensor))")
# Suffixes of the files of a model
_MODEL_FILES = {".safetensors", ".bin", ".json", ".txt", ".model", ".onnx", ".onnx_data"}
# A file that only exports for another runtime have, the runtime, and what reads the folder there
_EXPORTS = {
    "shared_vocabulary.json": ("CTranslate2", "ctranslate2.Translator"),
    "encoder_model.onnx": ("ONNX Runtime", "onnxruntime.InferenceSession"),
    "onnx/encoder_model.onnx": ("transformers.js", "pipeline"),
}
# Of a model that scores translations
COMET_FILES = ("hparams.yaml", "checkpoints/model.ckpt")
_SMALL = 10**8  # parameters that fit any memory
_AGAIN = "Copy or download the model again."


def load_config(name: str | Path) -> PreTrainedConfig:
    """Load the configuration of a folder or of a name on the Hub, without running code of its
    folder.
    """
    # Without a network, the Hub library would try for half a minute.
    check_local_model(name)
    folder = Path(name)
    if folder.is_dir():
        if has_leftover(folder) and not has_weights(folder):
            problem = f"The model folder {name} is not complete"
            reason = "the command that wrote it was interrupted"
            raise MissingFileError(f"{problem}: {reason}. Run that command again.")
        _refuse_exports(folder)
        base = base_of_adapter(folder)
        if base is not None:
            return load_config(base)
        if not (folder / CONFIG_NAME).is_file():
            checkpoint = get_last_checkpoint(folder)
            if checkpoint is not None and Path(checkpoint, CONFIG_NAME).is_file():
                hint = f"its last checkpoint is {checkpoint}, which is a usable model"
                raise MissingFileError(f"The run {name} is not finished; {hint}.")
            requirement = f"The model folder {name} must have a {CONFIG_NAME}"
            raise MissingFileError(f"{requirement}, but it has none.")
    else:
        check_hub(name)
    try:
        with refusing_files(name):
            if folder.is_dir():
                values, _ = PreTrainedConfig.get_config_dict(folder)
                model_type = values.get("model_type")
                if model_type not in CONFIG_MAPPING:
                    requirement = "`model_type` must be the name of a known model"
                    hint = (
                        "`--user_module FILE.py` imports the module that registers a custom model"
                    )
                    raise LookupError(f"{requirement}, got {model_type!r}. {hint}")
            else:
                check_model_file(Path(cached_file(name, CONFIG_NAME)))
            return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except OSError as error:
        if folder.is_dir():
            raise
        problem = f"There is no model folder {name}, and the Hub gives no such model"
        raise MissingFileError(f"{problem}: {error}") from error


def _refuse_exports(folder: Path) -> None:
    """Refuse a folder that `convert` wrote for another runtime."""
    if has_weights(folder) or any(folder.glob("pytorch_model*")):
        return
    for file, (runtime, reader) in _EXPORTS.items():
        if (folder / file).is_file():
            raise UserError(
                f"{folder} must have the weights of a model, but it is an export for {runtime}. "
                f"Translate with `{reader}` of {runtime}, as docs/convert.md shows, or give the "
                "model that was converted."
            )


def base_of_adapter(folder: str | Path) -> str | None:
    """Return the name of the model that the adapter of PEFT in a folder changes.

    Return None for a folder with a model, or without an adapter.
    """
    path = Path(folder, ADAPTER_CONFIG_NAME)
    if Path(folder, CONFIG_NAME).is_file() or not path.is_file():
        return None
    content = read_json(path)
    base = content.get("base_model_name_or_path") if isinstance(content, dict) else None
    is_adapter = isinstance(base, str) and Path(base, ADAPTER_CONFIG_NAME).exists()
    if not isinstance(base, str) or not base or is_adapter:
        raise UserFileError(
            f"{path} must name a model in `base_model_name_or_path`, and no other adapter, "
            f"got {base!r}."
        )
    return base


@contextmanager
def refusing_files(name: str | Path) -> Iterator[None]:
    """Turn the errors of transformers about the files of a model into mistakes of the user."""
    try:
        yield
    except (*_INVALID_CONFIG, OSError) as error:
        if is_refusal(error):
            raise
        if isinstance(error, OSError):
            raise UserFileError(str(error)) from error
        if isinstance(error, ImportError):
            problem = f"{CONFIG_NAME} of {name} asks for a package that is not installed"
        else:
            problem = f"{CONFIG_NAME} of {name} is invalid"
        reason = first_line(error).rstrip(".")
        raise UserError(f"{problem}: {reason}.") from error


def load_seq2seq(name: str | Path, purpose: str, **kwargs: Any) -> Any:
    """Load a model with an encoder and a decoder, as [`load_pretrained`] does.

    Args:
        purpose: What only such a model does, for the error: `"scores translations"`.
        kwargs: Passed to `from_pretrained`.
    """
    config = load_config(name)
    if not config.is_encoder_decoder:
        kind = f"{name} is a {config.model_type} model"
        raise UserError(f"A model with an encoder and a decoder {purpose}, but {kind}.")
    return load_pretrained(AutoModelForSeq2SeqLM, name, **kwargs)


def load_pretrained(model_class: type[Model], name: str | Path, **kwargs: Any) -> Model:
    """Load a model for inference, without running code of its folder, and use no more threads than
    cores.

    Args:
        model_class: A class of models, or an Auto class.
        name: A folder, or a name on the Hub.
        kwargs: Passed to `from_pretrained`.
    """
    refuse_damage(Path(name))
    base = base_of_adapter(name)
    if base is not None:
        return _merge_adapter(load_pretrained(model_class, base, **kwargs), name)
    config = load_config(name)
    declared = max(least_parameters(config), _largest_matrix(config))
    suffixes = (".safetensors", ".bin")
    files = [path for path in Path(name).glob("*") if path.suffix in suffixes]
    size = sum(path.stat().st_size for path in files if path.is_file())
    # Building a far larger model than the weights fill, if each weight were a bit, could fill the
    # memory.
    if declared > max(8 * size, _SMALL) and files:
        problem = f"{CONFIG_NAME} declares at least {declared:,} parameters"
        problem += f", but the weights have {size:,} bytes"
        raise UserFileError(f"The weights of {name} do not fit it: {problem}. {_AGAIN}")
    _check_generation_config(name)
    limit_threads()
    try:
        with _without_loading_report(), mapping(name), refusing_files(name):
            model, loading = model_class.from_pretrained(
                name,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **kwargs,
            )
    except (SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        problem = f"The weights of {name} are damaged or do not fit it"
        raise UserFileError(f"{problem} ({error}). {_AGAIN}") from error
    _check_tensors(model, loading, name)
    # Now the files of a name on the Hub are here.
    _check_generation_config(name, model)
    return model.eval()


def _merge_adapter(model: Model, name: str | Path) -> Model:
    """Add the adapter of a folder to the weights of its model."""
    with requires_extra("peft", f"The adapter {name}"):
        from peft import PeftModel
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of transformers, to peft
            warnings.filterwarnings("error", "Found missing adapter keys")
            return PeftModel.from_pretrained(model, str(name)).merge_and_unload()
    except (SafetensorError, *_INVALID_CONFIG, RuntimeError, UserWarning) as error:
        problem = f"The adapter {name} is damaged or does not fit its model"
        raise UserFileError(f"{problem}: {first_line(error)}.") from error


def limit_threads() -> None:
    """Use no more threads than cores; torch does not know the quotas of containers."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))


def load_tokenizer(name: str | Path) -> Any:
    """Load the tokenizer of a folder or of a name on the Hub, without running code of its
    folder.
    """
    name = base_of_adapter(name) or name
    check_local_model(name)
    check_hub(name)
    try:
        with reporting_panics("its library failed"):
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            # Some damage, such as a wrong length, fails here.
            tokenizer.decode(tokenizer("a")["input_ids"])
        return tokenizer
    except Exception as error:  # the tokenizers library raises no other type
        if isinstance(error, ImportError) or isinstance(error.__context__, ImportError):
            raise UserFileError(
                f"The tokenizer of {name} must have the packages that read it, but one is missing "
                f"or too old: {first_line(error).rstrip('.')}. "
                "Run `pip install --upgrade protobuf sentencepiece`."
            ) from error
        folder = Path(name)
        if isinstance(error, OSError) and not folder.is_dir():
            problem = f"The tokenizer of {name} cannot be loaded"
            raise UserFileError(f"{problem}: {error}") from error
        has_file = any((folder / file).exists() for file in TOKENIZER_FILES)
        if folder.is_dir() and not has_file:
            requirement = (
                f"The model folder {name} must have a tokenizer, such as {TOKENIZER_FILES[0]}"
            )
            problem = "none loads from it"
            hint = "Save it there by `tokenizer.save_pretrained`."
            raise MissingFileError(f"{requirement}, but {problem}. {hint}") from error
        problem = f"The tokenizer of {name} is damaged"
        raise UserFileError(f"{problem}: {first_line(error)}. {_AGAIN}") from error


def check_same_vocabulary(
    tokenizer: "PreTrainedTokenizerBase",
    other: "PreTrainedTokenizerBase",
    name: str | Path,
    models: str,
) -> None:
    """Check that another tokenizer gives each token the same number.

    Args:
        name: Name of the other tokenizer's model.
        models: What needs one vocabulary, for the error.
    """
    ours, theirs = tokenizer.get_vocab(), other.get_vocab()
    if ours == theirs:
        return
    requirement = f"{models} must have one vocabulary"
    if len(ours) != len(theirs):
        sizes = f"the first one has {len(ours):,} entries and {name} has {len(theirs):,}"
        raise UserError(f"{requirement}, but {sizes}.")
    entry = next(token for token in ours if theirs.get(token) != ours[token])
    number = f"token {theirs[entry]}" if entry in theirs else "missing"
    difference = f"is token {ours[entry]} in the first one and {number} in {name}"
    raise UserError(f"{requirement}, but {entry!r} {difference}.")


def _count_tensors(names: Sequence[str]) -> str:
    """Return the number of tensors and the first one, as the end of a message."""
    if len(names) == 1:
        return f"the tensor {names[0]}"
    return f"{len(names)} tensors, such as {names[0]}"


def _check_tensors(model: PreTrainedModel, loading: Mapping[str, Any], name: str | Path) -> None:
    """Refuse tensors that are missing, that the model does not use, of another shape, or without
    numbers.
    """
    missing = sorted(loading["missing_keys"])
    if missing:
        lost = _count_tensors(missing)
        raise UserFileError(f"The weights of {name} lack {lost}. {_AGAIN}")
    unexpected = sorted(loading["unexpected_keys"])
    unused = [key for key in unexpected if not _CONSTANTS.fullmatch(key)]
    if unused:
        problem = f"does not use {_count_tensors(unused)} of its weights"
        hint = f"Does another configuration belong to these weights? {_AGAIN}"
        raise UserFileError(f"The {CONFIG_NAME} of {name} {problem}. {hint}")
    for tensor, theirs, ours in sorted(loading["mismatched_keys"]):
        problem = (
            f"{tensor} must have the shape {tuple(ours)} of its {CONFIG_NAME}, got {tuple(theirs)}"
        )
        raise UserFileError(f"The weights of {name} do not fit it: {problem}. {_AGAIN}")
    for weight, values in model.state_dict().items():
        # A bias of -inf bans a token.
        if values.is_floating_point() and not (values < torch.inf).all():
            problem = f"hold NaN or infinity, such as in {weight}"
            raise UserFileError(f"The weights of {name} {problem}. {_AGAIN}")


@contextmanager
def _without_loading_report() -> Iterator[None]:
    """Keep transformers from logging tables of the tensors that [`_check_tensors`] refuses in one
    line.
    """

    def is_other(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return "LOAD REPORT" not in message and "checkpoint seem corrupted" not in message

    logger = logging.getLogger(modeling_utils.__name__)
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _largest_matrix(config: PreTrainedConfig) -> int:
    """Return the width of a model times its largest size, such as the number of positions."""
    sizes = []
    for key, value in config.to_dict().items():
        if type(value) is int and most_of_size(key) is not None:
            sizes.append(value)
    width = getattr(config, "hidden_size", None)
    return width * max(sizes) if type(width) is int else 0


def _check_generation_config(name: str | Path, model: PreTrainedModel | None = None) -> None:
    """Refuse a damaged file, which `from_pretrained` replaces by the settings of the model's
    configuration.

    Args:
        model: It also tells which tokens there are.
    """
    path = Path(name) / GENERATION_CONFIG_NAME
    if not Path(name).is_dir():
        cached = try_to_load_from_cache(str(name), GENERATION_CONFIG_NAME)
        path = Path(cached if isinstance(cached, str) else "")
    file = GENERATION_CONFIG_NAME if path.is_file() else CONFIG_NAME
    try:
        if path.is_file():
            content = read_json(path)
            GenerationConfig.from_dict(content).validate()
            counts = {option: content[option] for option in _COUNTS & content.keys()}
            TranslationOptions(**counts)
        if model is not None and model.can_generate():
            _check_tokens(model)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file} of {name} is invalid: {error}") from error


def _check_tokens(model: "DecodedModel") -> None:
    """Check that the settings of a model's search name tokens of its vocabulary, and few beams."""
    config = model.generation_config
    beams = config.num_beams or 1
    if beams > _MOST_BEAMS:
        raise UserError(f"`num_beams` must be at most {_MOST_BEAMS}, got {beams:,}.")
    entries = len(model.get_output_embeddings().weight)
    for option in _TOKENS:
        tokens = [getattr(config, option, None)]
        while tokens:
            token = tokens.pop()
            if isinstance(token, list | tuple) and (token or option != "eos_token_id"):
                tokens += token
                continue
            is_known = type(token) is int and 0 <= token < entries
            if token is not None and not is_known:
                requirement = f"`{option}` must be in the vocabulary of {entries:,} entries"
                raise UserError(f"{requirement}, got {reprlib.repr(token)}.")


def hash_model(name: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model that translations depend on, and of the module
    of the user that defines its classes.

    Models of the Hub must be loaded.
    """
    folder = Path(name)
    if not folder.is_dir():
        config_path = try_to_load_from_cache(str(name), CONFIG_NAME)
        if not isinstance(config_path, str):
            config_path = try_to_load_from_cache(str(name), COMET_FILES[0])
        if not isinstance(config_path, str):
            requirement = f"The model {name} must be a folder or in the cache"
            raise UserFileError(f"{requirement}, but it is not. Give the path of its folder.")
        folder = Path(config_path).parent
    files = []
    for path in sorted(folder.iterdir()):
        if path.suffix in _MODEL_FILES and path.is_file():
            files.append(path)
    files += [folder / file for file in COMET_FILES if (folder / file).is_file()]
    hashes = {path.name: hash_file(path) for path in files}
    base = base_of_adapter(folder)
    if base is not None:
        hashes = hash_model(base) | hashes
    user_module = os.environ.get(USER_MODULE)
    if user_module:
        hashes["user_module"] = hash_file(Path(user_module))
    return hashes


def load_ensemble(
    model: "DecodedModel",
    tokenizer: "PreTrainedTokenizerBase",
    names: Sequence[str | Path] | None,
    weights: Sequence[float] | None = None,
) -> Any:
    """Load the models that decode with a first one, and return them together; without any names,
    the first one.

    Args:
        model, tokenizer: The first model, and its tokenizer.
        names: Folders or Hub names of the other models.
        weights: Weights of all models, the first one included; see [`Ensemble`].
    """
    if names is None and weights is not None:
        raise UserError("`ensemble_weights` needs `ensemble`, the other models.")
    if names is None:
        return model
    if isinstance(names, str | Path) or not names:
        requirement = "`ensemble` must be a list of one or more folders or Hub names"
        raise UserError(f"{requirement}, got {names!r}.")
    check_weights(weights, len(names) + 1)
    others = []
    for name in names:
        other = load_seq2seq(name, "translates", dtype=model.dtype)
        others.append(other.to(model.device))
    for name in names:
        tokenizer_of_other = load_tokenizer(name)
        check_same_vocabulary(tokenizer, tokenizer_of_other, name, "The models of an ensemble")
    return Ensemble([model, *others], weights)


def ensemble_arguments(names: Sequence[str], weights: Sequence[float] | None) -> dict[str, Any]:
    """Return the arguments of the pipeline that combine a first model with others; without others,
    none.
    """
    arguments = {"ensemble": list(names) or None, "ensemble_weights": weights}
    return {name: value for name, value in arguments.items() if value is not None}
