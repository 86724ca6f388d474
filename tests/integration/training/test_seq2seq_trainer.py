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

pytestmark = needs_transformers("5.17", "Trainer counts labels of such models wrongly")
QUIET = {"report_to": [], "disable_tqdm": True, "use_cpu": True}
QUIET |= {"save_strategy": "no", "logging_steps": 1}


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
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    return model, AutoTokenizer.from_pretrained(folder)


def create_trainer(kind, arguments, folder, output, rows, callbacks=None, **changes):
    optimizers = changes.pop("optimizers", (None, None))
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
ONE_STEP = {"max_steps": 1, "gradient_accumulation_steps": 2}
ONE_STEP |= {"optim": "sgd", "learning_rate_scale": 10.0}
EPOCH = [10 + number for number in range(30)]  # the first tokens of all rows


def assert_same_weights(model, expected, **tolerances):
    weights = dict(expected.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, weights.pop(name), msg=name, **tolerances)
    assert not weights


def assert_is_step_of(trainer, pairs, folder):
    """Compare such a step of a trainer with that of all its pairs in one padded batch."""
    model, tokenizer = load(folder)
    batch = DataCollatorForSeq2Seq(tokenizer)(pairs)
    logits = model(**batch).logits.flatten(0, 1)
    entropy = partial(nn.functional.cross_entropy, label_smoothing=0.1)
    loss = entropy(logits, batch["labels"].flatten())
    loss.backward()
    rate = 10.0 * noam_lambda(d_model=16, warmup_steps=5)(0)
    assert logged(trainer, "loss") == pytest.approx([loss.item()], rel=1e-4)
    with torch.no_grad():
        for weight in model.parameters():
            weight -= rate * weight.grad
    assert_same_weights(trainer.model, model, atol=1e-5, rtol=1e-4)


