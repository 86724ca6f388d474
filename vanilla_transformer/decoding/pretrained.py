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
_MOST_BEAMS = 100  # of the settings of a folder, in which a stranger could ask for hours of work
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
COMET_FILES = ("hparams.yaml", "checkpoints/model.ckpt")  # of a model that scores translations
_SMALL = 10**8  # parameters that fit any memory
_AGAIN = "Copy or download the model again."


def load_config(name: str | Path) -> PreTrainedConfig:
    """Load the configuration of a folder or of a name on the Hub, without running code of its
    folder.
    """
    check_local_model(name)  # without a network, the Hub library would try for half a minute
    folder = Path(name)
    if folder.is_dir():
        if has_leftover(folder) and not has_weights(folder):
            reason = "the command that wrote it was interrupted"
            raise MissingFileError(
                f"The model folder {name} is not complete: {reason}. Run that command again."
            )
        _refuse_exports(folder)
        base = base_of_adapter(folder)
        if base is not None:
            return load_config(base)
        if not (folder / CONFIG_NAME).is_file():
            checkpoint = get_last_checkpoint(folder)
            if checkpoint is not None and Path(checkpoint, CONFIG_NAME).is_file():
                raise MissingFileError(
                    f"The run {name} is not finished; its last checkpoint is {checkpoint}, "
                    "which is a usable model."
                )
            raise MissingFileError(
                f"The model folder {name} must have a {CONFIG_NAME}, but it has none."
            )
    else:
        check_hub(name)
    try:
        with refusing_files(name):
            if folder.is_dir():
                model_type = PreTrainedConfig.get_config_dict(folder)[0].get("model_type")
                if model_type not in CONFIG_MAPPING:
                    hint = (
                        "`--user_module FILE.py` imports the module that registers a custom model"
                    )
                    raise LookupError(
                        f"`model_type` must be the name of a known model, got {model_type!r}. "
                        f"{hint}"
                    )
            else:
                check_model_file(Path(cached_file(name, CONFIG_NAME)))
            return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except OSError as error:
        if folder.is_dir():
            raise
        raise MissingFileError(
            f"There is no model folder {name}, and the Hub gives no such model: {error}"
        ) from error


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
    if not isinstance(base, str) or not base or Path(base, ADAPTER_CONFIG_NAME).exists():
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
            raise UserError(f"{problem}: {first_line(error).rstrip('.')}.") from error
        raise UserError(
            f"{CONFIG_NAME} of {name} is invalid: {first_line(error).rstrip('.')}."
        ) from error


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
    files = [path for path in Path(name).glob("*") if path.suffix in (".safetensors", ".bin")]
    size = sum(path.stat().st_size for path in files if path.is_file())
    # Building a far larger model than the weights fill, if each weight were a bit, could fill the
    # memory.
    if declared > max(8 * size, _SMALL) and files:
        problem = (
            f"{CONFIG_NAME} declares at least {declared:,} parameters, but the weights have "
            f"{size:,} bytes"
        )
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
        raise UserFileError(
            f"The weights of {name} are damaged or do not fit it ({error}). {_AGAIN}"
        ) from error
    _check_tensors(model, loading, name)
    _check_generation_config(name, model)  # now that the files of a name on the Hub are here
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
        raise UserFileError(
            f"The adapter {name} is damaged or does not fit its model: {first_line(error)}."
        ) from error


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
            raise UserFileError(f"The tokenizer of {name} cannot be loaded: {error}") from error
        if folder.is_dir() and not any((folder / file).exists() for file in TOKENIZER_FILES):
            requirement = (
                f"The model folder {name} must have a tokenizer, such as {TOKENIZER_FILES[0]}"
            )
            hint = "Save it there by `tokenizer.save_pretrained`."
            raise MissingFileError(f"{requirement}, but none loads from it. {hint}") from error
        raise UserFileError(
            f"The tokenizer of {name} is damaged: {first_line(error)}. {_AGAIN}"
        ) from error


