"""
Write a trained model into the repository: weights in bfloat16, which load as float32, and no copy
of the code.

    vanilla-transformer train tatoeba_en_de
    vanilla-transformer train phrases.yaml --init_from runs/tatoeba_en_de --output_dir runs/phrases
    python tools/write_model.py runs/phrases models/en-de \
        --source data/tatoeba-deu-eng/test.en --target data/tatoeba-deu-eng/test.de \
        --name "Tatoeba test set" --facts tatoeba_en_de

The model is scored as it is stored. `phrases.yaml` is the second recipe of the model's card;
the tool writes the last recipe only.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from vanilla_transformer.cli import main

COPIED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "learning_curve.png")
RECORDS = ("corpus.json", "machine.json", "metrics.jsonl", "recipe.json")  # which the card shows


def write_model(source: Path, folder: Path) -> None:
    """Write the files of a model in bfloat16, without code."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED + RECORDS:
        shutil.copyfile(source / name, folder / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config = {
        key: value for key, value in config.items() if key not in ("auto_map", "custom_pipelines")
    }
    (folder / "config.json").write_text(
        json.dumps(config | {"dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
    )
    weights = {
        name: weight.to(torch.bfloat16)
        for name, weight in load_file(source / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    for flag in ("source", "target", "name", "facts"):
        parser.add_argument(f"--{flag}", required=True)
    options = parser.parse_args()
    write_model(options.run, options.folder)
    text = ["--source", options.source, "--target", options.target, "--name", options.name]
    for command in (
        ["evaluate", *text],
        ["render-card", "--facts", options.facts, "--repo_id", str(options.folder)],
    ):
        if status := main([command[0], str(options.folder), *command[1:]]):
            raise SystemExit(status)
    for name in RECORDS:
        (options.folder / name).unlink()
    shutil.rmtree(options.folder / "evaluations")
