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
    options = {"max_new_tokens": 12, "do_sample": False}
    tokens = [[], []]
    for batch in batches:
        ids = tokenizer(batch, padding=True, return_tensors="pt")["input_ids"]
        for of_search, beams in zip(tokens, (1, 4), strict=True):
            of_search.append(model.generate(ids, num_beams=beams, **options).tolist())
    return tokens


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

    tokenizer, answers = tiny_tokenizer(), {}
    for build in (tiny_model, tiny_causal_lm, tiny_long_model, tiny_long_causal_lm):
        model, name = build(), f"{build.__name__}-{transformers.__version__}"
        answers[name] = search(model, tokenizer)
        save_model_folder(model, tokenizer, parent / name)
        if build is tiny_model:
            translate = pipeline("translation", model=model, tokenizer=tokenizer)
            answers[name].append(translate(TEXTS, max_new_tokens=12))
    return answers


def load(folder, is_carried):
    """Return the answers of a saved checkpoint."""
    options = {"trust_remote_code": True} if is_carried else {}
    is_seq2seq = transformers.AutoConfig.from_pretrained(folder, **options).is_encoder_decoder
    kind = "Seq2SeqLM" if is_seq2seq else "CausalLM"
    auto_class = getattr(transformers, f"AutoModelFor{kind}")
    model = auto_class.from_pretrained(folder, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    package = "transformers_modules." if is_carried else "vanilla_transformer."
    assert type(model).__module__.startswith(package)
    answers = search(model.eval(), tokenizer)
    if folder.name.startswith("tiny_model"):
        translate = pipeline("translation", model=str(folder), **options)
        answers.append(translate(TEXTS, max_new_tokens=12))
    return answers


def main(how, parent):
    if how == "code":
        sys.modules["vanilla_transformer"] = None  # every import of it fails
    else:
        import vanilla_transformer  # noqa: F401
    if how == "save":
        answers = save(parent)
    else:
        answers = {path.name: load(path, how == "code") for path in parent.iterdir()}
    json.dump([transformers.__version__, answers], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
