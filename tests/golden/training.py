"""The cases of the golden tests of training. `python -m tests.golden.training` stores their
weights, on purpose only.

Each case trains a tiny model for 20 steps in float32. Two processors may round differently, so a
case has numbers that each processor comes close to, and a hash of all weights for each kind of
processor that has stored one.
"""

import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq

from tests import tiny
from tests.tiny_runs import (
    ROOT,
    entries,
    finish,
    flags,
    kill_at_step,
    no_scores,
    read_without_corpus,
    start_two,
)
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.seq2seq_trainer import (
    TokenBudgetTrainingArguments,
    VanillaSeq2SeqTrainer,
)
from vanilla_transformer.training.trainer import train

ANSWERS = Path(__file__).parent / "training.json"
STEPS = 20
COMMON = {
    "max_steps": STEPS,
    "warmup_steps": 400,
    "dropout": 0.1,
    "eval_steps": 10,
    "save_steps": 10,
}
_RUN_KEYS = {"output_dir", "max_minutes", "mixed_precision", "report_to", "save_minutes", *COMMON}
# Softmax ignores the bias of keys, so its gradient is noise, which Adam scales up.
_NOISE = "k_proj.bias"


def run(corpus: Path, output: Path, **changes: Any) -> Path:
    """Train in this process."""
    return train(parse_recipe(flags(corpus, output, **COMMON | changes)), evaluate=no_scores)


def run_killed(corpus: Path, output: Path) -> Path:
    """Train, crash after 13 steps, and resume from the checkpoint of step 10."""
    recipe = parse_recipe(flags(corpus, output, **COMMON, ema_decay=0.9))
    with pytest.MonkeyPatch.context() as patch:
        kill_at_step(recipe, patch, 13)
    AcceleratorState._reset_state(reset_partial_state=True)
    return train(recipe, evaluate=no_scores)


def run_two_processes(corpus: Path, output: Path, **changes: Any) -> Path:
    """Train in two processes."""
    finish(start_two(flags(corpus, output, **COMMON | changes)), timeout=300)
    return output


def run_recipe(name: str, corpus: Path, output: Path) -> Path:
    """Train a tiny model on the tiny corpus with the other values of a shipped recipe."""
    shipped = read_without_corpus(ROOT / "recipes" / f"{name}.yaml")
    kept = {key: value for key, value in shipped.items() if key not in _RUN_KEYS}
    output.parent.mkdir(parents=True, exist_ok=True)
    path = output.parent / f"{name}.yaml"
    path.write_text(yaml.safe_dump(kept))
    words = flags(corpus, output, **COMMON | {"max_tokens": 200, "vocab_size": 600})
    return train(parse_recipe([str(path), *words]), evaluate=no_scores)


def run_seq2seq_trainer(corpus: Path, output: Path) -> Path:
    """Train with transformers' `Trainer`."""
    torch.manual_seed(0)
    model, tokenizer = tiny.tiny_model(), tiny.tiny_tokenizer()
    folder = save_model_folder(model, tokenizer, output.parent / "initial")
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    sides = [(corpus / f"train.{end}").read_text().splitlines() for end in "ab"]
    rows = [
        {**tokenizer(source), "labels": tokenizer(text_target=target)["input_ids"]}
        for source, target in zip(*sides, strict=True)
    ]
    arguments = TokenBudgetTrainingArguments(
        str(output),
        max_tokens=64,
        max_steps=STEPS,
        warmup_steps=400,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = VanillaSeq2SeqTrainer(model, arguments, train_dataset=rows, data_collator=collator)
    trainer.train()
    trainer.save_model(str(output))
    return output


CASES: dict[str, Callable[[Path, Path], Path]] = {
    "straight": lambda corpus, output: run(corpus, output, ema_decay=0.9),
    "killed_and_resumed": run_killed,
    "accumulation": lambda corpus, output: run(corpus, output, gradient_accumulation_steps=2),
    "clipping": lambda corpus, output: run(corpus, output, max_grad_norm=0.5, label_smoothing=0.0),
    "bpe_dropout": lambda corpus, output: run(corpus, output, bpe_dropout=0.2, num_train_epochs=50),
    "ddp": run_two_processes,
    "fsdp": lambda corpus, output: run_two_processes(corpus, output, fsdp=True),
    "seq2seq_trainer": run_seq2seq_trainer,
}
for _path in sorted((ROOT / "recipes").glob("*.yaml")):
    CASES[f"recipe_{_path.stem}"] = lambda corpus, output, name=_path.stem: run_recipe(
        name, corpus, output
    )


def answer(name: str, corpus: Path, output: Path) -> dict[str, Any]:
    """Train a case, and return the hash of its weights, their norms and projections, and the logged
    losses.
    """
    AcceleratorState._reset_state(reset_partial_state=True)
    folder = CASES[name](corpus, output)
    weights = load_file(folder / "model.safetensors")
    digest = hashlib.sha256()
    numbers = {}
    for key in sorted(weights):
        digest.update(key.encode() + weights[key].numpy().tobytes())
        values = weights[key].double().flatten()
        if not key.endswith(_NOISE):
            numbers[key] = [
                round(float(values.norm()), 9),
                round(float(values @ torch.arange(len(values), dtype=values.dtype).cos()), 9),
            ]
    logged = entries(folder) if (folder / "metrics.jsonl").exists() else []
    losses = [
        entry[kind] for entry in logged for kind in ("loss", "validation_loss") if kind in entry
    ]
    return {"sha256": digest.hexdigest(), "losses": losses, "weights": numbers}


def processor() -> str:
    """Return the kind of this processor and the version of torch, on which the rounding of a run
    depends.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    vendor = next(
        (line.split(":")[1].strip() for line in lines if "vendor_id" in line), platform.machine()
    )
    found = [name for name, value in torch.cpu.get_capabilities().items() if value is True]
    return " ".join([vendor, *sorted(found), f"torch {torch.__version__.split('+')[0]}"])


def main() -> None:
    """Store the answers, and keep the hashes of other kinds of processors whose cases have not
    changed.
    """
    torch.set_num_threads(1)
    stored = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.exists() else {}
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = tiny.write_tiny_corpus(Path(folder))
        for name in sys.argv[1:] or CASES:
            found = answer(name, corpus, Path(folder) / name / "run")
            before = stored.get(name, {})
            same = {kind: before[kind] for kind in ("losses", "weights") if kind in before}
            kept = before.get("sha256", {}) if close(found, same) else {}
            answers[name] = found | {"sha256": kept | {processor(): found["sha256"]}}
    lines = [
        f'"{name}": {json.dumps(each)}'
        for name, each in sorted((stored | answers).items())
        if name in CASES
    ]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def close(found: dict[str, Any], expected: dict[str, Any], relative: float = 1e-5) -> bool:
    """Return whether losses and weights are equal but for rounding."""
    return (
        expected.keys() >= {"losses", "weights"}
        and found["weights"].keys() == expected["weights"].keys()
        and found["losses"] == pytest.approx(expected["losses"], rel=relative)
        and all(
            numbers
            == pytest.approx(expected["weights"][key], rel=0, abs=relative * max(1.0, numbers[0]))
            for key, numbers in found["weights"].items()
        )
    )


if __name__ == "__main__":
    main()
