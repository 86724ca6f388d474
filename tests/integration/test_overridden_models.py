"""The pipeline decodes by its engine only what overrides nothing, and notices changes of
weights.
"""

import copy
import pickle

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.utils.parametrizations import weight_norm

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline, VanillaTransformerForConditionalGeneration
from vanilla_transformer.evaluation.scores import validation_scores
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerDecoder,
    VanillaTransformerEncoder,
)
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedPipeline

TEXTS = ["A man is sleeping.", "Two dogs run across the grass."]
OPTIONS = {"max_new_tokens": 8, "min_new_tokens": 8, "num_beams": 2}


def pipeline_of(model, tokenizer):
    return TranslationPipeline(model, tokenizer, compile=False)


def by_generate(model, tokenizer):
    return CarriedPipeline(model, tokenizer)(TEXTS, **OPTIONS)


def has_engine(translate):
    return len(translate._engines._engines) > 0


# --- Subclasses, instances, hooks, adapters ---


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


class OtherInputs(VanillaTransformerForConditionalGeneration):
    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        return inputs | {"decoder_input_ids": inputs["decoder_input_ids"].clamp(max=40)}


class OtherProcessors(VanillaTransformerForConditionalGeneration):
    def _get_logits_processor(self, *args, **kwargs):
        processors = super()._get_logits_processor(*args, **kwargs)
        processors.append(lambda ids, scores: scores.roll(1, dims=-1))
        return processors


class OtherEncoder(VanillaTransformerEncoder):
    forward = rolling(VanillaTransformerEncoder.forward, "last_hidden_state")


class OtherDecoder(VanillaTransformerDecoder):
    forward = rolling(VanillaTransformerDecoder.forward, "last_hidden_state")


class Rolled(nn.Linear):
    def forward(self, states):
        return 9 * super().forward(states).roll(1, dims=-1)


def as_class(kind, module):
    module.__class__ = kind


def roll_output(module, field):
    module.forward = rolling(module.forward, field)


def give_inputs(model):
    prepare = model.prepare_inputs_for_generation

    def prepare_others(input_ids, **kwargs):
        inputs = prepare(input_ids, **kwargs)
        return inputs | {"decoder_input_ids": inputs["decoder_input_ids"].clamp(max=40)}

    model.prepare_inputs_for_generation = prepare_others


def hook(module):
    module.register_forward_hook(lambda module, args, output: output.roll(1, dims=-1))


def renormalize(linear):
    weight_norm(linear)
    with torch.no_grad():
        linear.parametrizations.weight.original0.mul_(-9.0)


LORA = {"r": 2, "init_lora_weights": False, "task_type": "SEQ_2_SEQ_LM"}


def adapt(model, *modules):
    torch.manual_seed(0)
    adapter = LoraConfig(target_modules=[*modules], lora_alpha=64, **LORA)
    get_peft_model(model, adapter).eval()


def decoder_layer(model):
    return model.model.decoder.layers[0]


def encoder_layer(model):
    return model.model.encoder.layers[0]


STATES = "last_hidden_state"


