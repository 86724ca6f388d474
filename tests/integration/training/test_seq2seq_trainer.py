"""Transformers' `Seq2SeqTrainer` on a saved checkpoint, without and with the paper's batches and
schedule.
"""

import json
from functools import partial

import datasets
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from tests.releases import needs_transformers
from tests.sweeps import rare
from tests.tiny_runs import watch_attention
from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler
from vanilla_transformer.decoding.engine import engine_pool
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training import seq2seq_trainer
from vanilla_transformer.training.lr_scheduler import noam_lambda
from vanilla_transformer.training.seq2seq_trainer import (
    TokenBudgetTrainingArguments,
    VanillaSeq2SeqTrainer,
    column_lengths,
)

pytestmark = needs_transformers(
    "5.17", "Trainer counts the labels of encoder-decoder models wrongly"
)
QUIET = {
    "report_to": [],
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "logging_steps": 1,
}


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    """Return a saved model without dropout, so that runs can be compared."""
    tiny_model.config.dropout = 0.0
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


@pytest.fixture
def rows():
    """Return pairs of uneven lengths with distinct first tokens."""
    generator = torch.Generator().manual_seed(0)

    def words(length):
        return torch.randint(10, 300, (length,), generator=generator).tolist()

    return [
        {
            "input_ids": [10 + number, *words(number % 5), 2],
            "attention_mask": [1] * (number % 5 + 2),
            "labels": [*words(1 + number % 7), 2],
        }
        for number in range(30)
    ]


