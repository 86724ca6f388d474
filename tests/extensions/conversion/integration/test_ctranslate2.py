"""Conversion to CTranslate2, by this package's converter and by CTranslate2's own: the same greedy
tokens.
"""

import json
import shutil
from types import SimpleNamespace

import ctranslate2
import pytest
import torch
from transformers import AutoTokenizer

from tests import tiny
from tests.forked import run_python
from tests.m2m_100_models import build_nllb_tokenizer
from tests.marian_models import build_marian_tokenizer
from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import WRITERS, ctranslate2_runtime
from vanilla_transformer.extensions.conversion.comparison import greedy_translator
from vanilla_transformer.extensions.conversion.ctranslate2 import ctranslate2_greedy_translator
from vanilla_transformer.extensions.scale_out import engine_workers
from vanilla_transformer.utils.file_utils import save_model_folder

SENTENCES = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "Zwei Hunde",
    "1 2 3 4 5 6 7 8 9 10",
]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sinusoid_layout": "halves", "scale_embedding": False, "layer_norm_eps": 1e-3},
        {"sinusoid_layout": "tensor2tensor"},
        {
            "normalize_before": True,
            "attention_bias": True,
            "lm_head_bias": True,
            "tie_word_embeddings": False,
        },
        {"position_embedding_type": "learned", "activation_function": "gelu", "decoder_layers": 2},
    ],
    ids=["paper", "halves", "tensor2tensor", "pre-norm", "learned positions"],
)
def test_to_ctranslate2_generates_our_greedy_tokens(
    changes, tiny_config, tiny_tokenizer, tmp_path, monkeypatch
):
    for module in ("comparison", "ctranslate2"):
        monkeypatch.setattr(
            f"vanilla_transformer.extensions.conversion.{module}.MAX_NEW_TOKENS", 48
        )
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**tiny_config.to_dict() | changes)
    model = VanillaTransformerForConditionalGeneration(config)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (4, 4) and comparison.speedup > 0


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("form", ["ctranslate2", "marian"])
def test_writers_keep_separate_embeddings(form, tied, tmp_path, tiny_tokenizer):
    separate = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": tied}
    folder = save_model_folder(tiny.tiny_model(**separate), tiny_tokenizer, tmp_path / "ours")
    comparison = WRITERS[form](folder, tmp_path / "theirs", SENTENCES)
    assert comparison.num_identical == comparison.num_sentences == len(SENTENCES)


