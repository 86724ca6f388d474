"""A model learns to follow the tag of the target language."""

import json

from tests.tiny_runs import train_tiny
from vanilla_transformer.decoding.loading import load_pipeline

NO_FILES = dict.fromkeys(("train_source", "train_target", "validation_source", "validation_target"))


def test_train_distinguishes_target_languages(corpus, tmp_path):
    small, large = (str(corpus / f"train.{end}") for end in "ab")
    corpora = [
        {"source": small, "target": target, "source_language": "a", "target_language": code}
        for target, code in ((large, "b"), (small, "c"))
    ]
    options = NO_FILES | {
        "corpora": json.dumps(corpora),
        "max_steps": 300,
        "warmup_steps": 60,
        "d_model": 32,
    }
    options |= {"max_tokens": 256, "eval_steps": 300, "save_steps": 300}
    folder = train_tiny(corpus, tmp_path / "out", **options)
    translate, texts = load_pipeline(folder), (corpus / "train.a").read_text().splitlines()[:8]
    upper, lower = (
        "".join(
            answer["translation_text"] for answer in translate(texts, tgt_lang=code, num_beams=1)
        )
        for code in "bc"
    )
    shares = [sum(map(str.isupper, text)) / sum(map(str.isalpha, text)) for text in (upper, lower)]
    assert shares[0] > 0.8 and shares[1] < 0.2