def load(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def create_trainer(
    kind, arguments, folder, output, rows, callbacks=None, optimizers=(None, None), **changes
):
    model, tokenizer = load(folder)
    return kind(
        model,
        arguments(output, **QUIET | changes),
        train_dataset=rows,
        eval_dataset=rows[:5],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        callbacks=callbacks,
        optimizers=optimizers,
        processing_class=tokenizer,
    )


stock_trainer = partial(create_trainer, Seq2SeqTrainer, Seq2SeqTrainingArguments)
budget_arguments = partial(TokenBudgetTrainingArguments, max_tokens=24, warmup_steps=5)
budget_trainer = partial(create_trainer, VanillaSeq2SeqTrainer, budget_arguments)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


# One step of gradient descent on two accumulated batches.
ONE_STEP = {
    "max_steps": 1,
    "gradient_accumulation_steps": 2,
    "optim": "sgd",
    "learning_rate_scale": 10.0,
}


def assert_is_step_of(trainer, pairs, folder):
    """Compare such a step of a trainer with that of all its pairs in one padded batch."""
    model, tokenizer = load(folder)
    batch = DataCollatorForSeq2Seq(tokenizer)(pairs)
    loss = nn.functional.cross_entropy(
        model(**batch).logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=0.1
    )
    loss.backward()
    rate = 10.0 * noam_lambda(d_model=16, warmup_steps=5)(0)
    assert logged(trainer, "loss") == pytest.approx([loss.item()], rel=1e-4)
    for (name, ours), theirs in zip(
        trainer.model.named_parameters(), model.parameters(), strict=True
    ):
        torch.testing.assert_close(
            ours, theirs - rate * theirs.grad, atol=1e-5, rtol=1e-4, msg=name
        )


def packed_firsts(batch):
    """Return the first source token of each pair of a packed batch."""
    return batch["input_ids"][(batch["source_positions"] == 0) & (batch["input_ids"] != 0)]


def first_tokens(batches):
    """Return the first tokens of each batch, which identify its pairs."""
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


class SeenBatches(TrainerCallback):
    """Record the pairs of each batch that the model gets."""

    def __init__(self):
        self.batches = []

    def on_train_begin(self, args, state, control, model=None, **_):
        def remember(module, arguments, inputs):
            if module.training:
                self.batches.append(inputs["input_ids"][:, 0].tolist())

        self.handle = model.register_forward_pre_hook(remember, with_kwargs=True)

    def on_train_end(self, *_, **__):
        self.handle.remove()


# --------------------------------------------------------------------------------------------------
# the stock trainer


def test_seq2seq_collator_adds_decoder_inputs_and_ignored_padding(folder, rows):
    model, tokenizer = load(folder)
    batch = DataCollatorForSeq2Seq(tokenizer, model=model)(rows[:3])
    assert (batch["labels"][0, 2:] == -100).all() and (batch["input_ids"][0, 2:] == 0).all()
    assert (
        batch["decoder_input_ids"].tolist()
        == model.prepare_decoder_input_ids_from_labels(batch["labels"]).tolist()
    )
    counted = (batch["labels"] != -100).sum()
    alone = [
        model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]]))
        for row in rows[:3]
    ]
    expected = sum(output.loss * output.logits.shape[1] for output in alone) / counted
    torch.testing.assert_close(model(**batch).loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_seq2seq_trainer_accumulation_matches_large_batch(folder, rows, tmp_path, smoothing):
    """Use gradient descent, since Adam would hide a wrong scale of the gradient."""

    def train(**changes):
        options = {
            "max_steps": 3,
            "learning_rate": 0.1,
            "label_smoothing_factor": smoothing,
            "optim": "sgd",
        }
        trainer = stock_trainer(
            folder, tmp_path / "out", rows, max_grad_norm=0.0, **options, **changes
        )
        trainer.train()
        return trainer

    big = train(per_device_train_batch_size=12)
    parts = train(per_device_train_batch_size=3, gradient_accumulation_steps=4)
    assert logged(parts, "loss") == pytest.approx(logged(big, "loss"), rel=1e-4)
    assert logged(parts, "grad_norm") == pytest.approx(logged(big, "grad_norm"), rel=1e-3)
    for (name, ours), theirs in zip(
        parts.model.named_parameters(), big.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4, msg=name)


def test_seq2seq_trainer_predict_matches_generate(folder, rows, tmp_path):
    trainer = stock_trainer(folder, tmp_path / "out", rows, max_steps=2, predict_with_generate=True)
    trainer.train()
    predicted = trainer.predict(rows[:5]).predictions
    trainer.save_model(tmp_path / "saved")
    for model in (trainer.model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")):
        batch = trainer.data_collator(rows[:5])
        expected = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"])
        width = expected.shape[1]
        assert predicted[:, :width].tolist() == expected.tolist()
        assert (predicted[:, width:] <= 0).all(), "the rest is padding"
        assert (
            model.generation_config.num_beams == 4
            and model.generation_config.length_penalty_type == "wu"
        )


def test_seq2seq_trainer_computes_metrics_of_generated_tokens(folder, rows, tmp_path):
    trainer = stock_trainer(
        folder, tmp_path / "out", rows, predict_with_generate=True, label_smoothing_factor=0.1
    )
    trainer.compute_metrics = lambda outcome: {"width": outcome.predictions.ndim}
    metrics = trainer.evaluate(num_beams=2, max_new_tokens=3)
    assert metrics["eval_width"] == 2 and metrics["eval_loss"] > 0


def test_seq2seq_trainer_bf16_keeps_float32_weights(folder, rows, tmp_path):
    types = set()
    trainer = stock_trainer(
        folder, tmp_path / "out", rows, max_steps=20, bf16=True, learning_rate=1e-2
    )
    trainer.model.model.decoder.layers[0].fc1.register_forward_hook(
        lambda _, __, output: types.add(output.dtype)
    )
    trainer.train()
    assert types == {torch.bfloat16}
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert logged(trainer, "loss")[-1] < 0.9 * logged(trainer, "loss")[0]


# --- the batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, datasets.Dataset.from_list])
def test_token_budget_dataloader_yields_every_pair_once_per_epoch(folder, rows, tmp_path, wrap):
    loader = budget_trainer(folder, tmp_path / "out", wrap(rows)).get_train_dataloader()
    epochs = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert all(
            batch[side].numel() <= 24 for batch in batches for side in ("input_ids", "labels")
        )
        assert sorted(sum(first_tokens(batches), [])) == [10 + number for number in range(30)]
        epochs.append(first_tokens(batches))
    assert epochs[0] != epochs[1]
    loader.set_epoch(0)
    assert first_tokens(loader) == epochs[0]


def test_token_budget_trainer_follows_sampler(folder, rows, tmp_path):
    seen = SeenBatches()
    trainer = budget_trainer(folder, tmp_path / "out", rows, [seen], num_train_epochs=3, seed=5)
    trainer.train()
    lengths = [column_lengths(rows, column) for column in ("input_ids", "labels")]
    sampler = TokenBudgetBatchSampler(PairLengths(*lengths), max_tokens=24, seed=5)
    planned = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        planned += [[10 + pair for pair in batch] for batch in sampler]
    assert seen.batches == planned
    assert trainer.state.global_step == 3 * len(sampler)


def unlabeled(rows):
    return [{"input_ids": row["input_ids"]} for row in rows]


NO_LABELS = "must have the columns .*, but 'labels' is missing"


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (list, {"max_tokens": 5}, "`max_tokens` must be at least .* got max_tokens=5"),
        (unlabeled, {}, NO_LABELS),
        (lambda rows: datasets.Dataset.from_list(unlabeled(rows)), {}, NO_LABELS),
        (
            lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
            {},
            "need a dataset with a length",
        ),
    ],
)
def test_token_budget_trainer_refuses_data(folder, rows, tmp_path, change, options, words):
    trainer = budget_trainer(folder, tmp_path / "out", rows, max_steps=2, **options)
    trainer.train_dataset = change(rows)
    with pytest.raises(ValueError, match=words):
        trainer.train()


