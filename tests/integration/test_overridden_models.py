"""An engine decodes models that override nothing, and notices every change of their weights."""

import logging
from functools import partial

import pytest
import torch
from peft import (
    AdaLoraConfig,
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    MultitaskPromptTuningConfig,
    OFTConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.tiny import tiny_causal_lm, tiny_model
from tests.tiny_engines import EndedWorker, compile_aside
from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.decoding.engine.custom_generate import find_engine
from vanilla_transformer.decoding.engine.engine_pool import weight_sums
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoder, VanillaTransformerEncoder

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
PROMPT = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
OPTIONS = {"max_new_tokens": 8, "min_new_tokens": 8, "num_beams": 2}


def by_engine_and_library(model, base=None, **inputs):
    """Return the tokens of `generate()` as a user calls it, and with the engine switched off."""
    inputs = inputs or {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long()}
    found, base = model.generate(**inputs, **OPTIONS), model if base is None else base
    base.use_engine = False
    expected = model.generate(**inputs, **OPTIONS)
    base.use_engine = True
    return found.tolist(), expected.tolist()


def is_decoded_by_engine(model):
    return find_engine(model, [OPTIONS, vars(model.generation_config)]) is not None


# --- PEFT ---

LINEAR = {"task_type": "SEQ_2_SEQ_LM", "target_modules": ["q_proj", "v_proj", "fc1"]}
VIRTUAL = {"task_type": "SEQ_2_SEQ_LM", "num_virtual_tokens": 3}
METHODS = {
    "LoRA": lambda: LoraConfig(r=2, init_lora_weights=False, **LINEAR),
    "LoRA of feed-forward layers": lambda: LoraConfig(
        r=2, init_lora_weights=False, task_type="SEQ_2_SEQ_LM", target_modules=["fc1", "fc2", "out_proj"]
    ),
    "DoRA": lambda: LoraConfig(r=2, init_lora_weights=False, use_dora=True, **LINEAR),
    "AdaLoRA": lambda: AdaLoraConfig(total_step=10, tinit=1, tfinal=1, init_lora_weights=False, **LINEAR),
    "IA3": lambda: IA3Config(feedforward_modules=["fc1"], init_ia3_weights=False, **LINEAR),
    "LoHa": lambda: LoHaConfig(r=2, init_weights=False, **LINEAR),
    "LoKr": lambda: LoKrConfig(r=2, init_weights=False, **LINEAR),
    "OFT": lambda: OFTConfig(r=0, oft_block_size=4, init_weights=False, **LINEAR),
    "VeRA": lambda: VeraConfig(r=2, init_weights=False, task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"]),
    "new tokens": lambda: LoraConfig(r=2, trainable_token_indices=[5, 6], init_lora_weights=False, **LINEAR),
    "prefix tuning": lambda: PrefixTuningConfig(**VIRTUAL),
    "prompt tuning": lambda: PromptTuningConfig(**VIRTUAL),
    "P-tuning": lambda: PromptEncoderConfig(encoder_hidden_size=8, **VIRTUAL),
    "multitask prompt tuning": lambda: MultitaskPromptTuningConfig(num_tasks=2, num_ranks=1, **VIRTUAL),
}


@pytest.mark.filterwarnings("ignore:.*`past_key_values`:FutureWarning")
@pytest.mark.parametrize("method", METHODS)
def test_generate_follows_each_method_of_peft(method):
    base = tiny_model()
    plain = base.generate(SOURCE, **OPTIONS).tolist()
    torch.manual_seed(0)
    model = get_peft_model(base, METHODS[method]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 2.0)
    inputs = {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long()}
    if "multitask" in method:
        inputs["task_ids"] = torch.tensor([0, 1])
    found, expected = by_engine_and_library(model, base, **inputs)
    assert found == expected != plain


def test_prefix_tuning_decodes_from_the_prefix_and_the_base_model_is_fast_again(tmp_path):
    base = tiny_model()
    plain = base.generate(SOURCE, **OPTIONS).tolist()
    torch.manual_seed(0)
    model = get_peft_model(base, METHODS["prefix tuning"]()).eval()
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.normal_(0, 2.0)
    inputs, greedy = (
        {"input_ids": SOURCE, "attention_mask": (SOURCE != 0).long()},
        {"num_beams": 1, "max_new_tokens": 3},
    )
    with pytest.warns(FutureWarning, match="`past_key_values`"):  # PEFT's
        found = model.generate(**inputs, **greedy)
    ids = found[:, :1]
    for _ in range(3):  # greedy search by hand
        logits = model(**inputs, decoder_input_ids=ids).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    assert ids[0].tolist() == found[0].tolist()
    assert base.generate(SOURCE, **OPTIONS).tolist() == plain and is_decoded_by_engine(base)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(tiny_model(), tmp_path)
    assert torch.equal(again.generate(**inputs, **greedy), found)


def test_new_tokens_of_peft_are_trained():
    torch.manual_seed(0)
    model = get_peft_model(tiny_model(), METHODS["new tokens"]())
    loss = model(input_ids=SOURCE, labels=torch.tensor([[5, 6, 2], [6, 2, -100]])).loss
    loss.backward()
    trained = [name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()]
    assert any("trainable_tokens_delta" in name for name in trained)


# --- Subclasses, instances, hooks ---


class OtherInputs(VanillaTransformerForConditionalGeneration):
    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        return inputs | {"decoder_input_ids": inputs["decoder_input_ids"].clamp(max=40)}


class OtherProcessors(VanillaTransformerForConditionalGeneration):
    def _get_logits_processor(self, *args, **kwargs):
        processors = super()._get_logits_processor(*args, **kwargs)
        processors.append(lambda ids, scores: scores.roll(1, dims=-1))
        return processors


def rolling(forward, field):
    """Return a `forward` whose output has one field rolled along its last dimension."""

    def rolled(*args, **kwargs):
        outputs = forward(*args, **kwargs)
        outputs[field] = outputs[field].roll(1, dims=-1)
        return outputs

    return rolled


class OtherForward(VanillaTransformerForConditionalGeneration):
    forward = rolling(VanillaTransformerForConditionalGeneration.forward, "logits")


class Mixin:
    forward = rolling(VanillaTransformerForConditionalGeneration.forward, "logits")


class Mixed(Mixin, VanillaTransformerForConditionalGeneration):
    pass


class OnlyMore(VanillaTransformerForConditionalGeneration):
    def translate(self, ids):
        return self.generate(ids, **OPTIONS)


class OtherCausalLM(VanillaTransformerForCausalLM):
    forward = rolling(VanillaTransformerForCausalLM.forward, "logits")


def as_class(kind, model):
    model.__class__ = kind
    return model


@pytest.mark.parametrize("kind", [OtherForward, OtherInputs, OtherProcessors, Mixed])
def test_generate_follows_methods_of_subclasses(kind):
    model = as_class(kind, tiny_model())
    found, expected = by_engine_and_library(model)
    assert found == expected and not is_decoded_by_engine(model)
    assert found != tiny_model().generate(SOURCE, **OPTIONS).tolist()


def test_generate_follows_the_forward_of_a_causal_model():
    model = as_class(OtherCausalLM, tiny_causal_lm())
    found, expected = by_engine_and_library(model, input_ids=PROMPT)
    assert found == expected != tiny_causal_lm().generate(PROMPT, **OPTIONS).tolist()


def test_subclass_that_overrides_nothing_is_decoded_by_the_engine():
    model = as_class(OnlyMore, tiny_model())
    assert is_decoded_by_engine(model)
    assert model.translate(SOURCE).tolist() == tiny_model().generate(SOURCE, **OPTIONS).tolist()


def roll_output(module, field):
    module.forward = rolling(module.forward, field)


class OtherEncoder(VanillaTransformerEncoder):
    forward = rolling(VanillaTransformerEncoder.forward, "last_hidden_state")


class OtherDecoder(VanillaTransformerDecoder):
    forward = rolling(VanillaTransformerDecoder.forward, "last_hidden_state")


class Rolled(nn.Linear):
    def forward(self, states):
        return 9 * super().forward(states).roll(1, dims=-1)


def roll(model, place):
    model.get_submodule(place).__class__ = Rolled


def give_inputs(model):
    own = model.prepare_inputs_for_generation

    def prepare(input_ids, **kwargs):
        inputs = own(input_ids, **kwargs)
        return inputs | {"decoder_input_ids": inputs["decoder_input_ids"].clamp(max=40)}

    model.prepare_inputs_for_generation = prepare


def hook(module):
    module.register_forward_hook(lambda module, args, output: output.roll(1, dims=-1))


CHANGES = {
    "forward of the model": lambda model: roll_output(model, "logits"),
    "forward of the decoder": lambda model: roll_output(model.get_decoder(), "last_hidden_state"),
    "forward of the encoder": lambda model: roll_output(model.get_encoder(), "last_hidden_state"),
    "class of the decoder": lambda model: as_class(OtherDecoder, model.get_decoder()),
    "class of the encoder": lambda model: as_class(OtherEncoder, model.get_encoder()),
    "inputs of a step": give_inputs,
    "hook on the decoder": lambda model: hook(model.model.decoder.layers[0].fc1),
    "hook on the encoder": lambda model: hook(model.model.encoder.layers[0].fc1),
    "hook on the projection": lambda model: hook(model.lm_head),
    "module of the decoder": lambda model: roll(model, "model.decoder.layers.0.fc1"),
    "projection of the decoder": lambda model: roll(model, "model.decoder.layers.0.self_attn.q_proj"),
    "module of the encoder": lambda model: roll(model, "model.encoder.layers.0.fc2"),
    "weight norm, decoder": lambda model: renormalize(model.model.decoder.layers[0].fc1),
    "weight norm, attention": lambda model: renormalize(model.model.decoder.layers[0].self_attn.k_proj),
    "weight norm, encoder": lambda model: renormalize(model.model.encoder.layers[0].fc1),
}


def renormalize(linear):
    weight_norm(linear)
    with torch.no_grad():
        linear.parametrizations.weight.original0.mul_(-9.0)


@pytest.mark.parametrize("change", CHANGES)
def test_generate_follows_changes_of_a_model(change):
    model = tiny_model()
    plain = model.generate(SOURCE, **OPTIONS).tolist()  # an engine holds the old weights
    CHANGES[change](model)
    found, expected = by_engine_and_library(model)
    assert found == expected != plain


# --- Weights ---


def swap_rows(weight):
    weight.data[[5, 6, 7, 8]] = weight.data[[8, 7, 6, 5]]


def swap_columns(weight):
    weight.data[:, [0, 1]] = weight.data[:, [1, 0]]


EDITS = {
    "row": lambda weight: weight.data.__setitem__(3, 1.5),
    "value": lambda weight: weight.data.view(-1).__setitem__(-1, 40.0),
    "mask": lambda weight: weight.data.mul_(
        torch.rand(weight.shape, generator=torch.Generator().manual_seed(1)) < 0.3
    ),
    "rows exchanged": swap_rows,
    "columns exchanged": swap_columns,
    "numpy": lambda weight: weight.data.numpy().__imul__(-1.0),
    "replaced": lambda weight: setattr(weight, "data", weight.data.flip(0)),
}


@pytest.mark.parametrize(
    ("name", "edit"),
    [*(("model.decoder.embed_tokens.weight", edit) for edit in EDITS), ("model.decoder.layers.0.fc1.weight", "row")],
)
def test_engine_notices_values_that_are_written_to_the_data_of_a_weight(name, edit):
    model = tiny_model()
    weight = model.get_parameter(name)
    model.generate(SOURCE, **OPTIONS)
    before = weight.detach().clone()
    EDITS[edit](weight)
    assert not torch.equal(before, weight)
    found, expected = by_engine_and_library(model)
    assert found == expected


@pytest.mark.parametrize("shape", [(300, 16), (5, 7), (1021, 509), (3,), (4078,), (4, 2039), (511, 513)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weight_sums_change_with_every_value_and_its_place(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator).to(dtype)
    others = [torch.randn(3, generator=generator), torch.randn(17, dtype=torch.float64, generator=generator)]
    before = weight_sums([*others, weight])
    flat = weight.view(-1)
    for place in {0, len(flat) // 2, len(flat) - 1}:
        old = flat[place].clone()
        flat[place] = torch.nextafter(old, torch.tensor(9.0, dtype=dtype))
        assert not torch.equal(weight_sums([*others, weight]), before)
        flat[place] = old
        assert torch.equal(weight_sums([*others, weight]), before)
    if len(flat) > 1:
        flat[[0, -1]] = flat[[-1, 0]].clone()
        assert not torch.equal(weight_sums([*others, weight]), before)


def test_weight_sums_read_weights_that_begin_at_any_place():
    values = torch.arange(9000, dtype=torch.float32)
    assert not torch.equal(weight_sums([values[1:8000]]), weight_sums([values[2:8001]]))


# --- Compiling aside ---


def test_hooks_of_the_library_do_not_stop_compiling_aside(monkeypatch, caplog):
    model = tiny_model()
    model(SOURCE, decoder_input_ids=SOURCE, output_attentions=True)  # installs hooks that cannot be pickled
    written = {}

    class Process:
        pid = None

        def __init__(self, command, stdin, **options):
            written["content"] = stdin.read()

        def poll(self):
            return 0

    monkeypatch.setattr(compiled_steps.subprocess, "Popen", Process)
    monkeypatch.delattr(compiled_steps.os, "sched_setaffinity", raising=False)
    engine = find_engine(model, [OPTIONS, vars(model.generation_config)])
    with caplog.at_level(logging.WARNING):
        engine.steps._compile_elsewhere(compiled_steps.MANY_ROWS)
    assert written["content"] and "Compiling failed" not in caplog.text
    assert any(module._forward_hooks for module in model.modules())  # of the model itself they stay


def test_the_switch_to_compiled_steps_is_one_line_and_known_to_the_pipeline(tiny_tokenizer, monkeypatch):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer)
    assert not translate.is_compiled
    translate(["A man.", "Two dogs."])
    (engine,) = translate._engines._engines.values()
    said = []
    monkeypatch.setattr(compiled_steps.logger, "warning_once", lambda text: text in said or said.append(text))
    monkeypatch.setattr(compiled_steps, "_start_worker", EndedWorker)
    monkeypatch.setattr(engine.steps, "_load", lambda kind: None)
    compile_aside(engine)
    assert said == [] and not translate.is_compiled  # the package cannot be loaded
    monkeypatch.setattr(engine.steps, "_load", lambda kind: engine.steps.step)
    compile_aside(engine)
    assert said == ["Decoding continues with compiled steps, with which later runs begin."] and translate.is_compiled


def fail_to_start(*_):
    raise OSError("no\nroom")


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        (fail_to_start, "OSError: no room"),
        (partial(EndedWorker, returncode=1, errors=b"Error:\nno room\n"), "no room"),
    ],
)
def test_failure_of_compiling_aside_is_one_line(monkeypatch, worker, reason):
    model = tiny_model()
    engine = find_engine(model, [OPTIONS, vars(model.generation_config)])

    monkeypatch.setattr(compiled_steps, "_start_worker", worker)
    said = []
    monkeypatch.setattr(compiled_steps.logger, "warning_once", said.append)
    compile_aside(engine)
    assert {*said} == {f"Compiling failed, so decoding is not compiled: {reason}."}
