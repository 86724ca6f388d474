"""Checks of a published model's behavior, on the code and the weights of its folder, as users without the package get.

`checks.py` runs this file by its path in a process that cannot import this package, so nothing here may import it:
`python behavior.py FOLDER` reads a JSON list of sentences from standard input and writes its results as JSON to
standard output.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

# Relative to the largest logit. Batches of another size sum in another order; nothing else may differ.
_TOLERANCE = 1e-4
_SOURCE_LENGTHS = (3, 12, 7)
_TARGET_LENGTH = 8
_POSITIONS = (0, 1, 2, 7, 50, 333, 1000)  # large ones too, because the angles of section 3.5 lose digits in float32
_ROUND_TRIP_TEXTS = (
    "A man is sleeping.",
    "„Schön“, sagte sie — für 3,50 € (ohne Öl)!",
    "a </s> in the text",
    "日本語 русский עברית 🙂",
)


# The task of `pipeline()` by the end of the model class, and the auto class that loads it.
TASKS = {
    "ForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
}
_NEW_TOKENS = 8  # of the answers of a language model


class CheckFailed(Exception):
    """Raised by a check; the message describes the finding."""


def run_check(name: str, check: Callable[..., str], *arguments: Any) -> dict[str, Any]:
    """Run a check and return `{"name", "passed", "detail"}`. An exception of any kind is a failure."""
    try:
        return {"name": name, "passed": True, "detail": check(*arguments)}
    except CheckFailed as failure:
        detail = str(failure)
    except Exception as error:
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {"name": name, "passed": False, "detail": detail}


def find_task(architectures: Sequence[str] | None) -> tuple[str, str]:
    """Return the task and the auto class of a model, given `config.architectures`.

    Raises:
        CheckFailed: it is the class of another model, such as a base model without a head.
    """
    name = next(iter(architectures or []), "")
    for ending, found in TASKS.items():
        if name.endswith(ending):
            return found
    raise CheckFailed(f"`architectures` must name a model that ends with one of {', '.join(TASKS)}, got {name!r}")


def names_of_checks(task: str) -> tuple[str, ...]:
    """Return the names of the checks of a model for `task`."""
    absent = (
        set()
        if task in ("translation", "text-generation")
        else {"causal mask", "cache", "cached search", "generation"}
    )
    return tuple(name for name in _CHECKS if name not in absent)


def check_behavior(model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Run all checks of a loaded model and return a result for each, see [`run_check`].

    Args:
        model: A model of this package in float32, with a head.
        tokenizer: Its tokenizer.
    """
    model.eval()
    task, _ = find_task([type(model).__name__])
    return [run_check(name, _CHECKS[name], model, tokenizer) for name in names_of_checks(task)]


@torch.no_grad()
def check_causal_mask(model: Any, tokenizer: Any) -> str:
    """Check that no target position attends to a later one (section 3.2.3): changed tokens change no earlier logit."""
    inputs, targets = _make_inputs(model), _targets(model)
    logits = model(**inputs).logits  # (B, T, V)
    worst = 0.0
    for position in range(1, inputs[targets].shape[1]):
        changed = inputs[targets].clone()
        changed[:, position:] = changed.roll(1, dims=0)[:, position:]  # tokens of another sentence
        other = model(**{**inputs, targets: changed}).logits
        worst = max(worst, _relative_difference(logits[:, :position], other[:, :position]))
    return _require_close(worst, "logits of target positions before a changed token differ")