# --- packing --------------------------------------------------------------------------------------


def test_packed_batches_of_trainer_have_every_pair_once_in_rows_of_one_shape(
    folder, rows, tmp_path
):
    loader = budget_trainer(
        folder, tmp_path / "out", rows, packing=True, max_tokens=48
    ).get_train_dataloader()
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert sorted(torch.cat([*map(packed_firsts, batches)]).tolist()) == [
            10 + number for number in range(30)
        ]
        assert len({batch["labels"].shape for batch in batches}) == 1 < len(batches) < 30


def test_packed_steps_of_trainer_match_joined_batches(folder, rows, tmp_path):
    """Compare the gradient of two accumulated batches with that of all their pairs, padded."""
    packed = budget_trainer(
        folder, tmp_path / "out", rows, packing=True, max_tokens=200, **ONE_STEP
    )
    loader = packed.get_train_dataloader()
    firsts = [*map(packed_firsts, loader)]
    packed.train()
    assert_is_step_of(
        packed, [rows[first - 10] for first in torch.cat(firsts[:2]).tolist()], folder
    )


def test_packed_trainer_multiplies_in_bf16_and_evaluates_padded_batches(folder, rows, tmp_path):
    types = set()
    options = {"max_steps": 4, "bf16": True, "max_tokens": 48, "predict_with_generate": True}
    trainer = budget_trainer(folder, tmp_path / "out", rows, packing=True, **options)
    trainer.model.model.decoder.layers[0].fc1.register_forward_hook(
        lambda _, __, output: types.add(output.dtype)
    )
    trainer.train()
    assert types == {torch.bfloat16}
    assert trainer.evaluate()["eval_loss"] > 0 and trainer.predict(rows[:2]).predictions.ndim == 2


@pytest.mark.parametrize("packing", [False, True])
def test_trainer_keeps_cudnn_attention_off_for_batches_of_many_shapes(
    folder, rows, tmp_path, monkeypatch, packing
):
    seen = watch_attention(monkeypatch)
    budget_trainer(
        folder, tmp_path / "out", rows, packing=packing, max_tokens=48, max_steps=2
    ).train()
    assert {enabled for _, enabled in seen} == {packing}


