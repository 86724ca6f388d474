"""Load a model folder as people without this package do, and run it.

`checks.py` runs this file by its path in a process that cannot import this package, so nothing here
may import it: `python standalone.py FOLDER TASK AUTO_CLASS` reads a JSON list of sentences from
standard input, and writes the answers to standard output as JSON, or the reason of a failure to
standard error.
"""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_NEW_TOKENS = 8  # of the answers of a language model


def load_with_own_code(folder: str, task: str, auto_class: str) -> tuple[Any, Any, Any]:
    """Return the model, the tokenizer and, for translation, the pipeline, all made by code of the
    folder.

    The code of the folder must run only if it is trusted.
    """
    try:
        transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
    else:
        raise RuntimeError(
            "the configuration loads without `trust_remote_code`, so the folder's code is not used"
        )
    trusted = {"trust_remote_code": True}
    transformers.AutoModel.from_pretrained(folder, **trusted)
    model = getattr(transformers, auto_class).from_pretrained(
        folder, dtype=torch.float32, **trusted
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trusted)
    translate = (
        transformers.pipeline(task, model=folder, **trusted) if task == "translation" else None
    )
    for part in filter(None, (model.config, model, translate)):
        if not type(part).__module__.startswith("transformers_modules."):
            raise RuntimeError(f"{type(part).__module__} is not code of the folder")
    return model.eval(), tokenizer, translate


@torch.no_grad()
def answer(
    task: str,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    translate: Any,
    sentences: Sequence[str],
) -> list[str]:
    """Return the translation of each sentence, its continuation, its most likely tokens, or its
    class.
    """
    if task == "translation":
        return [row["translation_text"] for row in translate(list(sentences))]
    answers = []
    for sentence in sentences:
        ids = torch.tensor([tokenizer(sentence)["input_ids"]])
        if task == "text-generation":
            output = model.generate(ids, max_new_tokens=_NEW_TOKENS, do_sample=False)
        else:
            output = model(ids).logits.argmax(dim=-1)
        answers.append(str(output.tolist()))
    return answers


if __name__ == "__main__":
    sys.modules["vanilla_transformer"] = None  # type: ignore[assignment]  # importing it fails from here on
    folder, task, auto_class = sys.argv[1:]
    try:
        answers = answer(task, *load_with_own_code(folder, task, auto_class), json.load(sys.stdin))
    except Exception as error:  # of any library, or of the folder's code
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    json.dump(answers, sys.stdout)
