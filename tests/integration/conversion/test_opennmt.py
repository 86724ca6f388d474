"""Conversion from OpenNMT-py and eole, compared with the toolkits, which the tests install into separate folders."""

import argparse
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
import yaml
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import TranslationPipeline, VanillaTransformerConfig
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from vanilla_transformer.cli import main
from vanilla_transformer.conversion.marian import model_to_marian
from vanilla_transformer.conversion.opennmt import (
    from_eole,
    from_opennmt_py,
    model_from_opennmt,
    read_eole,
    read_opennmt_py,
)
from vanilla_transformer.data.demo_corpus import read_demo_corpus

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
PAIRS = read_demo_corpus("test", 200)
PACKAGES = {
    "eole": ["eole==0.6.4", "pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick", "six"],
    "opennmt-py": ["OpenNMT-py==3.5.1", "pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick", "fasttext-wheel"],
}


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    """Write text of both languages, a SentencePiece model and the list of its pieces."""
    folder = tmp_path_factory.mktemp("text")
    for side in ("source", "target"):
        (folder / side).write_text("\n".join(getattr(pair, side) for pair in PAIRS) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder / 'source'},{folder / 'target'}",
        model_prefix=str(folder / "sp"),
        vocab_size=300,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sp.model"))
    names = [pieces.id_to_piece(index) for index in range(3, len(pieces))]
    (folder / "vocab").write_text("\n".join(names) + "\n")
    return folder