def packed_firsts(batch):
    """Return the first source token of each pair of a packed batch."""
    ids = batch["input_ids"]
    return ids[(batch["source_positions"] == 0) & (ids != 0)]


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
    assert (batch["labels"][0, 2:] == -100).all()
    assert (batch["input_ids"][0, 2:] == 0).all()
    shifted = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    assert torch.equal(batch["decoder_input_ids"], shifted)
    counted = (batch["labels"] != -100).sum()
    alone = []
    for row in rows[:3]:
        inputs = {name: torch.tensor([row[name]]) for name in ("input_ids", "labels")}
        alone.append(model(**inputs))
    expected = sum(output.loss * output.logits.shape[1] for output in alone) / counted
    torch.testing.assert_close(model(**batch).loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_seq2seq_trainer_accumulation_matches_large_batch(folder, rows, tmp_path, smoothing):
    """Use gradient descent, since Adam would hide a wrong scale of the gradient."""

    def train(**changes):
        options = {"max_steps": 3, "learning_rate": 0.1, "max_grad_norm": 0.0}
        options |= {"label_smoothing_factor": smoothing, "optim": "sgd"}
        trainer = stock_trainer(folder, tmp_path / "out", rows, **options, **changes)
        trainer.train()
        return trainer

    big = train(per_device_train_batch_size=12)
    parts = train(per_device_train_batch_size=3, gradient_accumulation_steps=4)
    assert logged(parts, "loss") == pytest.approx(logged(big, "loss"), rel=1e-4)
    norms = logged(big, "grad_norm")
    assert logged(parts, "grad_norm") == pytest.approx(norms, rel=1e-3)
    assert_same_weights(parts.model, big.model, atol=1e-5, rtol=1e-4)


def test_seq2seq_trainer_predict_matches_generate(folder, rows, tmp_path):
    options = {"max_steps": 2, "predict_with_generate": True}
    trainer = stock_trainer(folder, tmp_path / "out", rows, **options)
    trainer.train()
    predicted = trainer.predict(rows[:5]).predictions
    trainer.save_model(tmp_path / "saved")
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")
    for model in (trainer.model, saved):
        batch = trainer.data_collator(rows[:5])
        mask = batch["attention_mask"]
        expected = model.generate(batch["input_ids"], attention_mask=mask)
        width = expected.shape[1]
        assert predicted[:, :width].tolist() == expected.tolist()
        assert (predicted[:, width:] <= 0).all(), "the rest is padding"
        config = model.generation_config
        assert (config.num_beams, config.length_penalty_type) == (4, "wu")


def test_seq2seq_trainer_computes_metrics_of_generated_tokens(folder, rows, tmp_path):
    options = {"predict_with_generate": True, "label_smoothing_factor": 0.1}
    trainer = stock_trainer(folder, tmp_path / "out", rows, **options)
    trainer.compute_metrics = lambda outcome: {"width": outcome.predictions.ndim}
    metrics = trainer.evaluate(num_beams=2, max_new_tokens=3)
    assert metrics["eval_width"] == 2 and metrics["eval_loss"] > 0


def record_types(trainer):
    """Return a set that gets the type of the numbers that a layer multiplies."""
    types = set()
    layer = trainer.model.model.decoder.layers[0].fc1
    layer.register_forward_hook(lambda _, __, output: types.add(output.dtype))
    return types


def test_seq2seq_trainer_bf16_keeps_float32_weights(folder, rows, tmp_path):
    options = {"max_steps": 20, "bf16": True, "learning_rate": 1e-2}
    trainer = stock_trainer(folder, tmp_path / "out", rows, **options)
    types = record_types(trainer)
    trainer.train()
    assert types == {torch.bfloat16}
    weights = trainer.model.parameters()
    assert {weight.dtype for weight in weights} == {torch.float32}
    assert logged(trainer, "loss")[-1] < 0.9 * logged(trainer, "loss")[0]


# --- the batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, datasets.Dataset.from_list])
def test_epochs_of_trainer_have_every_pair_once(folder, rows, tmp_path, wrap):
    loader = budget_trainer(folder, tmp_path / "out", wrap(rows)).get_train_dataloader()
    epochs = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= 24
        assert sorted(sum(first_tokens(batches), [])) == EPOCH
        epochs.append(first_tokens(batches))
    assert epochs[0] != epochs[1]
    loader.set_epoch(0)
    assert first_tokens(loader) == epochs[0]


def test_token_budget_trainer_follows_sampler(folder, rows, tmp_path):
    seen = SeenBatches()
    options = {"num_train_epochs": 3, "seed": 5}
    trainer = budget_trainer(folder, tmp_path / "out", rows, [seen], **options)
    trainer.train()
    lengths = [column_lengths(rows, column) for column in ("input_ids", "labels")]
    sampler = TokenBudgetBatchSampler(PairLengths(*lengths), max_tokens=24, seed=5)
    planned = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in sampler:
            planned.append([10 + pair for pair in batch])
    assert seen.batches == planned
    assert trainer.state.global_step == 3 * len(sampler)


def unlabeled(rows):
    return [{"input_ids": row["input_ids"]} for row in rows]


NO_LABELS = "must have the columns .*, but 'labels' is missing"


def endless(rows):
    return datasets.Dataset.from_list(rows).to_iterable_dataset()


SMALL = "`max_tokens` must be at least .* got max_tokens=5"
REFUSED = [
    (list, {"max_tokens": 5}, SMALL),
    (unlabeled, {}, NO_LABELS),
    (lambda rows: datasets.Dataset.from_list(unlabeled(rows)), {}, NO_LABELS),
    (endless, {}, "need a dataset with a length"),
]


@pytest.mark.parametrize(("change", "options", "words"), REFUSED)
def test_trainer_refuses_data(folder, rows, tmp_path, change, options, words):
    trainer = budget_trainer(folder, tmp_path / "out", rows, max_steps=2, **options)
    trainer.train_dataset = change(rows)
    with pytest.raises(ValueError, match=words):
        trainer.train()


# --- packing --------------------------------------------------------------------------------------


def test_packed_batches_of_trainer_have_one_shape(folder, rows, tmp_path):
    options = {"packing": True, "max_tokens": 48}
    trainer = budget_trainer(folder, tmp_path / "out", rows, **options)
    loader = trainer.get_train_dataloader()
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        batches = list(loader)
        firsts = torch.cat([*map(packed_firsts, batches)]).tolist()
        assert sorted(firsts) == EPOCH
        assert 1 < len(batches) < 30
        assert len({batch["labels"].shape for batch in batches}) == 1


def test_packed_steps_of_trainer_match_joined_batches(folder, rows, tmp_path):
    """Compare the gradient of two accumulated batches with that of all their pairs, padded."""
    options = {"packing": True, "max_tokens": 200, **ONE_STEP}
    packed = budget_trainer(folder, tmp_path / "out", rows, **options)
    firsts = [*map(packed_firsts, packed.get_train_dataloader())]
    packed.train()
    pairs = [rows[first - 10] for first in torch.cat(firsts[:2]).tolist()]
    assert_is_step_of(packed, pairs, folder)


def test_packed_trainer_multiplies_in_bf16(folder, rows, tmp_path):
    """Evaluate and predict as well, which pads batches."""
    options = {"packing": True, "max_steps": 4, "bf16": True, "max_tokens": 48}
    options["predict_with_generate"] = True
    trainer = budget_trainer(folder, tmp_path / "out", rows, **options)
    types = record_types(trainer)
    trainer.train()
    assert types == {torch.bfloat16}
    assert trainer.evaluate()["eval_loss"] > 0
    assert trainer.predict(rows[:2]).predictions.ndim == 2


@pytest.mark.parametrize("packing", [False, True])
def test_packing_alone_uses_cudnn_attention(folder, rows, tmp_path, monkeypatch, packing):
    """Leave it off for batches of many shapes."""
    seen = watch_attention(monkeypatch)
    options = {"packing": packing, "max_tokens": 48, "max_steps": 2}
    budget_trainer(folder, tmp_path / "out", rows, **options).train()
    assert {enabled for _, enabled in seen} == {packing}


def test_trainer_packs_by_default_on_a_gpu_alone(folder, rows, tmp_path, monkeypatch):
    create = partial(budget_trainer, folder, tmp_path / "out", rows)
    assert create()._packed_model is None
    compiled = []
    on_gpu = seq2seq_trainer.should_pack

    def record(*_, **options):
        compiled.append(options)

    def should_pack(*arguments):
        return on_gpu(*arguments[:3], torch.device("cuda"))

    monkeypatch.setattr(seq2seq_trainer, "compile_regions", record)
    monkeypatch.setattr(seq2seq_trainer, "should_compile", lambda *_: True)
    monkeypatch.setattr(seq2seq_trainer, "should_pack", should_pack)
    assert create()._packed_model is not None
    assert compiled == [{"packing": True}]
    assert create(packing=False)._packed_model is None
    assert len(compiled) == 1


def test_trainer_refuses_packing_with_what_it_ignores(folder, rows, tmp_path):
    model, tokenizer = load(folder)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    arguments = TokenBudgetTrainingArguments(tmp_path, **QUIET | {"packing": True})
    create = partial(VanillaSeq2SeqTrainer, model, arguments)
    refused = "`packing` must be given without"
    message = f"{refused} `compute_loss_func`. Leave one of them out"
    with pytest.raises(ValueError, match=message):
        create(collator, rows, compute_loss_func=lambda *_: None)
    with pytest.raises(ValueError, match=f"{refused} a `data_collator` other than"):
        create(lambda features: features, rows)
    model.set_attn_implementation("flex_attention")
    message = "`packing` must be given with softmax attention .* got .*flex_attention"
    with pytest.raises(ValueError, match=message):
        create(collator, rows)


# --- the schedule ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given_optimizer", [False, True])
def test_learning_rate_is_equation_3(folder, rows, tmp_path, given_optimizer):
    options = {"max_steps": 12, "gradient_accumulation_steps": 2}
    trainer = budget_trainer(folder, tmp_path / "out", rows, **options)
    if given_optimizer:
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.3)
    schedule = noam_lambda(d_model=16, warmup_steps=5)
    rates = [schedule(step) for step in range(12)]
    for _ in range(2):  # the second training restarts the schedule
        trainer.train()
        assert logged(trainer, "learning_rate") == pytest.approx(rates)