CHANGES = {
    "subclass": lambda model: as_class(OtherForward, model),
    "mixin": lambda model: as_class(Mixed, model),
    "inputs of a subclass": lambda model: as_class(OtherInputs, model),
    "processors of a subclass": lambda model: as_class(OtherProcessors, model),
    "forward of the model": lambda model: roll_output(model, "logits"),
    "forward of the decoder": lambda model: roll_output(model.get_decoder(), STATES),
    "forward of the encoder": lambda model: roll_output(model.get_encoder(), STATES),
    "class of the decoder": lambda model: as_class(OtherDecoder, model.get_decoder()),
    "class of the encoder": lambda model: as_class(OtherEncoder, model.get_encoder()),
    "inputs of a step": give_inputs,
    "hook on the decoder": lambda model: hook(decoder_layer(model).fc1),
    "hook on the encoder": lambda model: hook(encoder_layer(model).fc1),
    "hook on the projection": lambda model: hook(model.lm_head),
    "module of the decoder": lambda model: as_class(Rolled, decoder_layer(model).fc1),
    "projection of the decoder": lambda model: as_class(
        Rolled, decoder_layer(model).self_attn.q_proj
    ),
    "module of the encoder": lambda model: as_class(Rolled, encoder_layer(model).fc2),
    "weight norm, decoder": lambda model: renormalize(decoder_layer(model).fc1),
    "weight norm, attention": lambda model: renormalize(decoder_layer(model).self_attn.k_proj),
    "weight norm, encoder": lambda model: renormalize(encoder_layer(model).fc1),
    "LoRA": lambda model: adapt(model, "q_proj", "v_proj"),
    "LoRA of feed-forward layers": lambda model: adapt(model, "fc1", "fc2", "out_proj"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_pipeline_follows_changes_of_a_model(change, tiny_tokenizer):
    model = tiny_model()
    called = pipeline_of(model, tiny_tokenizer)
    plain = called(TEXTS, **OPTIONS)
    CHANGES[change](model)
    expected = by_generate(model, tiny_tokenizer)
    assert pipeline_of(model, tiny_tokenizer)(TEXTS, **OPTIONS) == expected != plain
    called.refresh()
    assert called(TEXTS, **OPTIONS) == expected


@pytest.mark.parametrize("is_changed", [True, False])
def test_validation_says_that_no_engine_decodes(is_changed, tiny_tokenizer, caplog):
    model = tiny_model()
    if is_changed:
        CHANGES["class of the decoder"](model)
    with caplog.at_level("INFO"):
        pairs = [("A man.", "A man.")] * 3
        validation_scores(model, tiny_tokenizer, pairs, max_new_tokens=2)
    said = "Validation: `generate()` translates 3 sentences, as no engine decodes this Vanilla"
    assert any(message.startswith(said) for message in caplog.messages) == is_changed


class OnlyMore(VanillaTransformerForConditionalGeneration):
    def translate(self, ids):
        return self.generate(ids, **OPTIONS)


def test_subclass_that_overrides_nothing_is_decoded_by_the_engine(tiny_tokenizer):
    model = tiny_model()
    as_class(OnlyMore, model)
    translate = pipeline_of(model, tiny_tokenizer)
    assert translate(TEXTS, **OPTIONS) == by_generate(tiny_model(), tiny_tokenizer)
    assert has_engine(translate)


def test_hooks_of_the_library_leave_the_model_to_the_engine(tiny_tokenizer):
    """Compute under autocast as well."""
    model, source = tiny_model(), torch.tensor([[5, 6, 7, 2]])
    # This leaves hooks that record outputs.
    model(source, decoder_input_ids=source, output_attentions=True)
    translate = pipeline_of(model, tiny_tokenizer)
    expected = by_generate(model, tiny_tokenizer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert translate(TEXTS, **OPTIONS) == expected  # in the precision of the engine
    assert has_engine(translate)


def test_global_hooks_and_training_mode(tiny_tokenizer):
    model, calls = tiny_model(), []
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": 1}

    def count(module, _):
        calls.append(module is model)

    handle = register_module_forward_pre_hook(count)
    try:
        pipeline_of(model, tiny_tokenizer)("A man.", **options)
    finally:
        handle.remove()
    assert sum(calls) == 4
    translate = pipeline_of(model.train(), tiny_tokenizer)
    assert translate(TEXTS, **OPTIONS) == by_generate(tiny_model(), tiny_tokenizer)
    assert has_engine(translate) and model.training


@pytest.mark.filterwarnings("ignore:.*`past_key_values`:FutureWarning")
def test_prefix_tuning_leaves_the_base_model_to_the_engine(tiny_tokenizer):
    base = tiny_model()
    plain = by_generate(base, tiny_tokenizer)
    config = PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3)
    model = get_peft_model(base, config).eval()
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.normal_(0, 2.0)
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8, 2]])}
    inputs["attention_mask"] = torch.ones(1, 5).long()
    tokens = model.generate(**inputs, num_beams=1, max_new_tokens=3)
    ids = tokens[:, :1]
    for _ in range(3):  # greedy search by hand
        logits = model(**inputs, decoder_input_ids=ids).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    assert ids[0].tolist() == tokens[0].tolist()
    translate = pipeline_of(base, tiny_tokenizer)
    assert translate(TEXTS, **OPTIONS) == plain and has_engine(translate)