@torch.no_grad()
def check_padding(model: Any, tokenizer: Any) -> str:
    """Check that a sentence has the same logits alone and in a padded batch, with a mask and without one."""
    inputs = _make_inputs(model)
    unmasked = {name: tensor for name, tensor in inputs.items() if name != "attention_mask"}
    by_source = not model.config.is_encoder_decoder and hasattr(model, "lm_head")  # a logit for each source token
    batches = [model(**inputs).logits, model(**unmasked).logits]
    worst = 0.0
    for row, length in enumerate(_SOURCE_LENGTHS):
        alone = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        alone["input_ids"] = alone["input_ids"][:, :length]
        alone["attention_mask"] = alone["attention_mask"][:, :length]
        expected = model(**alone).logits
        for batch in batches:
            found = batch[row : row + 1, :length] if by_source else batch[row : row + 1]
            worst = max(worst, _relative_difference(found, expected))
    return _require_close(worst, "logits of a sentence in a padded batch and alone differ")


@torch.no_grad()
def check_cache(model: Any, tokenizer: Any) -> str:
    """Check that decoding token by token with a cache gives the logits of one forward pass."""
    inputs, name = _make_inputs(model), _targets(model)
    targets = inputs.pop(name)
    if name == "input_ids":
        inputs = {}  # without padding
    expected = model(**inputs, **{name: targets}).logits
    past, steps = None, []
    for position in range(targets.shape[1]):
        step = {name: targets[:, position : position + 1]}
        outputs = model(**inputs, **step, cache=past, use_cache=True)
        past = outputs.cache
        steps.append(outputs.logits)
    return _require_close(
        _relative_difference(torch.cat(steps, dim=1), expected), "logits with a cache and without one differ"
    )


@torch.no_grad()
def check_cached_search(model: Any, tokenizer: Any) -> str:
    """Check that the installed transformers finds the same tokens and logits with a cache and without one.

    A release that calls the cache by another name would decode every cached step as if it were the first one.
    """
    inputs = _make_inputs(model)
    row = slice(None) if model.config.is_encoder_decoder else _longest_row()
    call = {"attention_mask": inputs["attention_mask"][row], "do_sample": False, "return_dict_in_generate": True}
    call |= {"output_logits": True, "min_new_tokens": _NEW_TOKENS, "max_new_tokens": _NEW_TOKENS}
    uses_engine, model.use_engine = getattr(model, "use_engine", True), False
    try:
        cached, plain = (
            model.generate(inputs["input_ids"][row], **call, num_beams=1, use_cache=use_cache)
            for use_cache in (True, False)
        )
    finally:
        model.use_engine = uses_engine
    if not torch.equal(cached.sequences, plain.sequences):
        raise CheckFailed(f"transformers {transformers.__version__} finds other tokens with a cache than without one")
    difference = _relative_difference(torch.stack(cached.logits), torch.stack(plain.logits))
    return _require_close(difference, "logits of `generate()` with a cache and without one differ")


def check_tied_weights(model: Any, tokenizer: Any) -> str:
    """Check that weights which the configuration ties are one tensor (section 3.4)."""
    config = model.config
    if not (config.tie_word_embeddings and hasattr(model, "lm_head")):
        return "the configuration ties no weights"
    matrices = {"the output projection": model.lm_head.weight}
    if config.is_encoder_decoder and config.share_encoder_decoder_embeddings:
        matrices["the source embedding"] = model.model.encoder.embed_tokens.weight
    target = _stacks(model)[-1].embed_tokens.weight
    for name, matrix in matrices.items():
        if matrix is not target:
            raise CheckFailed(f"{name} must be the target embedding itself, but is another tensor")
    return f"{len(matrices) + 1} uses of one matrix"


def check_positions(model: Any, tokenizer: Any) -> str:
    """Compare sinusoidal positions with section 3.5, computed in Python's double precision."""
    config = model.config
    if config.position_embedding_type != "sinusoidal":
        return f"{config.position_embedding_type} positions"
    expected = torch.tensor([_sinusoid(position, config) for position in _POSITIONS])
    for stack in _stacks(model):
        difference = _relative_difference(stack.embed_positions(torch.tensor([_POSITIONS]))[0], expected)
        if not difference < _TOLERANCE:
            raise CheckFailed(f"positions differ from section 3.5 by {difference:.2g}")
    return f"section 3.5, {config.sinusoid_layout}"


