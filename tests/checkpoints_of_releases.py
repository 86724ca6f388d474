"""Save and load tiny checkpoints in one release of transformers, for
`python checkpoints_of_releases.py HOW FOLDER`.

HOW is `save`, or says how the checkpoints in FOLDER are loaded: by this `package`, or by their
`code` without it. The output is the release, and the token ids of greedy and beam search and the
translations of each checkpoint.
"""

import json
import sys
from pathlib import Path

import transformers
from transformers import AutoTokenizer, pipeline

TEXTS = ["A man is sleeping.", "Two dogs run across the green grass.", "Öl"]


def search(model, tokenizer):
    """Return the token ids that one and four beams find for batches, which have one text for
    language models.
    """
    batches = [TEXTS] if model.config.is_encoder_decoder else [[text] for text in TEXTS]
    inputs = [tokenizer(batch, padding=True, return_tensors="pt")["input_ids"] for batch in batches]
    options = {"max_new_tokens": 12, "do_sample": False}
    return [
        [model.generate(each, num_beams=beams, **options).tolist() for each in inputs]
        for beams in (1, 4)
    ]


def save(parent):
    """Save a checkpoint of each kind of model that generates, and return its answers from
    before.
    """
    from tests.tiny import (
        tiny_causal_lm,
        tiny_long_causal_lm,
        tiny_long_model,
        tiny_model,
        tiny_tokenizer,
    )
    from vanilla_transformer.loading.model_folders import save_model_folder

    tokenizer, found = tiny_tokenizer(), {}
    for build in (tiny_model, tiny_causal_lm, tiny_long_model, tiny_long_causal_lm):
        model, name = build(), f"{build.__name__}-{transformers.__version__}"
        found[name] = search(model, tokenizer)
        save_model_folder(model, tokenizer, parent / name)
        if build is tiny_model:
            found[name].append(
                pipeline("translation", model=model, tokenizer=tokenizer)(TEXTS, max_new_tokens=12)
            )
    return found


def load(folder, is_carried):
    """Return the answers of a saved checkpoint."""
    options = {"trust_remote_code": True} if is_carried else {}
    is_seq2seq = transformers.AutoConfig.from_pretrained(folder, **options).is_encoder_decoder
    auto_class = (
        transformers.AutoModelForSeq2SeqLM if is_seq2seq else transformers.AutoModelForCausalLM
    )
    model, tokenizer = (
        auto_class.from_pretrained(folder, **options),
        AutoTokenizer.from_pretrained(folder, **options),
    )
    assert type(model).__module__.startswith(
        "transformers_modules." if is_carried else "vanilla_transformer."
    )
    found = search(model.eval(), tokenizer)
    if folder.name.startswith("tiny_model"):
        found.append(
            pipeline("translation", model=str(folder), **options)(TEXTS, max_new_tokens=12)
        )
    return found


def main(how, parent):
    if how == "code":
        sys.modules["vanilla_transformer"] = None  # every import of it fails
    else:
        import vanilla_transformer  # noqa: F401
    found = (
        save(parent)
        if how == "save"
        else {path.name: load(path, how == "code") for path in parent.iterdir()}
    )
    json.dump([transformers.__version__, found], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