def check_same_vocabulary(
    tokenizer: "PreTrainedTokenizerBase", other: Any, name: str | Path, models: str
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
        raise UserError(
            f"{requirement}, but the first one has {len(ours):,} entries and {name} has "
            f"{len(theirs):,}."
        )
    entry = next(token for token in ours if theirs.get(token) != ours[token])
    number = f"token {theirs[entry]}" if entry in theirs else "missing"
    raise UserError(
        f"{requirement}, but {entry!r} is token {ours[entry]} in the first one and {number} in "
        f"{name}."
    )


def _count_tensors(names: Sequence[str]) -> str:
    """Return the number of tensors and the first one, as the end of a message."""
    return (
        f"the tensor {names[0]}" if len(names) == 1 else f"{len(names)} tensors, such as {names[0]}"
    )


def _check_tensors(model: PreTrainedModel, loading: Mapping[str, Any], name: str | Path) -> None:
    """Refuse tensors that are missing, that the model does not use, of another shape, or without
    numbers.
    """
    missing = sorted(loading["missing_keys"])
    if missing:
        raise UserFileError(f"The weights of {name} lack {_count_tensors(missing)}. {_AGAIN}")
    unused = sorted(key for key in loading["unexpected_keys"] if not _CONSTANTS.fullmatch(key))
    if unused:
        hint = f"Does another configuration belong to these weights? {_AGAIN}"
        raise UserFileError(
            f"The {CONFIG_NAME} of {name} does not use {_count_tensors(unused)} of its weights. "
            f"{hint}"
        )
    for tensor, theirs, ours in sorted(loading["mismatched_keys"]):
        problem = (
            f"{tensor} must have the shape {tuple(ours)} of its {CONFIG_NAME}, got {tuple(theirs)}"
        )
        raise UserFileError(f"The weights of {name} do not fit it: {problem}. {_AGAIN}")
    for weight, values in model.state_dict().items():
        # A bias of -inf bans a token.
        if values.is_floating_point() and not (values < torch.inf).all():
            raise UserFileError(
                f"The weights of {name} hold NaN or infinity, such as in {weight}. {_AGAIN}"
            )


@contextmanager
def _without_loading_report() -> Iterator[None]:
    """Keep transformers from logging tables of the tensors that [`_check_tensors`] refuses in one
    line.
    """

    def is_other(record: logging.LogRecord) -> bool:
        return not any(
            words in record.getMessage() for words in ("LOAD REPORT", "checkpoint seem corrupted")
        )

    logger = logging.getLogger(modeling_utils.__name__)
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _largest_matrix(config: PreTrainedConfig) -> int:
    """Return the width of a model times its largest size, such as the number of positions."""
    sizes = [
        value
        for key, value in config.to_dict().items()
        if type(value) is int and most_of_size(key) is not None
    ]
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
            TranslationOptions(**{name: content[name] for name in _COUNTS & content.keys()})
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
            elif token is not None and (type(token) is not int or not 0 <= token < entries):
                requirement = f"`{option}` must be in the vocabulary of {entries:,} entries"
                raise UserError(f"{requirement}, got {reprlib.repr(token)}.")


def hash_model(name: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model that translations depend on.

    Models of the Hub must be loaded.
    """
    folder = Path(name)
    if not folder.is_dir():
        cached = [try_to_load_from_cache(str(name), file) for file in (CONFIG_NAME, COMET_FILES[0])]
        config_path = next((Path(path) for path in cached if isinstance(path, str)), None)
        if config_path is None:
            requirement = f"The model {name} must be a folder or in the cache, but it is not"
            raise UserFileError(f"{requirement}. Give the path of its folder.")
        folder = config_path.parent
    files = sorted(
        path for path in folder.iterdir() if path.suffix in _MODEL_FILES and path.is_file()
    )
    files += [folder / file for file in COMET_FILES if (folder / file).is_file()]
    hashes = {path.name: hash_file(path) for path in files}
    base = base_of_adapter(folder)
    if base is not None:
        hashes = hash_model(base) | hashes
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
        raise UserError(
            f"`ensemble` must be a list of one or more folders or Hub names, got {names!r}."
        )
    check_weights(weights, len(names) + 1)
    others = [
        load_seq2seq(name, "translates", dtype=model.dtype).to(model.device) for name in names
    ]
    for name in names:
        check_same_vocabulary(tokenizer, load_tokenizer(name), name, "The models of an ensemble")
    return Ensemble([model, *others], weights)


def ensemble_arguments(names: Sequence[str], weights: Sequence[float] | None) -> dict[str, Any]:
    """Return the arguments of the pipeline that combine a first model with others; without others,
    none.
    """
    arguments = {"ensemble": list(names) or None, "ensemble_weights": weights}
    return {name: value for name, value in arguments.items() if value is not None}
