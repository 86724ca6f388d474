"""Conversion to CTranslate2, by this package's converter and by CTranslate2's own: the same greedy
tokens.
"""

import json

import ctranslate2
import pytest
import torch
from transformers import AutoTokenizer

from tests import tiny
from tests.m2m_100_models import build_nllb_tokenizer
from tests.marian_files import build_marian_tokenizer
from tests.processes import run_python
from tests.sweeps import rare, sample
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.comparison import greedy_translator
from vanilla_transformer.extensions.conversion.ctranslate2 import ctranslate2_greedy_translator
from vanilla_transformer.loading.model_folders import save_model_folder

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass."]
SENTENCES += ["Zwei Hunde", "1 2 3 4 5 6 7 8 9 10"]
HALVES = {"sinusoid_layout": "halves", "scale_embedding": False}
PRE_NORM = {"normalize_before": True, "attention_bias": True, "lm_head_bias": True}
LEARNED = {"position_embedding_type": "learned", "activation_function": "gelu"}
ARCHITECTURES = {
    "paper": {},
    "halves": HALVES | {"layer_norm_eps": 1e-3},
    "tensor2tensor": {"sinusoid_layout": "tensor2tensor"},
    "pre-norm": PRE_NORM | {"tie_word_embeddings": False},
    "learned positions": LEARNED | {"decoder_layers": 2},
}


KEPT = ["tensor2tensor", "pre-norm", "learned positions"]


@pytest.mark.parametrize("name", sample(ARCHITECTURES, *KEPT))
def test_to_ctranslate2_generates_our_greedy_tokens(
    name, tiny_config, tiny_tokenizer, tmp_path, monkeypatch
):
    for module in ("comparison", "ctranslate2"):
        limit = f"vanilla_transformer.extensions.conversion.{module}.MAX_NEW_TOKENS"
        monkeypatch.setattr(limit, 48)
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**tiny_config.to_dict() | ARCHITECTURES[name])
    model = VanillaTransformerForConditionalGeneration(config)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (4, 4)
    assert comparison.speedup > 0


@pytest.mark.parametrize("tied", [rare(True), False])
@pytest.mark.parametrize("form", ["ctranslate2", "marian"])
def test_writers_keep_separate_embeddings(form, tied, tmp_path, tiny_tokenizer):
    separate = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": tied}
    model = tiny.tiny_model(**separate)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "ours")
    comparison = WRITERS[form](folder, tmp_path / "theirs", SENTENCES)
    assert comparison.num_identical == comparison.num_sentences == len(SENTENCES)


def test_to_ctranslate2_compares_translations_with_their_language(tmp_path):
    tokenizer = build_nllb_tokenizer()
    model = tiny.tiny_model(vocab_size=len(tokenizer))
    german = tokenizer.convert_tokens_to_ids("deu_Latn")
    model.generation_config.forced_bos_token_id = german
    folder = save_model_folder(model, tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    # The tokenizer has 202 languages.
    assert comparison.num_identical == comparison.num_sentences == len(SENTENCES) + 26
    config = json.loads((tmp_path / "fast" / "config.json").read_text())
    assert config["unk_token"] == tokenizer.unk_token


@pytest.mark.parametrize("is_old", [False, True])
def test_ctranslate2_reads_added_tokens_as_we_do(is_old, tmp_path):
    """Tokenizers of older versions have two names for a token."""
    tokenizer = tiny.tiny_tokenizer()
    owner = tokenizer.backend_tokenizer if is_old else tokenizer
    owner.add_tokens(["<ph0>", "<ph1>"])
    model = tiny.tiny_model(vocab_size=len(tokenizer))
    folder = save_model_folder(model, tokenizer, tmp_path / "ours")
    comparison = WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert comparison.num_identical == comparison.num_sentences == len(SENTENCES) + 1
    texts = ["A <ph0> man", "<ph1>", "(<ph0>)"]
    translator = ctranslate2.Translator(str(tmp_path / "fast"))
    ours = greedy_translator(model, tokenizer)(texts)
    assert ctranslate2_greedy_translator(translator, tokenizer)(texts) == ours
    assert len({*map(tuple, ours)}) == len(ours)


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
    translator = ctranslate2.Translator(str(tmp_path / "fast"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = ctranslate2_greedy_translator(translator, tokenizer)
    ours = greedy_translator(tiny_model, tiny_tokenizer)
    assert theirs(SENTENCES) == ours(SENTENCES)


def test_to_ctranslate2_refuses_sentencepiece_and_nonempty_folders(tmp_path):
    model, tokenizer = tiny.tiny_model(vocab_size=50), build_marian_tokenizer(tmp_path)
    folder = save_model_folder(model, tokenizer, tmp_path / "ours")
    with pytest.raises(ValueError, match="its tokenizer has no `tokenizer.json`"):
        WRITERS["ctranslate2"](folder, tmp_path / "fast", SENTENCES)
    assert not (tmp_path / "fast").exists()
    with pytest.raises(OSError, match="is not empty"):
        WRITERS["ctranslate2"](folder, folder, SENTENCES)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "vanilla_transformer"


@pytest.fixture(scope="module")
def converted(tiny_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    ours = save_model_folder(tiny.tiny_model(), tiny_tokenizer, folder / "ours")
    WRITERS["ctranslate2"](ours, folder / "fast", SENTENCES)
    return folder / "fast"


COMMANDS = [
    ["translate", "A man."],
    ["evaluate", "--source", "text", "--target", "text", "--metric", "loss"],
    ["serve", "--port", "0"],
    ["convert", "out", "--target_format", "marian"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_an_export_for_ctranslate2(command, converted, capsys, monkeypatch):
    monkeypatch.chdir(converted.parent)
    (converted.parent / "text").write_text("A man.\n")
    name, *words = command
    capsys.readouterr()
    assert main([name, str(converted), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    message = "is an export for CTranslate2. Translate with `ctranslate2.Translator`"
    assert message in line
    assert "docs/convert.md" in line
