"""Load a model from the Hub in every way without this package, and print its translations as JSON.

python load_from_hub.py NAME REVISION < sentences.json
"""

import json
import sys

sys.modules["vanilla_transformer"] = None

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline  # noqa: E402


def main(name, revision, sentences):
    where = {"revision": revision, "trust_remote_code": True}
    try:
        AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
        refusal = None
    except ValueError as error:
        refusal = str(error)
    config = AutoConfig.from_pretrained(name, **where)
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(name, **where),
        AutoTokenizer.from_pretrained(name, **where),
    )
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    generated = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
    translate = pipeline("translation", model=name, **where)
    return {
        "refusal": refusal,
        "classes": [type(config).__name__, type(AutoModel.from_pretrained(name, **where)).__name__],
        "generate": [text.strip() for text in generated],
        "pipeline": [answer["translation_text"] for answer in translate(sentences)],
    }


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2], json.load(sys.stdin)), sys.stdout)