def test_trainer_packs_by_default_on_a_gpu_alone(folder, rows, tmp_path, monkeypatch):
    assert budget_trainer(folder, tmp_path / "out", rows)._packed_model is None
    compiled = []
    monkeypatch.setattr(
        seq2seq_trainer, "compile_regions", lambda *given, **options: compiled.append(options)
    )
    on_gpu = seq2seq_trainer.should_pack
    monkeypatch.setattr(seq2seq_trainer, "should_compile", lambda *_: True)
    monkeypatch.setattr(
        seq2seq_trainer, "should_pack", lambda *given: on_gpu(*given[:3], torch.device("cuda"))
    )
    assert budget_trainer(
        folder, tmp_path / "out", rows
    )._packed_model is not None and compiled == [{"packing": True}]
    assert (
        budget_trainer(folder, tmp_path / "out", rows, packing=False)._packed_model is None
        and len(compiled) == 1
    )


def test_trainer_refuses_packing_with_another_loss_collator_or_attention(folder, rows, tmp_path):
    model, tokenizer = load(folder)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    arguments = TokenBudgetTrainingArguments(tmp_path, **QUIET | {"packing": True})
    with pytest.raises(
        ValueError,
        match="`packing` must be given without `compute_loss_func`. Leave one of them out",
    ):
        VanillaSeq2SeqTrainer(model, arguments, collator, rows, compute_loss_func=lambda *_: None)
    with pytest.raises(
        ValueError, match="`packing` must be given without a `data_collator` other than"
    ):
        VanillaSeq2SeqTrainer(model, arguments, lambda given: given, rows)
    model.set_attn_implementation("flex_attention")
    with pytest.raises(
        ValueError, match="`packing` must be given with softmax attention .* got .*flex_attention"
    ):
        VanillaSeq2SeqTrainer(model, arguments, collator, rows)


# --- the schedule ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given_optimizer", [False, True])
def test_token_budget_trainer_learning_rate_is_equation_3(folder, rows, tmp_path, given_optimizer):
    trainer = budget_trainer(
        folder, tmp_path / "out", rows, max_steps=12, gradient_accumulation_steps=2
    )
    if given_optimizer:
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.3)
    trainer.train()
    rate = noam_lambda(d_model=16, warmup_steps=5)
    assert logged(trainer, "learning_rate") == pytest.approx([rate(step) for step in range(12)])
    trainer.train()  # restarts the schedule
    assert logged(trainer, "learning_rate") == pytest.approx([rate(step) for step in range(12)])


def test_token_budget_trainer_uses_adam_of_paper(folder, rows, tmp_path):
    trainer = budget_trainer(folder, tmp_path / "out", rows)
    optimizer = trainer.create_optimizer()
    assert isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)
    given = torch.optim.SGD(trainer.model.parameters(), lr=0.3)
    assert (
        budget_trainer(folder, tmp_path / "out", rows, optimizers=(given, None)).create_optimizer()
        is given
    )


