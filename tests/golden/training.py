"""The cases of the golden tests of training. `python -m tests.golden.training` stores their
weights, on purpose only.

Each case trains a tiny model for 20 steps in float32. Two processors may round differently, so a
case has numbers that each processor comes close to, and a hash of all weights for each kind of
processor that has stored one.
"""

import hashlib
import json
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
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
    train_tiny,
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
COMMON = {"max_steps": STEPS, "warmup_steps": 400, "dropout": 0.1}
COMMON |= {"eval_steps": 10, "save_steps": 10}
_RUN_KEYS = {"output_dir", "max_minutes", "mixed_precision", "report_to", "save_minutes"}
_RUN_KEYS |= {*COMMON}
# Softmax ignores the bias of keys, so its gradient is noise, which Adam scales up.
_NOISE = "k_proj.bias"


def run(corpus: Path, output: Path, **changes: Any) -> Path:
    """Train in this process."""
    return train_tiny(corpus, output, **COMMON | changes)


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
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sides = [(corpus / f"train.{end}").read_text().splitlines() for end in "ab"]
    rows = []
    for source, target in zip(*sides, strict=True):
        labels = tokenizer(text_target=target)["input_ids"]
        rows.append({**tokenizer(source), "labels": labels})
    options = {"max_tokens": 64, "max_steps": STEPS, "warmup_steps": 400, "use_cpu": True}
    options |= {"report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    arguments = TokenBudgetTrainingArguments(str(output), **options)
    data = {"train_dataset": rows, "data_collator": DataCollatorForSeq2Seq(tokenizer, model=model)}
    trainer = VanillaSeq2SeqTrainer(model, arguments, **data)
    trainer.train()
    trainer.save_model(str(output))
    return output


CASES: dict[str, Callable[[Path, Path], Path]] = {
    "straight": partial(run, ema_decay=0.9),
    "killed_and_resumed": run_killed,
    "accumulation": partial(run, gradient_accumulation_steps=2),
    "clipping": partial(run, max_grad_norm=0.5, label_smoothing=0.0),
    "bpe_dropout": partial(run, bpe_dropout=0.2, num_train_epochs=50),
    "ddp": run_two_processes,
    "fsdp": partial(run_two_processes, fsdp=True),
    "seq2seq_trainer": run_seq2seq_trainer,
}
for _path in sorted((ROOT / "recipes").glob("*.yaml")):
    CASES[f"recipe_{_path.stem}"] = partial(run_recipe, _path.stem)


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
            cosines = torch.arange(len(values), dtype=values.dtype).cos()
            numbers[key] = [round(float(values.norm()), 9), round(float(values @ cosines), 9)]
    logged = entries(folder) if (folder / "metrics.jsonl").exists() else []
    losses = []
    for entry in logged:
        losses += [entry[kind] for kind in ("loss", "validation_loss") if kind in entry]
    return {"sha256": digest.hexdigest(), "losses": losses, "weights": numbers}


def processor() -> str:
    """Return the kind of this processor and the version of torch, on which the rounding of a run
    depends.
    """
    vendor = platform.machine()
    if sys.platform == "linux":
        text = Path("/proc/cpuinfo").read_text()
        vendors = re.search(r"^vendor_id\s*:(.*)$", text, re.MULTILINE)
        vendor = vendors[1].strip() if vendors else vendor
    capabilities = torch.cpu.get_capabilities().items()
    names = sorted(name for name, value in capabilities if value is True)
    return " ".join([vendor, *names, f"torch {torch.__version__.split('+')[0]}"])


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
            new = answer(name, corpus, Path(folder) / name / "run")
            before = stored.get(name, {})
            kept = before.get("sha256", {}) if close(new, before) else {}
            answers[name] = new | {"sha256": kept | {processor(): new["sha256"]}}
    lines = []
    for name, stored_answer in sorted((stored | answers).items()):
        if name in CASES:
            lines.append(f'"{name}": {json.dumps(stored_answer)}')
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def close(new: dict[str, Any], expected: dict[str, Any], relative: float = 1e-5) -> bool:
    """Return whether losses and weights are equal but for rounding."""
    if not expected.keys() >= {"losses", "weights"}:
        return False
    if new["weights"].keys() != expected["weights"].keys():
        return False
    if new["losses"] != pytest.approx(expected["losses"], rel=relative):
        return False
    for key, numbers in new["weights"].items():
        tolerance = relative * max(1.0, numbers[0])
        if numbers != pytest.approx(expected["weights"][key], rel=0, abs=tolerance):
            return False
    return True


if __name__ == "__main__":
    main()
