"""Translate with a Marian folder without this package, for
`python marian_without_package.py FOLDER`.

It reads a JSON list of sentences from standard input, and writes the release of transformers and,
for one and four beams, the translations.
"""

import json
import sys

import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

if __name__ == "__main__":
    sys.modules["vanilla_transformer"] = None
    folder, sentences = sys.argv[1], json.load(sys.stdin)
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    lines = [
        tokenizer.batch_decode(
            model.generate(**batch, num_beams=beams, max_length=48), skip_special_tokens=True
        )
        for beams in (1, 4)
    ]
    json.dump([transformers.__version__, lines], sys.stdout)
