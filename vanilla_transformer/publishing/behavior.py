"""Checks of a published model's behavior, on the code and the weights of its folder, as users without the package get.

`checks.py` runs this file by its path in a process that cannot import this package, so nothing here may import it:
`python behavior.py FOLDER` reads a JSON list of sentences from standard input and writes its results as JSON to
standard output.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

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


def find_task(config: Any, name: str | None = None) -> tuple[str, str]:
    """Return the task and the auto class of a model, given its configuration and the name of its class.

    A class of a user may have any name if its models translate: the package has no other encoder-decoder with a head.
    """
    name = next(iter(config.architectures or []), "") if name is None else name
    for ending, found in TASKS.items():
        if name.endswith(ending):
            return found
    if name and not name.endswith("Model") and config.is_encoder_decoder:
        return TASKS["ForConditionalGeneration"]
    raise CheckFailed(f"`architectures` must name a model that ends with one of {', '.join(TASKS)}, got {name!r}")


def names_of_checks(task: str) -> tuple[str, ...]:
    """Return the names of the checks of a model for `task`."""
    generates = task in ("translation", "text-generation")
    return tuple(name for name in _CHECKS if generates or name != "generation")


def check_behavior(model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Run all checks of a loaded model and return a result for each, see [`run_check`].

    Args:
        model: A model of this package in float32, with a head.
        tokenizer: Its tokenizer.
    """
    model.eval()
    task, _ = find_task(model.config, type(model).__name__)
    return [run_check(name, _CHECKS[name], model, tokenizer) for name in names_of_checks(task)]


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
    ids = torch.tensor([tokenizer(_ROUND_TRIP_TEXTS[0])["input_ids"]])
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2)
    return f"beam {generation.num_beams or 1}, length penalty {generation.length_penalty}"


_CHECKS = {"tokenizer": check_tokenizer, "generation": check_generation}
BEHAVIOR_CHECKS = tuple(_CHECKS)


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
    loaded["task"], auto_class = find_task(AutoConfig.from_pretrained(folder, **trusted))
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
    """Return the translation of each sentence, its continuation, its most likely tokens, or its class."""
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
