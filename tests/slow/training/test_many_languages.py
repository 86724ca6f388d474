"""A model learns to follow the tag of the target language."""

import json

from tests.tiny_runs import train_tiny
from vanilla_transformer.decoding.loading import load_pipeline

FILES = ("train_source", "train_target", "validation_source", "validation_target")
NO_FILES = dict.fromkeys(FILES)


def test_train_distinguishes_target_languages(corpus, tmp_path):
    source = {"source": str(corpus / "train.a"), "source_language": "a"}
    upper = source | {"target": str(corpus / "train.b"), "target_language": "b"}
    same = source | {"target": str(corpus / "train.a"), "target_language": "c"}
    options = NO_FILES | {"corpora": json.dumps([upper, same])}
    options |= {"max_steps": 300, "warmup_steps": 60, "d_model": 32}
    options |= {"max_tokens": 256, "eval_steps": 300, "save_steps": 300}
    folder = train_tiny(corpus, tmp_path / "out", **options)
    translate = load_pipeline(folder)
    texts = (corpus / "train.a").read_text().splitlines()[:8]
    shares = {}
    for code in "bc":
        answers = translate(texts, tgt_lang=code, num_beams=1)
        letters = "".join(answer["translation_text"] for answer in answers)
        shares[code] = sum(map(str.isupper, letters)) / sum(map(str.isalpha, letters))
    assert shares["b"] > 0.8
    assert shares["c"] < 0.2