def test_token_budget_trainer_keeps_schedules_of_library(folder, rows, tmp_path):
    options = {
        "paper_schedule": False,
        "learning_rate": 0.5,
        "warmup_steps": 0,
        "lr_scheduler_type": "constant",
    }
    trainer = budget_trainer(folder, tmp_path / "out", rows, max_steps=3, **options)
    trainer.train()
    assert logged(trainer, "learning_rate") == [0.5] * 3


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, got 0"),
        ({"warmup_steps": 0}, "`warmup_steps` must be above 0 .* got 0"),
        (
            {"learning_rate": 3e-4},
            "`learning_rate` has no effect beside `paper_schedule`, got 0.0003",
        ),
        (
            {"lr_scheduler_type": "cosine"},
            "`lr_scheduler_type` has no effect beside `paper_schedule`, got .*cosine",
        ),
        (
            {"paper_schedule": False, "learning_rate_scale": 2.0},
            "`learning_rate_scale` belongs to .* got 2.0",
        ),
        ({"auto_find_batch_size": True}, "Lower `max_tokens` instead"),
    ],
)
def test_token_budget_arguments_refuse_ignored_values(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        TokenBudgetTrainingArguments(tmp_path, **changes)


def test_token_budget_trainer_refuses_stock_arguments(folder, rows, tmp_path):
    model, _ = load(folder)
    with pytest.raises(
        ValueError, match="must be `TokenBudgetTrainingArguments`.* got Seq2SeqTrainingArguments"
    ):
        VanillaSeq2SeqTrainer(
            model, Seq2SeqTrainingArguments(tmp_path, use_cpu=True), train_dataset=rows
        )


# -------------------------------------------------------------------------------------------
# accumulation and resuming


def test_token_budget_trainer_accumulation_matches_joined_batches(folder, rows, tmp_path):
    """Compare two accumulated batches with both joined by hand."""
    seen = SeenBatches()
    trainer = budget_trainer(folder, tmp_path / "out", rows, [seen], **ONE_STEP)
    trainer.train()
    assert_is_step_of(
        trainer, [rows[first - 10] for batch in seen.batches for first in batch], folder
    )


@pytest.mark.parametrize("dropout", [0.1, rare(0.0)])
@pytest.mark.parametrize(
    "stop", [rare("inside the first epoch"), rare("at its end"), "inside the second"]
)
def test_token_budget_trainer_resumes_bit_for_bit(folder, rows, tmp_path, stop, dropout):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dropout": dropout}))
    updates = len(budget_trainer(folder, tmp_path / "out", rows).get_train_dataloader())
    common = {
        "max_steps": 2 * updates + 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "gradient_accumulation_steps": 2,
    }
    updates = (
        len(budget_trainer(folder, tmp_path / "out", rows, **common).get_train_dataloader()) // 2
    )
    k = {"inside the first epoch": 2, "at its end": updates, "inside the second": updates + 1}[stop]
    seen, rest = SeenBatches(), SeenBatches()
    straight = budget_trainer(folder, tmp_path / "out", rows, [seen], **common)
    straight.train()
    resumed = budget_trainer(folder, tmp_path / "again", rows, [rest], **common)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{k}"))
    assert rest.batches == seen.batches[2 * k :]
    assert logged(resumed, "learning_rate") == logged(straight, "learning_rate")
    for (name, ours), theirs in zip(
        resumed.model.named_parameters(), straight.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=0.0, rtol=0.0, msg=name)


@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_trainer_predicts_the_tokens_of_generate_and_loads_the_best_model_without_a_warning(
    folder, rows, tmp_path, monkeypatch, kind
):
    found, find = [], engine_pool.EnginePool.find
    monkeypatch.setattr(
        engine_pool.EnginePool,
        "find",
        lambda self, *a, **k: found.append(find(self, *a, **k)) or found[-1],
    )
    options = {
        "predict_with_generate": True,
        "generation_max_length": 12,
        "generation_num_beams": 2,
    }
    options |= {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    options |= {"max_steps": 2, "load_best_model_at_end": True}
    if kind == "stock":
        trainer = stock_trainer(folder, tmp_path / "run", rows, learning_rate=0.01, **options)
    else:
        trainer = budget_trainer(folder, tmp_path / "run", rows, **options)
    trainer.train()
    predictions = trainer.predict(rows[:6]).predictions
    assert (
        len({*map(id, found)} - {id(None)}) == {"stock": 0, "ours": 1}[kind]
    )  # of predictions alone
    model = trainer.model.eval()
    batch = trainer.data_collator([{"input_ids": row["input_ids"]} for row in rows[:6]])
    expected = model.generate(**batch, max_length=12, num_beams=2)
    assert [[token for token in row if token > 0] for row in predictions.tolist()] == [
        [token for token in row if token > 0] for row in expected.tolist()
    ]
    again = trainer.predict(rows[:6], num_beams=1, max_new_tokens=3).predictions
    assert again.shape[1] >= 4 and None not in found
