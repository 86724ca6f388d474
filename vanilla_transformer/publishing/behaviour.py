"""
What a published model must do, checked on the code and the weights of its folder, as others get them.

`checks.py` runs this file by its path, in a process in which this package cannot be imported, so that it must not
import it either: `python behaviour.py FOLDER`, with a list of sentences as JSON on standard input and an answer as
JSON on standard output.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Sums come out in another order in another batch; nothing else may differ. Relative to the largest logit.
_TOLERANCE = 1e-4
_SOURCE_LENGTHS = (3, 12, 7)
_TARGET_LENGTH = 8
# Far ones too: the angles of section 3.5 lose digits in float32.
_POSITIONS = (0, 1, 2, 7, 50, 333, 1000)
_ROUND_TRIP = (
    "A man is sleeping.",
    "„Schön“, sagte sie — für 3,50 € (ohne Öl)!",
    "two  spaces, a tab\tand </s> in the text",
    "日本語 русский עברית 🙂",
)


class Failed(Exception):
    """A check found what must not be; the text says what."""


def check_behaviour(model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """
    An outcome, `{"name", "passed", "detail"}`, of each check of this file.

    Args:
        model: A sequence-to-sequence model, in float32.
        tokenizer: Its tokenizer.
    """
    model.eval()
    return [outcome(name, check, model, tokenizer) for name, check in _CHECKS.items()]


def outcome(name: str, check: Callable[..., str], *arguments: Any) -> dict[str, Any]:
    """What one check says: its detail, or why it failed. An error of any kind is a failure."""
    try:
        return {"name": name, "passed": True, "detail": check(*arguments)}
    except Failed as failure:
        detail = str(failure)
    except Exception as error:
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {"name": name, "passed": False, "detail": detail}


@torch.no_grad()
def check_future(model: Any, tokenizer: Any) -> str:
    """Section 3.2.3: no position sees a later one, wherever the target begins to differ."""
    inputs = _inputs(model)
    logits = model(**inputs).logits  # (B, T, V)
    worst = 0.0
    for position in range(1, _TARGET_LENGTH):
        changed = inputs["decoder_input_ids"].clone()
        changed[:, position:] = changed.roll(1, dims=0)[:, position:]  # those of another sentence
        other = model(**{**inputs, "decoder_input_ids": changed}).logits
        worst = max(worst, _difference(logits[:, :position], other[:, :position]))
    return _close(worst, "logits of target positions before a changed token differ")


@torch.no_grad()
def check_padding(model: Any, tokenizer: Any) -> str:
    """A sentence's logits are the same alone as beside longer ones, with a mask and with one derived from padding."""
    inputs = _inputs(model)
    unmasked = {name: tensor for name, tensor in inputs.items() if name != "attention_mask"}
    together = model(**inputs).logits
    worst = _difference(together, model(**unmasked).logits)
    for row, length in enumerate(_SOURCE_LENGTHS):
        alone = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        alone["input_ids"] = alone["input_ids"][:, :length]
        alone["attention_mask"] = alone["attention_mask"][:, :length]
        worst = max(worst, _difference(model(**alone).logits, together[row : row + 1]))
    return _close(worst, "logits of a sentence in a padded batch and alone differ")


@torch.no_grad()
def check_cache(model: Any, tokenizer: Any) -> str:
    """Token by token with a cache gives what all tokens at once give."""
    inputs = _inputs(model)
    targets = inputs.pop("decoder_input_ids")
    whole = model(**inputs, decoder_input_ids=targets).logits
    past, steps = None, []
    for position in range(targets.shape[1]):
        step = targets[:, position : position + 1]
        outputs = model(**inputs, decoder_input_ids=step, past_key_values=past, use_cache=True)
        past = outputs.past_key_values
        steps.append(outputs.logits)
    return _close(_difference(torch.cat(steps, dim=1), whole), "logits with a cache and without one differ")


def check_ties(model: Any, tokenizer: Any) -> str:
    """Section 3.4: one matrix for what the configuration ties."""
    config = model.config
    if not config.tie_word_embeddings:
        return "the configuration ties nothing"
    matrices = {"the output projection": model.lm_head.weight}
    if config.share_encoder_decoder_embeddings:
        matrices["the source embedding"] = model.model.encoder.embed_tokens.weight
    target = model.model.decoder.embed_tokens.weight
    for name, matrix in matrices.items():
        if matrix is not target:
            raise Failed(f"{name} must be the target embedding itself, but is another tensor")
    return f"{len(matrices) + 1} uses of one matrix"


def check_positions(model: Any, tokenizer: Any) -> str:
    """Section 3.5, computed anew in Python's floats."""
    config = model.config
    if config.position_embedding_type != "sinusoidal":
        return f"{config.position_embedding_type} positions"
    expected = torch.tensor([_sinusoid(position, config) for position in _POSITIONS])
    for stack in (model.model.encoder, model.model.decoder):
        difference = _difference(stack.embed_positions(torch.tensor([_POSITIONS]))[0], expected)
        if not difference < _TOLERANCE:
            raise Failed(f"positions differ from section 3.5 by {difference:.2g}")
    return f"section 3.5, {config.sinusoid_layout}"


