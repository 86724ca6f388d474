"""`TokenBudgetTrainerMixin` trains other encoder-decoders of transformers: batches, loss and exact
resume.
"""

import pytest
import torch
from safetensors.torch import load_file
from transformers import DataCollatorForSeq2Seq, TrainerCallback

from tests.marian_files import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from tests.releases import needs_transformers
from tests.sweeps import rare, sample
from tests.tiny import tiny_model, tiny_tokenizer
from tests.tiny_runs import Killed
from vanilla_transformer.training.seq2seq_trainer import (
    TokenBudgetTrainingArguments,
    VanillaSeq2SeqTrainer,
)

pytestmark = needs_transformers(
    "5.17", "Trainer counts the labels of encoder-decoder models wrongly"
)

MODELS = ["marian", "vanilla_transformer"]


class KillAtStep(TrainerCallback):
    """End training after a step as a crash does."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Killed


def create(kind, folder):
    """Return a random model with dropout, and its tokenizer."""
    if kind == "vanilla_transformer":
        return tiny_model(dropout=0.3), tiny_tokenizer()
    folder.mkdir(exist_ok=True)
    tokenizer = build_marian_tokenizer(folder)
    return marian_model(len(tokenizer), dropout=0.3), tokenizer


def create_trainer(kind, folder, output, callbacks=None, **changes):
    model, tokenizer = create(kind, folder)
    words = " ".join(MARIAN_SENTENCES).split()
    texts = [
        " ".join(words[first : first + length]) for first in range(8) for length in (1, 2, 3, 5)
    ]
    rows = [
        {**tokenizer(text), "labels": tokenizer(text_target=text.upper())["input_ids"]}
        for text in texts
    ]
    options = {
        "max_tokens": 90,
        "warmup_steps": 5,
        "max_steps": 12,
        "save_steps": 4,
        "logging_steps": 1,
    }
    options |= {"report_to": [], "disable_tqdm": True, "use_cpu": True}
    return VanillaSeq2SeqTrainer(
        model,
        TokenBudgetTrainingArguments(str(output), **options | changes),
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        callbacks=callbacks,
    )


@pytest.mark.parametrize("kind", sample(MODELS, "vanilla_transformer"))
def test_killed_run_resumes_bit_for_bit(kind, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    create_trainer(kind, tmp_path / "model", straight).train()
    with pytest.raises(Killed):
        create_trainer(kind, tmp_path / "model", killed, [KillAtStep(6)]).train()
    resumed = create_trainer(kind, tmp_path / "model", killed)
    resumed.train(resume_from_checkpoint=str(killed / "checkpoint-4"))
    expected, found = (
        load_file(folder / "checkpoint-12" / "model.safetensors") for folder in (straight, killed)
    )
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("smoothing", [rare(0.0), 0.1])
@pytest.mark.parametrize("kind", MODELS)
def test_gradient_is_that_of_the_mean_over_all_target_tokens(kind, smoothing, tmp_path):
    """Use gradient descent, since Adam would hide a wrong scale of the gradient."""
    options = {
        "max_steps": 1,
        "gradient_accumulation_steps": 3,
        "label_smoothing_factor": smoothing,
        "optim": "sgd",
    }
    options |= {
        "paper_schedule": False,
        "learning_rate": 1.0,
        "warmup_steps": 0,
        "save_strategy": "no",
    }
    trainer = create_trainer(kind, tmp_path / "model", tmp_path / "out", **options)
    for module in trainer.model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
        elif isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batches = [batch for batch, _ in zip(trainer.get_train_dataloader(), range(3), strict=False)]
    counts = [int((batch["labels"] != -100).sum()) for batch in batches]
    assert len({*counts}) > 1, "batches of equal size would hide a mean of means"
    loss = 0.0
    for batch in batches:
        logits = trainer.model(**batch).logits.flatten(end_dim=-2)
        summed = {"label_smoothing": smoothing, "reduction": "sum"}
        loss += torch.nn.functional.cross_entropy(
            logits, batch["labels"].flatten(), **summed
        ) / sum(counts)
    loss.backward()
    expected = {
        name: (each - each.grad).detach()
        for name, each in trainer.model.named_parameters()
        if each.requires_grad
    }
    trainer.model.zero_grad()
    trainer.train()
    for name, each in trainer.model.named_parameters():
        if name in expected:
            torch.testing.assert_close(
                each.detach(), expected[name], atol=1e-5, rtol=1e-4, msg=name
            )
