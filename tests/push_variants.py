"""Push each model folder in FOLDER to the Hub, or load each one without this package and print its
outputs as JSON.

python push_variants.py push|load FOLDER NAMESPACE
"""

import json
import sys
from pathlib import Path

if sys.argv[1] == "load":
    sys.modules["vanilla_transformer"] = None

import torch
import transformers


def main(way, folder, namespace):
    answers = {}
    for path in sorted(Path(folder).iterdir()):
        auto_class = getattr(transformers, path.name.split("-")[0])
        name = f"{namespace}/{path.name}"
        if way == "push":
            import vanilla_transformer  # noqa: F401

            auto_class.from_pretrained(path).push_to_hub(name)
            continue
        model = auto_class.from_pretrained(name, trust_remote_code=True).eval()
        ids = torch.tensor([[5, 6, 7]])
        inputs = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        output = model(input_ids=ids, **inputs)[0]
        generated = (
            model.generate(ids, max_new_tokens=4, do_sample=False).tolist()
            if model.can_generate()
            else None
        )
        answers[path.name] = [type(model).__name__, output.flatten().tolist(), generated]
    return answers


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