def _sinusoid(position: int, config: Any) -> list[float]:
    """Return the encoding of one position (section 3.5), `d_model` values."""
    angles = [position / 10000 ** (feature / config.d_model) for feature in range(0, config.d_model, 2)]
    if config.sinusoid_layout == "halves":
        return [*map(math.sin, angles), *map(math.cos, angles)]
    return [function(angle) for angle in angles for function in (math.sin, math.cos)]


def check_tokenizer(model: Any, tokenizer: Any) -> str:
    """Check that the tokenizer fits the model: the vocabulary size, the special tokens, and round trips of texts.

    Tokenizers of converted models may fail round trips, because their vocabulary does not cover every text.
    """
    config = model.config
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        raise CheckFailed(f"the tokenizer has the id {largest}, the model a vocabulary of {config.vocab_size}")
    for name in ("pad_token_id", "eos_token_id"):
        if getattr(tokenizer, name) != getattr(config, name):
            raise CheckFailed(
                f"{name} is {getattr(tokenizer, name)} in the tokenizer, {getattr(config, name)} in the model"
            )
    decoded = tokenizer.batch_decode(tokenizer(list(_ROUND_TRIP_TEXTS))["input_ids"], skip_special_tokens=True)
    changed = [(text, back) for text, back in zip(_ROUND_TRIP_TEXTS, decoded, strict=True) if back != text]
    if changed and tokenizer.is_fast:
        raise CheckFailed(f"{changed[0][0]!r} is decoded as {changed[0][1]!r}")
    unchanged = len(decoded) - len(changed)
    return f"{largest + 1} of {config.vocab_size} entries used, {unchanged} of {len(decoded)} texts decoded unchanged"


def check_generation(model: Any, tokenizer: Any) -> str:
    """Check that the generation config is valid and has the model's special tokens, and that `generate()` runs."""
    generation = model.generation_config
    generation.validate(strict=True)
    names = ("pad_token_id", "eos_token_id", *(["decoder_start_token_id"] if model.config.is_encoder_decoder else []))
    for name in names:
        if getattr(generation, name) != getattr(model.config, name):
            raise CheckFailed(f"{name} is {getattr(generation, name)}, the model's is {getattr(model.config, name)}")
    inputs = _make_inputs(model)
    rows = slice(None) if model.config.is_encoder_decoder else _longest_row()
    model.generate(inputs["input_ids"][rows], attention_mask=inputs["attention_mask"][rows], max_new_tokens=2)
    return f"beam {generation.num_beams or 1}, length penalty {generation.length_penalty}"


_CHECKS = {
    "causal mask": check_causal_mask,
    "padding": check_padding,
    "cache": check_cache,
    "cached search": check_cached_search,
    "tied weights": check_tied_weights,
    "positions": check_positions,
    "tokenizer": check_tokenizer,
    "generation": check_generation,
}
BEHAVIOR_CHECKS = tuple(_CHECKS)


def _stacks(model: Any) -> list[Any]:
    """Return the encoder and the decoder, or the only stack."""
    return [model.model.encoder, model.model.decoder] if model.config.is_encoder_decoder else [model.model]


def _targets(model: Any) -> str:
    """Return the name of the tokens that the model predicts."""
    return "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"


def _make_inputs(model: Any) -> dict[str, torch.Tensor]:
    """Return padded sources of three lengths and targets, of random non-special tokens, the same on every call.

    A model with one stack has no targets.
    """
    config = model.config
    names = ("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id")
    special = {getattr(config, name, None) for name in names}
    sizes = [config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size]
    plain = [token for token in range(min(sizes)) if token not in special]
    generator = torch.Generator().manual_seed(0)
    shape = (len(_SOURCE_LENGTHS), max(_SOURCE_LENGTHS) + _TARGET_LENGTH)
    tokens = torch.tensor(plain)[torch.randint(len(plain), shape, generator=generator)]
    sources, targets = tokens[:, : max(_SOURCE_LENGTHS)], tokens[:, max(_SOURCE_LENGTHS) :].clone()
    mask = (torch.arange(sources.shape[1]) < torch.tensor(_SOURCE_LENGTHS)[:, None]).long()
    sources = sources.masked_fill(mask == 0, config.pad_token_id)
    inputs = {"input_ids": sources, "attention_mask": mask}
    if not config.is_encoder_decoder:
        return inputs
    targets[:, 0] = config.decoder_start_token_id
    return inputs | {"decoder_input_ids": targets}