def toolkit_config(toolkit, text_folder, folder, shared, activation):
    """Return a training configuration; `shared` ties source, target and output projection."""
    shape = {"heads": 2, "hidden_size": 16, "transformer_ff": 32}
    shape |= {"share_embeddings": shared, "share_decoder_embeddings": shared, "add_qkvbias": not shared}
    spm = {f"{side}_subword_model": str(text_folder / "sp.model") for side in ("src", "tgt")}
    training = {"train_steps": 20, "save_checkpoint_steps": 20, "batch_size": 256, "batch_type": "tokens"}
    training |= {"num_workers": 0, "optim": "adam", "learning_rate": 0.05, "normalization": "tokens"}
    corpus = {"path_src": str(text_folder / "source"), "path_tgt": str(text_folder / "target")}
    config = {f"{side}_vocab": str(text_folder / "vocab") for side in ("src", "tgt")}
    config |= {"data": {"corpus": corpus | {"transforms": ["sentencepiece"]}}, "share_vocab": shared, "seed": 1}
    if toolkit == "opennmt-py":
        shape |= {"enc_layers": 2, "dec_layers": 1, "word_vec_size": 16, "pos_ffn_activation_fn": activation}
        shape |= {"encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True}
        return config | shape | spm | training | {"world_size": 1, "save_model": str(folder / "model")}
    shape["add_final_linear_bias"] = not shared  # or eole forgets the encoder's
    shape |= {"architecture": "transformer", "mlp_activation_fn": activation, "norm_eps": 1e-4}
    shape |= {"encoder": {"layers": 2}, "decoder": {"layers": 1}}
    shape["embeddings"] = {"word_vec_size": 16, "position_encoding_type": "SinusoidalInterleaved"}
    config |= {"transforms": ["sentencepiece"], "transforms_configs": {"sentencepiece": spm}, "model": shape}
    return config | {"training": training | {"world_size": 0, "model_path": str(folder / "model")}}


def encoded(text_folder):
    """Return the source ids of both toolkits: SentencePiece pieces, special tokens first, no EOS."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(text_folder / "sp.model"))
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    sources = [pieces.encode(pair.source, out_type=str) for pair in PAIRS]
    return [[vocabulary.index(piece) if piece in vocabulary else 0 for piece in source] for source in sources]


@pytest.fixture(scope="module", params=list(PACKAGES))
def toolkit(request, tmp_path_factory):
    """Install a toolkit without the dependencies that the tested parts do not use."""
    target = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    installed = subprocess.run([*command, *PACKAGES[request.param]], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return request.param, target


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(("shared", "activation"), [(True, "relu"), (False, "gelu")], ids=["shared", "separate"])
def test_opennmt_has_the_tokens_and_logits_of_the_toolkit(
    shared, activation, toolkit, text_folder, tmp_path, record_property
):
    name, packages = toolkit
    folder = tmp_path / "theirs"
    folder.mkdir()
    config = toolkit_config(name, text_folder, folder, shared, activation)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    sources = encoded(text_folder)
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parents[2] / "opennmt_models.py"), name, str(folder)],
        env=os.environ | {"PYTHONPATH": str(packages)},
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    given = folder / "model" if name == "eole" else folder / "model_step_20.pt"
    assert main(["convert", str(given), str(tmp_path / "ours"), "--source_format", name]) == 0
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    answers = json.loads((folder / "answers.json").read_text())
    identical, largest = 0, 0.0
    for pair, source, theirs in zip(PAIRS, sources, answers, strict=True):
        inputs = tokenizer(pair.source, return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*source, tokenizer.eos_token_id]
        options = {"num_beams": 1, "max_new_tokens": 12, "eos_token_id": None}
        identical += model.generate(**inputs, **options)[0].tolist() == theirs["tokens"]
        logits = model(**inputs, decoder_input_ids=torch.tensor([theirs["tokens"][:-1]])).logits[0]
        largest = max(largest, float((logits - torch.tensor(theirs["logits"])).abs().max()))
    logging.getLogger(__name__).info("%s: largest logit difference %.1e", name, largest)
    assert identical == len(PAIRS)
    assert largest < 1e-4


def opennmt_options(**changes):
    options = {"enc_layers": 1, "dec_layers": 1, "hidden_size": 8, "heads": 2, "transformer_ff": 16}
    options |= {"pos_ffn_activation_fn": "relu", "share_embeddings": True, "share_decoder_embeddings": True}
    options |= {"src_subword_model": "elsewhere/sp.model", "encoder_type": "transformer"}
    return options | {"data": {"corpus": {"transforms": ["sentencepiece"]}}, "decoder_type": "transformer"} | changes


def opennmt_checkpoint(text_folder, tmp_path, **changes):
    """Write a file in OpenNMT-py's layout with random weights."""
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    (tmp_path / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    layer = {f"self_attn.{name}.weight": (8, 8) for name in ("linear_query", "linear_keys", "linear_values")}
    layer |= {"self_attn.final_linear.weight": (8, 8), "feed_forward.w_1.weight": (16, 8)}
    layer |= {"feed_forward.w_2.weight": (8, 16)}
    norms = {"encoder": ["layer_norm"], "decoder": ["layer_norm_1", "layer_norm_2"]}
    shapes = {}
    for stack, layers in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        shapes[f"{stack}.embeddings.make_embedding.emb_luts.0.weight"] = (len(vocabulary), 8)
        shapes[f"{stack}.embeddings.make_embedding.pe.pe"] = (5, 1, 8)
        inside = dict(layer)
        if stack == "decoder":
            inside |= {name.replace("self_attn", "context_attn"): shape for name, shape in layer.items()}
        for norm in [*norms[stack], "feed_forward.layer_norm"]:
            inside |= {f"{norm}.weight": (8,), f"{norm}.bias": (8,)}
        shapes |= {f"{stack}.{layers}.0.{name}": shape for name, shape in inside.items()}
        shapes |= {f"{stack}.layer_norm.weight": (8,), f"{stack}.layer_norm.bias": (8,)}
    weights = {name: torch.randn(shape) for name, shape in shapes.items()}
    weights["decoder.embeddings.make_embedding.emb_luts.0.weight"] = weights[
        "encoder.embeddings.make_embedding.emb_luts.0.weight"
    ]
    generator = {
        "weight": weights["encoder.embeddings.make_embedding.emb_luts.0.weight"],
        "bias": torch.randn(len(vocabulary)),
    }
    content = {"model": weights, "generator": generator, "opt": argparse.Namespace(**opennmt_options(**changes))}
    content["vocab"] = {"src": vocabulary, "tgt": vocabulary, "decoder_start_token": "<s>"}
    torch.save(content, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def test_source_eos_is_masked(text_folder, tmp_path):
    from_opennmt_py(opennmt_checkpoint(text_folder, tmp_path), tmp_path / "ours", [])
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    inputs = tokenizer(["The man sleeps.", "The old woman buys a red apple."], padding=True, return_tensors="pt")
    without = tokenizer.pad({"input_ids": [[*ids[:-1]] for ids in tokenizer(["The man sleeps."])["input_ids"]]})
    expected = model.generate(torch.tensor(without["input_ids"]), max_new_tokens=9, num_beams=3, eos_token_id=None)
    for mask in (inputs["attention_mask"], None):
        tokens = model.generate(
            inputs["input_ids"], attention_mask=mask, max_new_tokens=9, num_beams=3, eos_token_id=None
        )
        assert tokens[0].tolist() == expected[0].tolist()
    decoder_input_ids = torch.tensor([[2, 5, 6]])
    logits = model(torch.tensor(without["input_ids"]), decoder_input_ids=decoder_input_ids).logits
    with_eos = model(inputs["input_ids"][:1], decoder_input_ids=decoder_input_ids).logits
    torch.testing.assert_close(with_eos, logits)
    (answer,) = TranslationPipeline(model=model, tokenizer=tokenizer)(
        ["The man sleeps."], num_beams=3, max_new_tokens=9
    )
    assert isinstance(answer["translation_text"], str)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_source_eos_alone_gives_finite_logits(attention):
    sizes = {"vocab_size": 9, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    config = VanillaTransformerConfig(**sizes, source_eos=False, attn_implementation=attention)
    model = Model(config).eval()
    logits = model(torch.tensor([[4, 2], [2, 0]]), decoder_input_ids=torch.tensor([[1], [1]])).logits
    assert torch.isfinite(logits).all()


def test_writers_refuse_models_without_source_eos(text_folder, tmp_path):
    model = model_from_opennmt(read_opennmt_py(opennmt_checkpoint(text_folder, tmp_path)))
    with pytest.raises(ValueError, match="source_eos"):
        model_to_marian(model)
    from_opennmt_py(tmp_path / "model.pt", tmp_path / "ours", [])
    for form in ("onnx", "ctranslate2"):
        assert main(["convert", str(tmp_path / "ours"), str(tmp_path / form), "--target_format", form]) == 2
        assert not (tmp_path / form).exists()


def test_from_opennmt_py_lists_every_reason_and_writes_nothing(text_folder, tmp_path, capsys):
    path = opennmt_checkpoint(
        text_folder,
        tmp_path,
        pos_ffn_activation_fn="silu",
        max_relative_positions=20,
        data={"corpus": {"transforms": ["onmt_tokenize"]}},
        src_subword_model="",
    )
    assert main(["convert", str(path), str(tmp_path / "ours"), "--source_format", "opennmt-py"]) == 2
    message = capsys.readouterr().err
    for part in (
        "'silu'",
        "`max_relative_positions` is 20, not 0",
        "with onmt_tokenize",
        "not tokenize with SentencePiece",
    ):
        assert part in message
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1000]), ValueError, "cannot be read safely"),
        (lambda path: path.unlink(), OSError, "model.pt"),
        (lambda path: torch.save({"generator": {}, "model": {}, "opt": os.getcwd}, path), ValueError, "safely"),
        (lambda path: path.with_name("sp.model").unlink(), OSError, "elsewhere/sp.model"),
    ],
    ids=["truncated", "missing", "pickled function", "no SentencePiece"],
)
def test_from_opennmt_py_names_a_damaged_checkpoint(damage, error, message, text_folder, tmp_path):
    path = opennmt_checkpoint(text_folder, tmp_path)
    damage(path)
    with pytest.raises(error, match=message):
        from_opennmt_py(path, tmp_path / "ours", [])
    assert not (tmp_path / "ours").exists()


