"""The translation pipeline with the decoding engine: which requests it serves, and that
translations stay the same.
"""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    LogitsProcessorList,
    pipeline,
)

from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import Engine, TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine import compiled_steps, engine_pool
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedPipeline

TEXTS = ["A man is sleeping.", "Two dogs run across the green grass.", "A"]
TEXTS += ["", "a b\n\nc. d.", "</s>", "Zwei Hunde."]
PLAIN = {"precision": "float32", "compile": False}


@pytest.fixture
def engines(monkeypatch):
    """Record the arguments of the engines that pipelines make."""
    made = []

    class Recorded(Engine):
        def __init__(self, model, options, **further):
            made.append(further)
            super().__init__(model, options, **further)

    monkeypatch.setattr(engine_pool, "Engine", Recorded)
    return made


@pytest.fixture
def translate(tiny_model, tiny_tokenizer):
    """Return a pipeline that decodes by the engine."""
    return TranslationPipeline(tiny_model, tiny_tokenizer, **PLAIN)


def options_of(model, call):
    return TranslationOptions.resolve(call, {}, model.generation_config)


def by_generate(model, tokenizer):
    """Return the carried pipeline, which decodes by `generate()`."""
    return CarriedPipeline(model, tokenizer)


# --- The same translations ------------------------------------------------------------------------


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    fields=st.fixed_dictionaries(
        {
            "source_eos": st.booleans(),
            "normalize_before": st.booleans(),
            "position_embedding_type": st.sampled_from(["sinusoidal", "learned"]),
            "max_source_length": st.sampled_from([None, 4]),
        }
    ),
    options=st.fixed_dictionaries(
        {},
        optional={
            "num_beams": st.integers(1, 4),
            "length_penalty": st.sampled_from([0.0, 0.6, 1.0]),
            "length_penalty_type": st.sampled_from(["wu", "power"]),
            "early_stopping": st.sampled_from([True, False, "never"]),
            "max_new_tokens": st.integers(1, 8),
            "max_new_tokens_beyond_source": st.integers(0, 8),
            "max_length": st.integers(2, 8),
            "min_new_tokens": st.integers(0, 5),
            "batch_size": st.integers(1, 4),
            "do_sample": st.sampled_from([False, None]),
            "top_k": st.just(7),
        },
    ),
)
def test_pipeline_translates_alike_by_the_engine(tiny_tokenizer, seed, fields, options):
    model = tiny_model(seed, **fields)
    expected = by_generate(model, tiny_tokenizer)(TEXTS, **options)
    by_engine = TranslationPipeline(model, tiny_tokenizer, **PLAIN)
    assert by_engine(TEXTS, **options) == expected


CONFIG = GenerationConfig(num_beams=2, max_new_tokens=3, length_penalty=0.0)
CALLS = {"n best": {"num_return_sequences": 3}, "config": {"generation_config": CONFIG}}
# The call repeats the limit, beside `max_new_tokens_beyond_source`.
CALLS["limit of the model"] = {"max_length": 3}


@pytest.mark.parametrize("call", CALLS)
def test_pipeline_follows_options_by_the_engine(tiny_model, tiny_tokenizer, translate, call):
    options = CALLS[call]
    if "max_length" in options:
        tiny_model.generation_config.max_length = options["max_length"]
    expected = by_generate(tiny_model, tiny_tokenizer)(TEXTS, **options)
    assert translate(TEXTS, **options) == expected != translate(TEXTS)


def test_pipeline_follows_options_that_the_models_config_lacks(tiny_tokenizer):
    model = tiny_model(seed=3)  # for which the type of the length penalty matters
    # The start symbol too.
    special = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}
    model.generation_config = GenerationConfig(num_beams=3, max_new_tokens=8, **special)
    options = {"length_penalty": 1.0, "max_new_tokens_beyond_source": 1}
    translate = TranslationPipeline(model, tiny_tokenizer, **PLAIN)
    other = translate(TEXTS, **options)
    options["length_penalty_type"] = "wu"
    expected = by_generate(model, tiny_tokenizer)(TEXTS, **options)
    assert translate(TEXTS, **options) == expected != other


def test_pipeline_counts_each_sentence_with_the_engine(monkeypatch, translate):
    bars = []
    tqdm = "vanilla_transformer.pipeline_vanilla_transformer.logging.tqdm"
    monkeypatch.setattr(tqdm, lambda **options: Bar(bars, options))
    translate(["A man.", "Two dogs.", "grass"], progress_bar=True)
    assert bars == [{"total": 3, "disable": False, "count": 3}]


class Bar:
    def __init__(self, bars, options):
        self.state = {"total": options["total"], "disable": options["disable"]}
        self.state["count"] = 0
        bars.append(self.state)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def update(self, count):
        self.state["count"] += count