def _longest_row() -> slice:
    """Return the row of [`_make_inputs`] without padding."""
    return slice(_SOURCE_LENGTHS.index(max(_SOURCE_LENGTHS)), None, len(_SOURCE_LENGTHS))


def _relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute difference, divided by the largest expected value if that exceeds 1."""
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def _require_close(difference: float, problem: str) -> str:
    if not difference <= _TOLERANCE:  # so that NaN fails
        raise CheckFailed(f"{problem} by {difference:.2g} of the largest")
    return f"largest difference {difference:.1g}"


def check_loading(folder: str, loaded: dict[str, Any]) -> str:
    """Check that everything loads with transformers alone, from the folder's own code, and only if that is trusted.

    Args:
        loaded: Gets the loaded "model", "tokenizer" and "task", and for translation the "pipeline".
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

    try:
        AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
    else:
        raise CheckFailed("the configuration loads without `trust_remote_code`, so the folder's code is not used")
    trusted = {"trust_remote_code": True}
    loaded["task"], auto_class = find_task(AutoConfig.from_pretrained(folder, **trusted).architectures)
    AutoModel.from_pretrained(folder, **trusted)
    loaded["model"] = getattr(transformers, auto_class).from_pretrained(folder, dtype=torch.float32, **trusted)
    loaded["tokenizer"] = AutoTokenizer.from_pretrained(folder, **trusted)
    parts = [loaded["model"].config, loaded["model"]]
    if loaded["task"] == "translation":  # which transformers itself does not have
        loaded["pipeline"] = pipeline("translation", model=folder, **trusted)
        parts.append(loaded["pipeline"])
    for name in (type(part).__module__ for part in parts):
        if not name.startswith("transformers_modules."):
            raise CheckFailed(f"{name} is not code of the folder")
    return "loads with transformers alone and `trust_remote_code=True`"


@torch.no_grad()
def answer(loaded: dict[str, Any], sentences: Sequence[str]) -> list[str]:
    """Return the translation of each sentence, its continuation, its most likely tokens, or its class.

    Args:
        loaded: See [`check_loading`].
    """
    if loaded["task"] == "translation":
        return [answer["translation_text"] for answer in loaded["pipeline"](list(sentences))]
    model, tokenizer = loaded["model"].eval(), loaded["tokenizer"]
    return [_answer_one(model, tokenizer, loaded["task"], sentence) for sentence in sentences]


def _answer_one(model: Any, tokenizer: Any, task: str, sentence: str) -> str:
    ids = torch.tensor([tokenizer(sentence)["input_ids"]])
    if task == "text-generation":
        return str(model.generate(ids, max_new_tokens=_NEW_TOKENS, do_sample=False).tolist())
    return str(model(ids).logits.argmax(dim=-1).tolist())


def main(folder: str, sentences: Sequence[str]) -> dict[str, Any]:
    """Load `folder` as a user without this package does, check it, and run it on `sentences`."""
    sys.modules["vanilla_transformer"] = None  # type: ignore[assignment]  # importing it fails from here on
    loaded: dict[str, Any] = {}
    results = [run_check("loads without the package", check_loading, folder, loaded)]
    answers = None
    if results[0]["passed"]:
        results += check_behavior(loaded["model"], loaded["tokenizer"])
        answers = answer(loaded, sentences)
    return {"results": results, "answers": answers}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], json.load(sys.stdin)), sys.stdout)
