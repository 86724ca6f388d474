"""Scripts as people write them with Accelerate and Trainer, in processes that import only this
package.
"""

import json

import pytest

from tests.model_variants import MODEL_VARIANTS, build_variant
from tests.processes import run_python
from tests.sweeps import sample
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_model

# A loop without Trainer: it saves its state after the first of two epochs, or continues from there.
ACCELERATE = """
import hashlib, json, sys
import torch, transformers, vanilla_transformer
from accelerate import Accelerator
from transformers import get_scheduler

auto_class, folder, state, resumed = sys.argv[1:]
torch.manual_seed(0)
ids = torch.randint(5, 300, (12, 7))
labels = torch.randint(0, 2, (12,)) if "Classification" in auto_class else ids.roll(1, dims=0)
accelerator = Accelerator(cpu=True)
model = getattr(transformers, auto_class).from_pretrained(folder).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels)]
loader = torch.utils.data.DataLoader(data, batch_size=4)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=2, num_training_steps=6)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
if resumed == "yes":
    accelerator.load_state(state)
for epoch in range(int(resumed == "yes"), 2):
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if epoch == 0:
        accelerator.save_state(state)
weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
print(json.dumps([loss.item(), hashlib.sha256(weights).hexdigest()]))
"""


@pytest.mark.parametrize(
    "name",
    sample(
        ["AutoModelForSeq2SeqLM", *MODEL_VARIANTS],
        "AutoModelForSeq2SeqLM",
        "AutoModelForCausalLM-alone",
        "AutoModelForMaskedLM-alone",
        "AutoModelForSeq2SeqLM-lsh_attention",
    ),
)
def test_accelerate_script_resumes_from_its_state(name, tmp_path):
    model = tiny_model() if name not in MODEL_VARIANTS else build_variant(name)
    model.save_pretrained(tmp_path / "model")
    arguments = name.split("-")[0], str(tmp_path / "model"), str(tmp_path / "state")
    straight, resumed = (
        run_python("-c", ACCELERATE, *arguments, answer) for answer in ("no", "yes")
    )
    assert straight.returncode == resumed.returncode == 0, straight.stderr + resumed.stderr
    assert json.loads(straight.stdout.splitlines()[-1]) == json.loads(
        resumed.stdout.splitlines()[-1]
    )


# A language model, or a subclass of one, is trained and evaluated with label smoothing.
TRAINER = """
import json, sys
import torch, vanilla_transformer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Mine(vanilla_transformer.VanillaTransformerForCausalLM):
    pass

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
if sys.argv[3] == "subclass":
    model = Mine.from_pretrained(sys.argv[1])
torch.manual_seed(0)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(5, 300, (8, 7))]
options = {"label_smoothing_factor": 0.1, "max_steps": 2, "save_strategy": "no", "report_to": []}
arguments = TrainingArguments(sys.argv[2], use_cpu=True, **options)
trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
trainer.train()
found = trainer.evaluate()["eval_loss"]
with torch.no_grad():
    logits = model(torch.stack([row["input_ids"] for row in rows])).logits[:, :-1]
targets = torch.stack([row["labels"] for row in rows])[:, 1:]
expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
print(json.dumps([found, expected.item()]))
"""


@pytest.mark.parametrize("kind", ["class", "subclass"])
@pytest.mark.parametrize("build", sample([tiny_causal_lm, tiny_long_causal_lm], tiny_causal_lm))
def test_trainer_script_smooths_the_shifted_labels_of_a_language_model(build, kind, tmp_path):
    build().save_pretrained(tmp_path / "model")
    ended = run_python("-c", TRAINER, str(tmp_path / "model"), str(tmp_path / "run"), kind)
    assert ended.returncode == 0, ended.stderr
    found, expected = json.loads(ended.stdout.splitlines()[-1])
    assert found == pytest.approx(expected, rel=1e-5)