def eole_folder(text_folder, folder, **changes):
    """Write a folder in eole's layout with one tensor, for the checks that precede loading the weights."""
    folder.mkdir()
    (folder / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    side = {"hidden_size": 8, "layers": 1, "heads": 2} | changes
    model = {"encoder": side | {"encoder_type": "transformer"}, "decoder": side | {"decoder_type": "transformer"}}
    spm = {"src_subword_model": "${MODEL_PATH}/sp.model", "tgt_subword_model": "${MODEL_PATH}/sp.model"}
    config = {"model": model, "transforms": ["sentencepiece"], "transforms_configs": {"sentencepiece": spm}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({"src": SPECIAL, "tgt": SPECIAL}))
    save_file({"src_emb.embeddings.weight": torch.zeros(4, 8)}, folder / "model.00.safetensors")
    return folder


def test_read_eole_lists_every_reason(text_folder, tmp_path):
    folder = eole_folder(
        text_folder, tmp_path / "eole", position_encoding_type="Rotary", mlp_activation_fn="gated-silu"
    )
    with pytest.raises(
        ValueError, match="'Rotary', not 'SinusoidalInterleaved'; its activation function is 'gated-silu'"
    ):
        read_eole(folder)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda folder: (folder / "model.00.safetensors").write_bytes(b"\0" * 20), ValueError, "truncated or damaged"),
        (lambda folder: (folder / "vocab.json").unlink(), OSError, "vocab.json"),
        (lambda folder: (folder / "config.json").write_text("{"), ValueError, "not valid JSON"),
        (lambda folder: (folder / "config.json").write_text("{}"), ValueError, "must have eole's format"),
        (lambda folder: None, ValueError, "do not match the options"),
    ],
    ids=["truncated weights", "no vocabulary", "invalid JSON", "another configuration", "missing weights"],
)
def test_from_eole_names_a_damaged_file(damage, error, message, text_folder, tmp_path):
    folder = eole_folder(text_folder, tmp_path / "eole")
    damage(folder)
    with pytest.raises(error, match=message):
        from_eole(folder, tmp_path / "ours", [])
    assert not (tmp_path / "ours").exists()
