"""Models of transformers that the pipeline decodes by the engine, after a conversion in memory."""

import copy
import json
import pickle
import random

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import pipeline

from tests.fairseq_files import build_fsmt_tokenizer, fsmt
from tests.m2m_100_models import build_m2m_tokenizer, build_nllb_tokenizer, m2m_100
from tests.marian_files import build_marian_tokenizer, marian_model
from tests.sweeps import sample
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import hash_model
from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.conversion import WRITERS, from_transformers
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.loading.model_folders import save_model_folder

TEXT = "A man is sleeping. Two dogs run across the green grass."
WORDS = TEXT.split()
GREEDY, BEAMS, NBEST = (
    {"num_beams": 1, "max_new_tokens": 9},
    {"num_beams": 4},
    {"num_beams": 4, "num_return_sequences": 3},
)
OTHER = {"num_beams": 3, "length_penalty": 0.3, "early_stopping": True}
OTHER["no_repeat_ngram_size"] = 2
SEARCHES = [{}, GREEDY, BEAMS, NBEST, OTHER]


def marian(folder, **changes):
    tokenizer = build_marian_tokenizer(folder)
    return marian_model(len(tokenizer), **changes), tokenizer


def opus_mt(folder):
    """Return a model that decodes as the published ones: padding is forbidden, and EOS is
    forced.
    """
    model, tokenizer = marian(folder)
    pad = model.config.pad_token_id
    options = {"bad_words_ids": [[pad]], "forced_eos_token_id": 0}
    options |= {"renormalize_logits": True, "num_beams": 3}
    model.generation_config.update(**options)
    return model, tokenizer


def former_opus_mt(folder):
    model, tokenizer = opus_mt(folder)
    model.generation_config.renormalize_logits = None
    return model, tokenizer


def fsmt_model(folder):
    tokenizer = build_fsmt_tokenizer(folder)
    model = fsmt(len(tokenizer))
    model.generation_config.forced_eos_token_id = 2
    return model, tokenizer


def m2m(folder):
    tokenizer = build_m2m_tokenizer(folder)
    vocab_size = 1 + max(tokenizer.lang_code_to_id.values())
    return m2m_100(vocab_size, max_position_embeddings=300), tokenizer


def nllb(folder):
    tokenizer = build_nllb_tokenizer()
    return m2m_100(len(tokenizer), max_position_embeddings=300), tokenizer