def test_ctranslate2_has_as_many_threads_as_torch(tmp_path, tiny_config, monkeypatch):
    used = []
    monkeypatch.setattr(
        ctranslate2, "Translator", lambda folder, **options: used.append(options["intra_threads"])
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(ctranslate2_runtime, "read_converted_config", lambda folder: tiny_config)
    tiny.tiny_model().generation_config.save_pretrained(tmp_path)
    ctranslate2_runtime.CTranslate2Model(tmp_path, tiny.tiny_tokenizer(), torch.device("cpu"))
    assert used == [3]


def test_to_ctranslate2_compares_translations_that_begin_with_their_language(tmp_path):
    tokenizer = build_nllb_tokenizer()
    model = tiny.tiny_model(vocab_size=len(tokenizer))
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids("deu_Latn")
    folder = save_model_folder(model, tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert (
        comparison.num_identical == comparison.num_sentences == len(SENTENCES) + 26
    )  # 202 languages
    assert (
        json.loads((tmp_path / "fast" / "config.json").read_text())["unk_token"]
        == tokenizer.unk_token
    )


@pytest.mark.parametrize("is_old", [False, True])
def test_ctranslate2_reads_added_tokens_as_we_do(is_old, tmp_path):
    """Tokenizers of older versions have two names for a token."""
    tokenizer = tiny.tiny_tokenizer()
    (tokenizer.backend_tokenizer if is_old else tokenizer).add_tokens(["<ph0>", "<ph1>"])
    model = tiny.tiny_model(vocab_size=len(tokenizer))
    folder = save_model_folder(model, tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert comparison.num_identical == comparison.num_sentences == len(SENTENCES) + 1
    texts, options = (
        ["A <ph0> man", "<ph1>", "(<ph0>)"],
        {"num_beams": 1, "max_new_tokens": 9, "protect": False},
    )
    ours = TranslationPipeline(model, tokenizer)(texts, **options)
    assert TranslationPipeline(tmp_path / "fast", backend="ctranslate2")(texts, **options) == ours
    assert len({answer["translation_text"] for answer in ours}) == len(ours)


@pytest.mark.parametrize("name", ["ctranslate2-int8", "ctranslate2-float16"])
def test_convert_command_quantizes(name, tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    (tmp_path / "text").write_text("\n".join(SENTENCES))
    flags = ["--target_format", name, "--sentences", str(tmp_path / "text")]
    assert main(["convert", str(folder), str(tmp_path / "fast"), *flags]) == 0
    assert "of 4 outputs identical" in capsys.readouterr().out
    assert {"model.bin", "tokenizer.json", "generation_config.json"} <= {
        path.name for path in (tmp_path / "fast").iterdir()
    }
    assert ctranslate2.contains_model(str(tmp_path / "fast"))


def test_ctranslate2_converter_reads_our_folders(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    program = "import vanilla_transformer.extensions.conversion.ctranslate2, sys\n"
    program += "from ctranslate2.converters.transformers import main; main()"
    options = ["--model", str(folder), "--output_dir", str(tmp_path / "fast")]
    ended = run_python("-c", program, *options)
    assert ended.returncode == 0, ended.stderr
    translator, tokenizer = (
        ctranslate2.Translator(str(tmp_path / "fast")),
        AutoTokenizer.from_pretrained(folder),
    )
    assert ctranslate2_greedy_translator(translator, tokenizer)(SENTENCES) == greedy_translator(
        tiny_model, tiny_tokenizer
    )(SENTENCES)


def test_to_ctranslate2_refuses_tokenizers_of_sentencepiece_and_nonempty_folders(tmp_path):
    folder = save_model_folder(
        tiny.tiny_model(vocab_size=50), build_marian_tokenizer(tmp_path), tmp_path / "ours"
    )
    with pytest.raises(ValueError, match="its tokenizer has no `tokenizer.json`"):
        WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert not (tmp_path / "fast").exists()
    with pytest.raises(OSError, match="is not empty"):
        WRITERS["ctranslate2"](folder, folder, SENTENCES)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "vanilla_transformer"


@pytest.fixture(scope="module")
def converted(tiny_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    WRITERS["ctranslate2"](
        save_model_folder(tiny.tiny_model(), tiny_tokenizer, folder / "ours"),
        folder / "fast",
        SENTENCES,
    )
    return folder / "fast"


def test_pipeline_with_ctranslate2_answers_as_with_torch(converted, tiny_model, tiny_tokenizer):
    ours = TranslationPipeline(tiny_model, tiny_tokenizer)
    fast = TranslationPipeline(converted, backend="ctranslate2")
    texts = [*SENTENCES, "", "Two dogs.\n\nA man."]
    options = {"num_beams": 1, "max_new_tokens": 20}
    assert fast(texts, **options) == ours(texts, **options)
    assert list(fast(iter(texts), **options)) == ours(texts, **options)
    assert [len(answers) for answers in fast(SENTENCES, num_return_sequences=3)] == [3] * 4
    assert fast("Two dogs.", do_sample=True, top_k=5)[0].keys() == {"translation_text"}


def test_ctranslate2_follows_the_limit_closest_to_the_call(converted, tiny_tokenizer):
    model = TranslationPipeline(converted, backend="ctranslate2").model
    model.generation_config.max_new_tokens = 3
    batch = tiny_tokenizer(["A man is sleeping."], return_tensors="pt")
    length = batch["input_ids"].shape[1]
    assert model.generate(**batch, num_beams=1).shape[1] <= 3
    assert (
        3
        < model.generate(**batch, num_beams=1, max_new_tokens_beyond_source=2).shape[1]
        <= length + 2
    )


def test_translate_runs_a_folder_for_ctranslate2_by_its_runtime(converted, capsys, monkeypatch):
    monkeypatch.setattr(engine_workers, "usable_cores", lambda: 2)

    def shown(*words, status=0):
        assert main(["translate", str(converted), *words]) == status
        return getattr(capsys.readouterr(), "err" if status else "out")

    assert shown("A man is sleeping.", "Two dogs run.", "--backend", "ctranslate2", "--quiet")
    message = "Workers translate with PyTorch, but `backend` is 'ctranslate2'"
    assert message in shown("A man.", "--workers", "2", "--quiet", status=2)
    (answer,) = json.loads(shown("A man.", "--json"))["translations"]
    assert answer.keys() == {"text"}
    message = "`n_best` needs a model of this package that PyTorch decodes"
    assert message in shown("A man.", "--n_best", "2", status=2)


def test_ctranslate2_model_ranks_hypotheses_by_the_requested_length_penalty(
    converted, tiny_tokenizer
):
    """CTranslate2 returns log-probability / length ** α; the paper divides by ((5 + length) / 6) **
    α.
    """
    model = TranslationPipeline(converted, backend="ctranslate2").model
    short, long = (
        tiny_tokenizer.convert_ids_to_tokens([7, 8]),
        tiny_tokenizer.convert_ids_to_tokens([9] * 11),
    )
    log_probabilities, alpha = {3: -3.5, 12: -6.0}, 0.6
    found = SimpleNamespace(hypotheses=[long, short], scores=[-6.0 / 12**alpha, -3.5 / 3**alpha])
    papers = {
        length: total / ((5 + length) / 6) ** alpha for length, total in log_probabilities.items()
    }
    assert papers[3] > papers[12] and found.scores[0] > found.scores[1], (
        "the two penalties must disagree"
    )
    options = {"num_return_sequences": 2, "length_penalty": alpha}
    orders = {
        kind: [
            len(ids)
            for ids in model._best_hypotheses(
                found, model._options(options | {"length_penalty_type": kind})
            )
        ]
        for kind in ("wu", "power")
    }
    assert orders == {"wu": [2, 11], "power": [11, 2]}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda folder: TranslationPipeline(folder, backend="tensorrt"),
            ValueError,
            "got 'tensorrt'",
        ),
        (
            lambda folder: TranslationPipeline(str(folder)),
            ValueError,
            "must be a model, got the folder or name '",
        ),
        (
            lambda folder: TranslationPipeline(folder.parent, backend="ctranslate2"),
            OSError,
            "convert` wrote",
        ),
        (
            lambda folder: TranslationPipeline(folder, backend="ctranslate2")("a", top_h=1),
            ValueError,
            "'top_h'",
        ),
    ],
)
def test_pipeline_with_ctranslate2_names_mistakes(call, kind, message, converted):
    with pytest.raises(kind, match=message):
        call(converted)


def test_pipeline_with_ctranslate2_refuses_a_truncated_model(converted, tmp_path):
    converted = shutil.copytree(converted, tmp_path / "truncated")
    (converted / "model.bin").write_bytes((converted / "model.bin").read_bytes()[:500])
    with pytest.raises(OSError, match="Cannot load .* with CTranslate2"):
        TranslationPipeline(converted, backend="ctranslate2")