# --- Weights ---


def step(model, **options):
    inputs = {"input_ids": torch.tensor([[5, 6, 2]]), "labels": torch.tensor([[7, 8, 2]])}
    model(**inputs).loss.backward()
    torch.optim.AdamW(model.parameters(), lr=0.3, **options).step()


def merge(model):
    adapter = LoraConfig(target_modules=["q_proj"], **LORA)
    torch.manual_seed(0)
    get_peft_model(model, adapter).merge_and_unload()


def in_inference_mode(model):
    with torch.inference_mode():
        model.lm_head.weight.neg_()


NOTICED = {
    "optimizer": step,
    "fused optimizer": lambda model: step(model, fused=True),
    "one tensor at a time": lambda model: step(model, foreach=False),
    "load_state_dict": lambda model: model.load_state_dict(tiny_model(seed=1).state_dict()),
    "assigned": lambda model: model.load_state_dict(tiny_model(seed=1).state_dict(), assign=True),
    "copy_": lambda model: model.lm_head.weight.detach().copy_(-model.lm_head.weight),
    "inference mode": in_inference_mode,
    "resized": lambda model: model.resize_token_embeddings(
        model.config.vocab_size + 3, mean_resizing=False
    ),
    "to": lambda model: model.to(torch.bfloat16),
    "to and back": lambda model: model.to(torch.bfloat16).to(torch.float32),
    "merged": merge,
    "replaced module": lambda model: setattr(model, "lm_head", tiny_model(seed=1).lm_head),
    "replaced weight": lambda model: setattr(
        model.lm_head, "weight", nn.Parameter(-model.lm_head.weight.detach())
    ),
    "replaced data": lambda model: setattr(
        model.lm_head.weight, "data", -model.lm_head.weight.data
    ),
}


@pytest.mark.parametrize("change", NOTICED)
def test_pipeline_notices_changes_of_weights(change, tiny_tokenizer):
    model = tiny_model()
    translate = pipeline_of(model, tiny_tokenizer)
    translate(TEXTS, **OPTIONS)
    (before,) = translate._engines._engines.values()
    assert translate(TEXTS, **OPTIONS)
    assert [*translate._engines._engines.values()] == [before]
    NOTICED[change](model)
    fresh = pipeline_of(model, tiny_tokenizer)
    assert translate(TEXTS, **OPTIONS) == fresh(TEXTS, **OPTIONS)
    assert before not in translate._engines._engines.values()


def add_hook(model):
    return model.model.encoder.register_forward_hook(lambda *_: None).remove


def add_adapter(model):
    adapter = LoraConfig(target_modules=["q_proj"], **LORA)
    return get_peft_model(model, adapter).eval().unload


@pytest.mark.parametrize("change", [add_hook, add_adapter])
def test_pipeline_decodes_by_an_engine_once_a_change_is_undone(change, tiny_tokenizer):
    model = tiny_model()
    translate = pipeline_of(model, tiny_tokenizer)
    plain = by_generate(model, tiny_tokenizer)
    undo = change(model)
    translate(TEXTS, **OPTIONS)
    assert not has_engine(translate)
    undo()
    assert translate(TEXTS, **OPTIONS) == plain and has_engine(translate)


def test_refresh_follows_values_of_the_data_of_a_weight(tiny_tokenizer):
    model = tiny_model()
    translate = pipeline_of(model, tiny_tokenizer)
    plain = by_generate(model, tiny_tokenizer)
    assert translate(TEXTS, **OPTIONS) == plain
    model.lm_head.weight.data.neg_()
    translate.refresh()
    assert translate(TEXTS, **OPTIONS) == by_generate(model, tiny_tokenizer) != plain


def pickled(pipeline):
    return pickle.loads(pickle.dumps(pipeline))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_copies_of_a_pipeline_have_separate_engines(tiny_tokenizer, duplicate):
    translate = pipeline_of(tiny_model(), tiny_tokenizer)
    expected = translate(TEXTS, **OPTIONS)
    same = duplicate(translate)
    same.model.lm_head.weight.detach().neg_()
    assert same(TEXTS, **OPTIONS) == by_generate(same.model, tiny_tokenizer) != expected
    assert translate(TEXTS, **OPTIONS) == expected