def test_token_budget_trainer_uses_adam_of_paper(folder, rows, tmp_path):
    trainer = budget_trainer(folder, tmp_path / "out", rows)
    optimizer = trainer.create_optimizer()
    assert isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)
        assert group["weight_decay"] == 0.0
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.3)
    options = {"optimizers": (optimizer, None)}
    trainer = budget_trainer(folder, tmp_path / "out", rows, **options)
    assert trainer.create_optimizer() is optimizer


def test_token_budget_trainer_keeps_schedules_of_library(folder, rows, tmp_path):
    options = {"paper_schedule": False, "learning_rate": 0.5}
    options |= {"warmup_steps": 0, "lr_scheduler_type": "constant"}
    trainer = budget_trainer(folder, tmp_path / "out", rows, max_steps=3, **options)
    trainer.train()
    assert logged(trainer, "learning_rate") == [0.5] * 3


WITHOUT_EFFECT = "has no effect beside `paper_schedule`, got"
SCALE_ALONE = {"paper_schedule": False, "learning_rate_scale": 2.0}
IGNORED = [
    ({"max_tokens": 0}, "`max_tokens` must be at least 1, got 0"),
    ({"warmup_steps": 0}, "`warmup_steps` must be above 0 .* got 0"),
    ({"learning_rate": 3e-4}, f"`learning_rate` {WITHOUT_EFFECT} 0.0003"),
    ({"lr_scheduler_type": "cosine"}, f"`lr_scheduler_type` {WITHOUT_EFFECT} .*cosine"),
    (SCALE_ALONE, "`learning_rate_scale` belongs to .* got 2.0"),
    ({"auto_find_batch_size": True}, "Lower `max_tokens` instead"),
]