# --- When the engine decodes ----------------------------------------------------------------------


def test_pipeline_uses_the_engine_by_default(engines, tiny_model, tiny_tokenizer):
    expected = by_generate(tiny_model, tiny_tokenizer)(TEXTS)
    assert TranslationPipeline(tiny_model, tiny_tokenizer)(TEXTS) == expected
    stock = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer)
    assert stock(TEXTS) == expected
    assert len(engines) == 2
    assert EnginePool(tiny_model).find(options_of(tiny_model, {})).model is tiny_model


def test_pipeline_falls_back_to_generate(tiny_model, tiny_tokenizer):
    translate = TranslationPipeline(tiny_model, tiny_tokenizer)
    expected = by_generate(tiny_model, tiny_tokenizer)(TEXTS, repetition_penalty=1.5)
    assert translate(TEXTS, repetition_penalty=1.5) == expected != translate(TEXTS)


def test_pipeline_compiles_on_request_only(monkeypatch, tiny_model, tiny_tokenizer):
    compiled = []

    def record(steps, _):
        compiled.append(steps._compile)
        return steps.step

    monkeypatch.setattr(compiled_steps.CompiledSteps, "find", record)
    expected = by_generate(tiny_model, tiny_tokenizer)(TEXTS)
    assert not compiled
    translate = TranslationPipeline(tiny_model, tiny_tokenizer, compile=True)
    assert translate(TEXTS) == expected
    assert set(compiled) == {True}


SLOTS = [(1, 4, 1), (2, 4, 2), (16, 1, 16), (17, 4, 24), (49, 1, 64)]
SLOTS += [(80, 2, 64), (130, 1, 128)]


@pytest.mark.parametrize(("sentences", "beams", "slots"), SLOTS)
def test_pipeline_uses_as_many_slots_as_needed(monkeypatch, translate, sentences, beams, slots):
    sizes, run = [], compiled_steps.CompiledSteps.run

    def recorded(steps, count, state, memory):
        sizes.append(len(state.done))
        run(steps, count, state, memory)

    monkeypatch.setattr(compiled_steps.CompiledSteps, "run", recorded)
    texts = [f"a {'dog ' * (index % 5)}" for index in range(sentences)]
    translate(texts, num_beams=beams)
    assert max(sizes) == slots


def test_pipeline_keeps_the_last_engines(engines, tiny_model):
    pool = EnginePool(tiny_model, "float32", compile=False)

    def find(beams, **options):
        return pool.find(options_of(tiny_model, {"num_beams": beams, **options}))

    made = [find(beams) for beams in (1, 2, 3, 4)]
    assert [find(beams, num_return_sequences=1) for beams in (1, 2, 3, 4)] == made
    assert len(engines) == 4
    find(5)
    assert find(4) is made[3]
    assert find(1) is not made[0]


# --- Precision ------------------------------------------------------------------------------------


def test_pipeline_multiplies_in_its_precision(engines, tiny_model, tiny_tokenizer):
    options = {"precision": "bfloat16", "compile": False}
    translate = TranslationPipeline(tiny_model, tiny_tokenizer, **options)
    assert len(translate(TEXTS)) == len(TEXTS)
    assert [options["precision"] for options in engines] == ["bfloat16"]
    engine = EnginePool(tiny_model, **options).find(options_of(tiny_model, {}))
    assert engine.model.dtype == torch.bfloat16
    assert tiny_model.dtype == torch.float32


def test_int8_without_torchao_names_the_extra_to_install(monkeypatch, folder, capsys):
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    assert main(["translate", str(folder), "A man.", "--precision", "int8"]) != 0
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert '`precision="int8"` needs packages that are not installed' in line
    assert "pip install 'vanilla-transformer[int8]'" in line


def test_pipeline_keeps_the_models_precision_without_one(tiny_model):
    options = options_of(tiny_model, {})
    pool = EnginePool(tiny_model.bfloat16(), compile=True)
    assert pool.find(options).model is tiny_model
    assert EnginePool(tiny_model.half(), compile=True).find(options) is None


BIAS_AND_PENALTY = {"sequence_bias": {(5,): 9.0}, "repetition_penalty": 1.2}
REFUSED = [
    (BIAS_AND_PENALTY, "`repetition_penalty`, `sequence_bias`"),
    ({"logits_processor": LogitsProcessorList()}, "`logits_processor`"),
    ({"return_dict_in_generate": True}, "`return_dict_in_generate`"),
    ({"min_length": 3}, "`min_length`"),
]


@pytest.mark.parametrize(("options", "names"), REFUSED)
def test_pipeline_refuses_what_the_engine_cannot_do(translate, options, names):
    message = "With `precision`, greedy and beam search must do without"
    with pytest.raises(ValueError, match=f"{message} {names}"):
        translate(TEXTS, **options)