LANGUAGES = {
    m2m: {"src_lang": "en", "tgt_lang": "de"},
    nllb: {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"},
}


def name_of(function):
    """Return the name of a function, for the name of a test."""
    return function.__name__


MAKERS = [marian, opus_mt, former_opus_mt, fsmt_model, m2m, nllb]


@pytest.fixture(params=sample(MAKERS, opus_mt, m2m), ids=name_of)
def case(request, tmp_path):
    """Return a model whose translations depend on the source, its tokenizer and the languages of
    requests.
    """
    model, tokenizer = request.param(tmp_path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(1.0 if "embed_positions" in name or "norm" in name else 2.5)
    getattr(model, "final_logits_bias", torch.zeros(1)).mul_(0.2)
    # 20 is the library's own, which pipelines replace.
    model.generation_config.max_length = 21
    # Padding as a token of a translation has no position in Marian.
    if model.config.model_type != "marian":
        model.generation_config.suppress_tokens = [model.config.pad_token_id]
    return model, tokenizer, LANGUAGES.get(request.param, {})


@pytest.fixture
def opus(tmp_path):
    return TranslationPipeline(*opus_mt(tmp_path), compile=False, max_length=21)


def by_generate(model, tokenizer, texts, **options):
    """Return the pipeline's answers by `generate()`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnginePool, "find", lambda *_, **__: None)
        return TranslationPipeline(model, tokenizer, protect=False, **options)(texts)


def test_conversion_in_memory_translates_as_generate_does(case):
    model, tokenizer, languages = case
    chosen = random.Random(3)
    lengths = [chosen.randint(1, 9) for _ in range(25)]
    texts = [" ".join(chosen.choices(WORDS, k=length)) for length in lengths]
    translate = TranslationPipeline(model, tokenizer, compile=False)
    assert translate.uses_engine and translate.model is model
    for search in SEARCHES:
        options = {**languages, **search}
        answers = translate(texts, protect=False, **options)
        assert answers == by_generate(model, tokenizer, texts, **options)
        assert len({str(answer) for answer in answers}) > 2


def test_conversion_in_memory_follows_options_of_the_package(opus):
    answers = opus("A man is sleeping.", return_scores=True, **NBEST)
    scores = [answer["score"] for answer in answers]
    assert len(answers) == 3 and scores == sorted(scores, reverse=True)
    (answer,) = opus("A man is sleeping.", constraints=["green"], num_beams=4)
    assert "green" in answer["translation_text"]
    assert {"constraints", "return_scores", "target_prefix"} <= {*known_options(opus)}


def test_conversion_in_memory_shares_weights_and_notices_changes(opus):
    before = opus("A man is sleeping.", return_scores=True)
    shared = {weight.data_ptr() for weight in opus.model.parameters()}
    converted = opus._engines._decoded
    matrices = [weight for weight in converted.parameters() if weight.dim() > 1]
    assert {weight.data_ptr() for weight in matrices} <= shared
    with torch.no_grad():
        opus.model.model.decoder.layers[0].fc1.weight.mul_(-3.0)
    after = opus("A man is sleeping.", return_scores=True)
    assert after != before
    assert opus._engines._decoded is not converted
    model = copy.deepcopy(opus.model)
    again = TranslationPipeline(model, opus.tokenizer, compile=False, max_length=21)
    assert again("A man is sleeping.", return_scores=True) == after


def hook(model):
    model.model.decoder.layers[0].register_forward_hook(lambda *_: None)


def replace_method(model):
    model.generate = model.generate


def replace_module(model):
    def forward(self, x):
        return 9 * torch.nn.Linear.forward(self, x)

    linear = model.model.decoder.layers[0].fc1
    linear.__class__ = type("Adapter", (torch.nn.Linear,), {"forward": forward})


def halve(model):
    model.model.decoder.layers[0].half()


def move_positions(model):
    model.model.decoder.embed_positions.weight.data.neg_()


def derive(model):
    model.__class__ = type("Derived", (type(model),), {})


UNLIKE = [hook, replace_method, replace_module, halve, move_positions, derive]


@pytest.mark.parametrize("change", UNLIKE, ids=name_of)
def test_conversion_in_memory_is_refused_where_it_could_differ(opus, change):
    change(opus.model)
    assert not opus.uses_engine
    message = "With `return_scores`, the model must be one that is converted exactly"
    with pytest.raises(ValueError, match=message):
        opus("A man.", return_scores=True)
    if change is not halve:
        expected = by_generate(opus.model, opus.tokenizer, "A man.", max_length=21)
        assert opus("A man.") == expected


def adapt(model, seed=0):
    """Add an adapter that changes translations."""
    options = {"r": 4, "lora_alpha": 64, "init_lora_weights": False}
    config = LoraConfig(target_modules=["q_proj", "v_proj", "fc1"], **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, config).eval()


def disable(model):
    model.base_model.disable_adapter_layers()


def scale(model):
    for module in model.modules():
        if hasattr(module, "set_scale"):
            module.set_scale("default", 0.1)


def train(model):
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            with torch.no_grad():
                weight.neg_()


def merge(model):
    model.merge_adapter()


@pytest.mark.parametrize(
    "change", sample([disable, scale, train, merge], disable, train), ids=name_of
)
def test_conversion_in_memory_merges_adapters(opus, change):
    bare = opus(WORDS)
    model, options = adapt(copy.deepcopy(opus.model)), {"max_length": 21}
    translate = TranslationPipeline(model, opus.tokenizer, compile=False, **options)
    answers = translate(WORDS)
    assert translate.uses_engine and answers != bare
    assert answers == by_generate(model, opus.tokenizer, WORDS, **options)
    shared = {weight.data_ptr() for weight in model.parameters()}
    converted = translate._engines._decoded
    assert converted.model.encoder.embed_tokens.weight.data_ptr() in shared
    change(model)
    assert translate(WORDS) == by_generate(model, opus.tokenizer, WORDS, **options)


def test_pipeline_of_a_folder_with_an_adapter_uses_the_engine(opus, tmp_path):
    base, folder = tmp_path / "base", tmp_path / "adapter"
    opus.model.save_pretrained(base)
    model = adapt(type(opus.model).from_pretrained(base).eval())
    model.save_pretrained(folder)
    opus.tokenizer.save_pretrained(base)
    translate = pipeline("translation", model=str(folder), compile=False, max_length=21)
    assert translate.uses_engine and translate(WORDS) != opus(WORDS)
    answers = by_generate(model, opus.tokenizer, WORDS, max_length=21)
    assert translate(WORDS) == answers
    assert load_pipeline(folder, compile=False)(WORDS, max_new_tokens=20) == answers
    hashes = hash_model(folder)
    assert {"config.json", "model.safetensors"} <= hashes.keys()
    assert "adapter_model.safetensors" in hashes


@pytest.mark.parametrize(
    "damage, problem",
    [
        ({"base_model_name_or_path": 5}, "must name a model in `base_model_name_or_path`"),
        ({"base_model_name_or_path": "{folder}"}, "and no other adapter, got"),
        ({"base_model_name_or_path": "./none"}, "There is no model folder ./none."),
        ({"r": 3}, "is damaged or does not fit its model"),
        ({"peft_type": "none"}, "is damaged or does not fit its model"),
    ],
    ids=["number", "adapter", "missing", "shape", "type"],
)
def test_damaged_adapter_is_refused(opus, damage, problem, tmp_path):
    base = tmp_path / "base"
    folder = tmp_path / "adapter"
    opus.model.save_pretrained(base)
    opus.tokenizer.save_pretrained(base)
    adapt(type(opus.model).from_pretrained(base)).save_pretrained(folder)
    path = folder / "adapter_config.json"
    content = json.loads(path.read_text())
    for name, value in damage.items():
        content[name] = value if value != "{folder}" else str(folder)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as refusal:
        load_pipeline(folder)
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_start_token_that_is_text_is_in_the_translation(opus):
    options = {"decoder_start_token_id": 5, "max_length": 21}
    answers = opus(WORDS, protect=False, **options)
    assert answers == by_generate(opus.model, opus.tokenizer, WORDS, **options)
    assert (start := opus.tokenizer.decode([5]))
    for answer in answers:
        assert answer["translation_text"].startswith(start)


def test_conversion_is_tried_once_for_each_change_of_a_model(opus, monkeypatch):
    tried = []
    plain = from_transformers.convert_in_memory

    def convert(model):
        tried.append(model)
        return plain(model)

    monkeypatch.setattr(from_transformers, "convert_in_memory", convert)
    opus.model.half()
    assert not opus.uses_engine and not opus.uses_engine and len(tried) == 1
    opus.model.float().train()
    assert not opus.uses_engine and not opus.uses_engine and len(tried) == 2
    state = torch.random.get_rng_state()
    opus.model.eval()
    assert opus.uses_engine and opus.uses_engine and len(tried) == 3
    assert torch.equal(torch.random.get_rng_state(), state)
    opus.model.bfloat16()
    assert opus.uses_engine
    assert opus("A man.", return_scores=True)
    assert opus._engines._decoded.dtype == torch.bfloat16
    assert pickle.loads(pickle.dumps(opus._engines)).supports_model


def test_conversion_in_memory_decodes_what_convert_writes(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    theirs = tmp_path / "marian"
    WRITERS["marian"](folder, theirs, WORDS)
    options = {"compile": False, "max_new_tokens": 20}
    translate = pipeline("translation", model=str(theirs), **options)
    assert translate.uses_engine
    model, tokenizer = translate.model, translate.tokenizer
    expected = by_generate(model, tokenizer, WORDS, max_new_tokens=20)
    assert translate(WORDS) == expected
    ours = TranslationPipeline(tiny_model, tiny_tokenizer, num_beams=1, **options)
    assert translate(WORDS, num_beams=1) == ours(WORDS)


def test_compile_converts_in_memory(tmp_path, capsys, monkeypatch):
    model, tokenizer = opus_mt(tmp_path)
    model.save_pretrained(tmp_path / "model")
    steps = []

    def compile_steps(engine):
        steps.append(engine.options)

    monkeypatch.setattr(Engine, "compile_steps", compile_steps)
    assert main(["compile", str(tmp_path / "model")]) == 0
    assert "float32, beam size 4" in capsys.readouterr().out
    greedy, beams = steps
    assert (greedy.num_beams, beams.num_beams) == (1, 4)
    assert beams.renormalizes
    assert len(beams.features) == 2


UNKNOWN = [
    {"repetition_penalty": 1.5},
    {"bad_words_ids": [[3, 4]]},
    {"max_length": 40, **LANGUAGES[nllb]},
]


@pytest.mark.parametrize("option", UNKNOWN, ids=str)
def test_option_that_no_engine_decodes_is_said_once(tmp_path, caplog, option):
    if "max_length" in option:
        tokenizer, make = build_nllb_tokenizer(), m2m_100
    else:
        tokenizer, make = build_marian_tokenizer(tmp_path), marian_model
    model = make(len(tokenizer), max_position_embeddings=24)
    options = {"max_length": 9} | option
    translate = TranslationPipeline(model, tokenizer, **options)
    for text in ("A man.", "A dog."):
        assert translate(text) == by_generate(model, tokenizer, text, **options)
    messages = [line for line in caplog.messages if "instead of the engine" in line]
    assert len(messages) == 1
    expected = f"`generate()` decodes {type(model).__name__} instead of the engine"
    assert expected in messages[0]


def test_commands_and_pipeline_decode_a_folder_by_the_engine(case, tmp_path, capsys):
    model, tokenizer, languages = case
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    translate = pipeline("translation", model=str(folder), compile=False)
    answers = translate(WORDS[:3], num_beams=2, **languages)
    expected = [answer["translation_text"] for answer in answers]
    assert translate.uses_engine
    flags = ["--num_beams", "2"]
    if languages:
        flags += ["--source_language", languages["src_lang"]]
        flags += ["--target_language", languages["tgt_lang"]]
    assert main(["translate", str(folder), *WORDS[:3], *flags]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["translate", str(folder), WORDS[0], "--n_best", "2", *flags]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    for side in ("source", "target"):
        (tmp_path / side).write_text("A man.\nTwo dogs.\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main(["evaluate", str(folder), *files, *flags]) == 0
    assert "BLEU" in capsys.readouterr().out
    assert load_pipeline(folder).uses_engine