def _sinusoid(position: int, config: Any) -> list[float]:
    angles = [position / 10000 ** (feature / config.d_model) for feature in range(0, config.d_model, 2)]
    if config.sinusoid_layout == "halves":
        return [*map(math.sin, angles), *map(math.cos, angles)]
    return [function(angle) for angle in angles for function in (math.sin, math.cos)]


def check_tokenizer(model: Any, tokenizer: Any) -> str:
    """
    It has no token that the model has not, the same special ones, and gives texts back as they were; those of
    converted models need not do that, since not every text is in their vocabulary.
    """
    config = model.config
    largest = max(tokenizer.get_vocab().values())
    if largest >= config.vocab_size:
        raise Failed(f"the tokenizer has the id {largest}, the model a vocabulary of {config.vocab_size}")
    for name in ("pad_token_id", "eos_token_id"):
        if getattr(tokenizer, name) != getattr(config, name):
            raise Failed(
                f"{name} is {getattr(tokenizer, name)} in the tokenizer, {getattr(config, name)} in the model"
            )
    back = tokenizer.batch_decode(tokenizer(list(_ROUND_TRIP))["input_ids"], skip_special_tokens=True)
    changed = [(text, decoded) for text, decoded in zip(_ROUND_TRIP, back, strict=True) if decoded != text]
    if changed and tokenizer.is_fast:
        raise Failed(f"{changed[0][0]!r} comes back as {changed[0][1]!r}")
    same = len(back) - len(changed)
    return f"{largest + 1} entries of {config.vocab_size}, {same} of {len(back)} texts come back as they were"


def check_generation(model: Any, tokenizer: Any) -> str:
    """What `generate()` does by default is valid, and fits the model and the tokenizer."""
    generation = model.generation_config
    generation.validate(strict=True)
    for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        if getattr(generation, name) != getattr(model.config, name):
            raise Failed(f"{name} is {getattr(generation, name)}, that of the model {getattr(model.config, name)}")
    inputs = _inputs(model)
    model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=2)
    return f"beam {generation.num_beams or 1}, length penalty {generation.length_penalty}"


_CHECKS = {
    "future tokens": check_future,
    "padding and batches": check_padding,
    "cache": check_cache,
    "ties": check_ties,
    "positions": check_positions,
    "tokenizer": check_tokenizer,
    "generation": check_generation,
}
BEHAVIOUR_NAMES = tuple(_CHECKS)


def _inputs(model: Any) -> dict[str, torch.Tensor]:
    """Sources of three lengths, padded, and targets, of random tokens that are not special; the same every time."""
    config = model.config
    special = {config.pad_token_id, config.eos_token_id, config.bos_token_id, config.decoder_start_token_id}
    plain = [token for token in range(min(config.vocab_size, config.decoder_vocab_size)) if token not in special]
    generator = torch.Generator().manual_seed(0)
    shape = (len(_SOURCE_LENGTHS), max(_SOURCE_LENGTHS) + _TARGET_LENGTH)
    tokens = torch.tensor(plain)[torch.randint(len(plain), shape, generator=generator)]
    sources, targets = tokens[:, : max(_SOURCE_LENGTHS)], tokens[:, max(_SOURCE_LENGTHS) :].clone()
    mask = (torch.arange(sources.shape[1]) < torch.tensor(_SOURCE_LENGTHS)[:, None]).long()
    sources = sources.masked_fill(mask == 0, config.pad_token_id)
    targets[:, 0] = config.decoder_start_token_id
    return {"input_ids": sources, "attention_mask": mask, "decoder_input_ids": targets}


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, relative to the largest value where that is over 1."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1.0))


def _close(difference: float, problem: str) -> str:
    if not difference <= _TOLERANCE:  # NaN is not close either
        raise Failed(f"{problem} by {difference:.2g} of the largest")
    return f"largest difference {difference:.1g}"


def check_standing_alone(folder: str, loaded: dict[str, Any]) -> str:
    """Everything loads with transformers alone, by the folder's own code, and not without leave."""
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

    try:
        AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
    else:
        raise Failed("the configuration loads without `trust_remote_code`, so that the folder's code is not used")
    trusted = {"trust_remote_code": True}
    AutoModel.from_pretrained(folder, **trusted)
    loaded["model"] = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, **trusted)
    loaded["tokenizer"] = AutoTokenizer.from_pretrained(folder, **trusted)
    loaded["pipeline"] = pipeline("translation", model=folder, **trusted)
    parts = (loaded["model"].config, loaded["model"], loaded["pipeline"])
    for name in (type(part).__module__ for part in parts):
        if not name.startswith("transformers_modules."):
            raise Failed(f"{name} is not code of the folder")
    return "loads with transformers alone and `trust_remote_code=True`"


def main(folder: str, sentences: Sequence[str]) -> dict[str, Any]:
    """Loads `folder` as someone without this package does, checks it, and translates `sentences`."""
    sys.modules["vanilla_transformer"] = None  # type: ignore[assignment]  # importing it fails from here on
    loaded: dict[str, Any] = {}
    outcomes = [outcome("stands alone", check_standing_alone, folder, loaded)]
    translations = None
    if outcomes[0]["passed"]:
        outcomes += check_behaviour(loaded["model"], loaded["tokenizer"])
        translations = [answer["translation_text"] for answer in loaded["pipeline"](list(sentences))]
    return {"outcomes": outcomes, "translations": translations}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], json.load(sys.stdin)), sys.stdout)