def test_pipeline_refuses_lengths_that_no_engine_decodes(tiny_tokenizer, translate):
    translate.model.generation_config.max_new_tokens_beyond_source = None
    message = "a limit of the length, such as `max_new_tokens`"
    with pytest.raises(ValueError, match=message):
        translate("A man.")
    positions = {"position_embedding_type": "learned", "max_position_embeddings": 16}
    learned = TranslationPipeline(tiny_model(**positions), tiny_tokenizer, **PLAIN)
    with pytest.raises(ValueError, match="must fit the model's 16 positions"):
        learned("A man.", max_new_tokens=40)


NO_PRECISION = "`precision` must be one of 'float32', 'bfloat16', 'int8', 'auto', got"
UNKNOWN = [
    ({"precision": "float16"}, f"{NO_PRECISION} 'float16'"),
    ({"compile": "yes"}, "`compile` must be True, False or 'auto', got 'yes'"),
]


@pytest.mark.parametrize(("arguments", "message"), UNKNOWN)
def test_pipeline_names_known_values(tiny_model, tiny_tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        TranslationPipeline(tiny_model, tiny_tokenizer, **arguments)


# --- Models ---------------------------------------------------------------------------------------


def bart():
    sizes = {"vocab_size": 300, "d_model": 16, "pad_token_id": 0, "eos_token_id": 2}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 2}
    config = BartConfig(**sizes, decoder_start_token_id=1)
    return BartForConditionalGeneration(config).eval()


def transfo_xl():
    return tiny_long_model(layer_types="transfo_xl_attention")


def test_engine_supports_models_that_it_decodes(tiny_model):
    hooked = type(tiny_model)(tiny_model.config).eval()
    hooked.model.decoder.layers[0].register_forward_hook(lambda *_: None)
    others = [hooked, bart(), transfo_xl(), torch.nn.Linear(1, 1), None]
    assert Engine.supports(tiny_model) and Engine.supports(tiny_long_model())
    assert [Engine.supports(other) for other in others] == [False] * 5
    assert not Engine.supports(tiny_model.train())


@pytest.mark.parametrize("make", [bart, transfo_xl])
def test_pipeline_refuses_a_precision_for_other_models(tiny_tokenizer, make):
    translate = TranslationPipeline(make(), tiny_tokenizer, precision="float32")
    name = type(translate.model).__name__
    with pytest.raises(ValueError, match=f"must be an unchanged .*, got {name}"):
        translate("A man.")
    compiled = TranslationPipeline(translate.model, tiny_tokenizer, compile=True)
    assert compiled("A man.", max_new_tokens=2)


@pytest.mark.parametrize("layer_types", ["linear_attention", "lsh_attention"])
def test_pipeline_decodes_long_models_by_the_engine(engines, tiny_tokenizer, layer_types):
    model = tiny_long_model(layer_types=layer_types, decoder_layers=2)
    texts = ["A man is sleeping.", "Two dogs."]
    expected = by_generate(model, tiny_tokenizer)(texts)
    assert TranslationPipeline(model, tiny_tokenizer, compile=False)(texts) == expected
    assert len(engines) == 1


# --- Commands and the service ---------------------------------------------------------------------


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_translate_decodes_with_a_precision(engines, folder, capsys, precision):
    words = [folder, "A man.", "Two dogs.", "--precision", precision]
    assert main(["translate", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert {options["precision"] for options in engines} == {precision}


def test_evaluate_decodes_with_a_precision(engines, folder, tmp_path, capsys):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("A man is sleeping.\nTwo dogs.\n")
    files = ["--source", f"{tmp_path}/a.en", "--target", f"{tmp_path}/a.de"]
    assert main(["evaluate", folder, *files, "--precision", "bfloat16"]) == 0
    assert "BLEU" in capsys.readouterr().out
    assert [options["precision"] for options in engines] == ["bfloat16"]
    assert main(["evaluate", "nowhere", *files, "--precision", "half"]) == 2
    assert f"{NO_PRECISION} 'half'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["translate", "serve"])
def test_commands_refuse_a_precision_in_one_line(folder, capsys, command):
    flags = ["--port", "0"] if command == "serve" else []
    words = [command, folder, *flags, "--precision"]
    assert main([*words, "half"]) == 2
    error = capsys.readouterr().err
    assert "'float32', 'bfloat16', 'int8', 'auto', got 'half'" in error
    path = Path(folder, "generation_config.json")
    config = json.loads(path.read_text()) | {"repetition_penalty": 1.5}
    path.write_text(json.dumps(config))
    assert main([*words, "float32"]) == 2
    error = capsys.readouterr().err.rpartition("error: ")[2]
    message = r"With `precision`, .* must do without `repetition_penalty`\. .*\n"
    assert re.fullmatch(message, error)