@pytest.mark.parametrize(("changes", "words"), IGNORED)
def test_token_budget_arguments_refuse_ignored_values(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        TokenBudgetTrainingArguments(tmp_path, **changes)


def test_token_budget_trainer_refuses_stock_arguments(folder, rows, tmp_path):
    model, _ = load(folder)
    stock = Seq2SeqTrainingArguments(tmp_path, use_cpu=True)
    message = "must be `TokenBudgetTrainingArguments`.* got Seq2SeqTrainingArguments"
    with pytest.raises(ValueError, match=message):
        VanillaSeq2SeqTrainer(model, stock, train_dataset=rows)


# -------------------------------------------------------------------------------------------
# accumulation and resuming


def test_accumulation_of_trainer_matches_joined_batches(folder, rows, tmp_path):
    """Compare two accumulated batches with both joined by hand."""
    seen = SeenBatches()
    trainer = budget_trainer(folder, tmp_path / "out", rows, [seen], **ONE_STEP)
    trainer.train()
    firsts = sum(seen.batches, [])
    assert_is_step_of(trainer, [rows[first - 10] for first in firsts], folder)


STOPS = [rare("inside the first epoch"), rare("at its end"), "inside the second"]


@pytest.mark.parametrize("dropout", [0.1, rare(0.0)])
@pytest.mark.parametrize("stop", STOPS)
def test_trainer_resumes_bit_for_bit(folder, rows, tmp_path, stop, dropout):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dropout": dropout}))
    create = partial(budget_trainer, folder)
    updates = len(create(tmp_path / "out", rows).get_train_dataloader())
    common = {"max_steps": 2 * updates + 2, "save_strategy": "steps"}
    common |= {"save_steps": 1, "gradient_accumulation_steps": 2}
    trainer = create(tmp_path / "out", rows, **common)
    updates = len(trainer.get_train_dataloader()) // 2
    k = {"inside the first epoch": 2, "at its end": updates}.get(stop, updates + 1)
    seen, rest = SeenBatches(), SeenBatches()
    straight = create(tmp_path / "out", rows, [seen], **common)
    straight.train()
    resumed = create(tmp_path / "again", rows, [rest], **common)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{k}"))
    assert rest.batches == seen.batches[2 * k :]
    assert logged(resumed, "learning_rate") == logged(straight, "learning_rate")
    assert_same_weights(resumed.model, straight.model, atol=0.0, rtol=0.0)


def without_padding(row):
    return [token for token in row if token > 0]


@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_trainer_predicts_the_tokens_of_generate(folder, rows, tmp_path, monkeypatch, kind):
    """Load the best model as well, without a warning."""
    engines, find = [], engine_pool.EnginePool.find

    def record(self, *arguments, **options):
        engines.append(find(self, *arguments, **options))
        return engines[-1]

    monkeypatch.setattr(engine_pool.EnginePool, "find", record)
    options = {"predict_with_generate": True, "generation_max_length": 12}
    options |= {"generation_num_beams": 2, "eval_strategy": "steps", "eval_steps": 1}
    options |= {"save_strategy": "steps", "save_steps": 1}
    options |= {"max_steps": 2, "load_best_model_at_end": True}
    create = {"stock": partial(stock_trainer, learning_rate=0.01), "ours": budget_trainer}
    trainer = create[kind](folder, tmp_path / "run", rows, **options)
    trainer.train()
    predictions = trainer.predict(rows[:6]).predictions
    engines_of_predictions = {id(engine) for engine in engines if engine is not None}
    assert len(engines_of_predictions) == {"stock": 0, "ours": 1}[kind]
    model = trainer.model.eval()
    sources = [{"input_ids": row["input_ids"]} for row in rows[:6]]
    batch = trainer.data_collator(sources)
    expected = model.generate(**batch, max_length=12, num_beams=2)
    for row, tokens in zip(predictions.tolist(), expected.tolist(), strict=True):
        assert without_padding(row) == without_padding(tokens)
    again = trainer.predict(rows[:6], num_beams=1, max_new_tokens=3).predictions
    assert again.shape[1] >= 4 and None not in engines
