"""Training on a device: a resumed run is bit-equal, and fp16 scales its losses.

The text is the demo corpus.
"""

import os

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence

from tests.devices import DEVICE, needs_gpu
from tests.tiny import TINY_SIZES
from tests.train_states import packed_micro_batch, parameters_of, tiny_train_state
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.data.batches import IGNORED_LABEL, MicroBatch, TokenCounts
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.training.averaging import load_weights
from vanilla_transformer.training.checkpoint import (
    load_model_weights,
    load_resume_state,
    save_checkpoint,
)
from vanilla_transformer.training.distributed import create_accelerator
from vanilla_transformer.training.graphed_train_step import capture_steps
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_state import TrainState
from vanilla_transformer.training.train_step import compile_train_step, train_step

# For products that are the same in every run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
PAIRS = read_demo_corpus("train", 64)
# Types of products that the device can train with.
every_precision = pytest.mark.parametrize(
    "precision", ["no", "bf16", pytest.param("fp16", marks=needs_gpu)]
)


@pytest.fixture(autouse=True)
def _deterministic():
    """Let kernels give the same bits in every run, and Accelerate forget the options of the last
    one.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def tokenizer():
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    words = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    backend.train_from_iterator([side for pair in PAIRS for side in pair], words)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return VanillaTransformerTokenizer(tokenizer_object=backend, **names)


def micro_batches(tokenizer, step):
    """Return two micro-batches of 8 pairs for a step."""
    columns = []
    for first in (16 * step, 16 * step + 8):
        numbers = np.arange(first, first + 8) % len(PAIRS)
        tensors = padded(tokenizer, [PAIRS[number] for number in numbers])
        tokens = [int((tensors[side] > 0).sum()) for side in ("input_ids", "labels")]
        columns.append((tensors, numbers, TokenCounts(*tokens, padded_tokens=1000)))
    total = sum(counts.target_tokens for *_, counts in columns)
    return [MicroBatch(*column, total) for column in columns]


def padded(tokenizer, pairs):
    sources, targets = (encoded(tokenizer, side) for side in zip(*pairs, strict=True))
    ids = pad_sequence(sources, batch_first=True)
    labels = pad_sequence(targets, batch_first=True, padding_value=IGNORED_LABEL)
    return {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": labels}


def encoded(tokenizer, texts):
    rows = tokenizer([*texts])["input_ids"]
    return [torch.tensor([*ids, tokenizer.eos_token_id]) for ids in rows]


def new_state(tokenizer, precision, weights=None):
    """Return a run with dropout and a moving average, with the weights of a checkpoint."""
    files = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
    flags = [*files, "--warmup_steps", "20"]  # nothing reads the files
    flags += ["--packing", "false"]  # batches have many shapes
    recipe = parse_recipe([*flags, "--mixed_precision", precision, "--ema_decay", "0.9"])
    torch.manual_seed(0)
    sizes = TINY_SIZES | {"d_model": 32, "vocab_size": len(tokenizer)}
    config = VanillaTransformerConfig(**sizes, dropout=0.1)
    model = VanillaTransformerForConditionalGeneration(config)
    if weights is not None:
        load_weights(model, weights)
    state = TrainState(recipe, model, tokenizer, create_accelerator(recipe), {})
    state.wrapped_model.train()
    return state


def tensors_of(state):
    """Return weights, moments of Adam and the moving average, on the CPU."""
    resume = state.resume_state()
    tensors = {}
    for name, weight in state.unwrapped_model.named_parameters():
        tensors[name] = weight.detach().cpu().clone()
    for name, tensor in resume.optimizer.items():
        tensors[f"adam.{name}"] = tensor
    return tensors | resume.ema


def scale_of(state):
    scaler = state.accelerator.scaler
    return scaler and scaler.state_dict()


def run(state, tokenizer, steps):
    for step in steps:
        train_step(state, micro_batches(tokenizer, step))


@every_precision
def test_resumed_run_is_bit_equal(precision, tokenizer, tmp_path):
    state = new_state(tokenizer, precision)
    assert state.unwrapped_model.device.type == DEVICE.type
    run(state, tokenizer, range(3))
    folder = tmp_path / "checkpoint-3"
    save_checkpoint(state.unwrapped_model, tokenizer, state.resume_state(), folder)
    run(state, tokenizer, range(3, 6))
    expected, scale = tensors_of(state), scale_of(state)
    AcceleratorState._reset_state(reset_partial_state=True)
    resumed = new_state(tokenizer, precision, load_model_weights(folder))
    resumed.load_resume_state(load_resume_state(folder, resumed.resume_state()), full=True)
    assert resumed.step == 3
    run(resumed, tokenizer, range(3, 6))
    tensors = tensors_of(resumed)
    assert tensors.keys() == expected.keys()
    assert resumed.step == 6
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name
    assert scale_of(resumed) == scale


@every_precision
def test_train_step_learns(precision, tokenizer):
    state = new_state(tokenizer, precision)
    losses = []
    for step in range(30):
        norm = train_step(state, micro_batches(tokenizer, step))
        losses.append(state.measure_steps(norm, epoch=0.0)["loss"])
    assert losses[-1] < 0.9 * losses[0]


@needs_gpu
@pytest.mark.parametrize("precision", ["no", "bf16"])  # a scaler reads whether one overflows
def test_train_step_never_waits_for_the_gpu(precision, tokenizer):
    state = new_state(tokenizer, precision)
    run(state, tokenizer, range(2))
    steps = [micro_batches(tokenizer, step) for step in range(2, 5)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batches in steps:
            train_step(state, batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    state.read_steps()
    assert state.step == 5


@needs_gpu
def test_fp16_keeps_the_weights_at_an_overflow(tokenizer):
    state = new_state(tokenizer, "fp16")
    run(state, tokenizer, range(2))
    before = [weight.detach().clone() for weight in state.unwrapped_model.parameters()]
    scaler = state.accelerator.scaler
    scaler.update(2.0**100)  # with which gradients overflow
    train_step(state, micro_batches(tokenizer, 2))
    assert scaler.get_scale() < 2.0**100
    state.read_steps()  # which finds no loss that is not finite
    for weight, old in zip(state.unwrapped_model.parameters(), before, strict=True):
        assert torch.equal(weight, old)


@needs_gpu
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema_decay": 0.9, "max_grad_norm": 0.5},
        {"r_drop_weight": 5.0},
        {"train_alignments": "links", "alignment_layer": 0},
    ],
    ids=str,
)
def test_captured_steps_train_as_others_do(tmp_path, changes):
    """Both runs are compiled and have learning rates of 32 bits."""
    runs = []
    for captured in (False, True):
        AcceleratorState._reset_state(reset_partial_state=True)
        torch.manual_seed(0)
        accelerator = Accelerator(mixed_precision="bf16")
        options = {"packing": True, "compile": True, "dropout": 0.1} | changes
        state = tiny_train_state(tmp_path, accelerator, **options)
        batches = []
        for number in range(20):
            batch = packed_micro_batch([[5, 3 + number % 2], [4, 2, 1]], length=16)
            if "train_alignments" in changes:
                batch.tensors["link_places"] = torch.tensor([0, 17, 0])
                batch.tensors["link_weights"] = torch.tensor([1.0, 0.5, 0.0])
            batches.append(batch)
        compile_train_step(state, [[batches[0]]])
        if captured:
            capture_steps(state)
            assert state.graphs is not None
        norms = []
        for batch in batches:
            for group in state.optimizer.param_groups:
                group["lr"] = float(torch.tensor(group["lr"]))
            norms.append(train_step(state, [batch, batches[0]]))
        state.read_steps()
        averages = [] if state.ema is None else [*state.ema.state_dict().values()]
        runs.append(([float(norm) for norm in norms], [*parameters_of(state), *averages]))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-3)
    for ours, theirs in zip(runs[0][1], runs[1][1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
