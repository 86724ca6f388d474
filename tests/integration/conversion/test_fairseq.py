"""Conversion from fairseq and FSMT: the same logits and translations."""

import argparse
import json
import logging

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, FSMTConfig, FSMTForConditionalGeneration, FSMTTokenizer

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.conversion.fairseq import (
    from_fairseq,
    from_fsmt,
    model_from_fairseq,
    model_from_fsmt,
    read_fairseq,
)
from vanilla_transformer.data.demo_corpus import read_demo_corpus

LOGGER = logging.getLogger(__name__)
SENTENCES = ["a man is sleeping .", "two dogs run", "dogs !"]
# 200 is the number of sentences of the table in docs/convert.md.
COUNTS = [3, pytest.param(200, marks=pytest.mark.slow)]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
MERGES = ["d o", "g s</w>", "m a", "i s</w>"]
PIECES = [*"abcdefghijklmnopqrstuvwxyz.!", "do", "ma"]
DICTIONARY = [*(f"{piece}@@" for piece in PIECES), *PIECES[:28], "gs", "is"]
SIZES = {"encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 4}
FAIRSEQ_SIZES = SIZES | {"encoder_embed_dim": 16, "decoder_embed_dim": 16}
FAIRSEQ_SIZES |= {"encoder_ffn_embed_dim": 32, "decoder_ffn_embed_dim": 24}


def sentences(count):
    return SENTENCES if count == 3 else [pair.source for pair in read_demo_corpus("test", count)]


@pytest.fixture
def fsmt_tokenizer(tmp_path):
    folder = tmp_path / "vocabularies"
    folder.mkdir()
    names = ["<s>", "<pad>", "</s>", "<unk>", *PIECES, *(f"{piece}</w>" for piece in [*PIECES[:28], "gs", "is"])]
    for side in ("source", "target"):
        (folder / side).write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (folder / "merges").write_text("\n".join(MERGES) + "\n")
    return FSMTTokenizer(["en", "de"], str(folder / "source"), str(folder / "target"), str(folder / "merges"))


def fsmt(vocab_size, **changes):
    torch.manual_seed(0)
    config = FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=vocab_size,
        tgt_vocab_size=changes.pop("tgt_vocab_size", vocab_size),
        d_model=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=24,
        init_std=0.3,
        forced_eos_token_id=None,
        **SIZES,
        **changes,
    )
    model = FSMTForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.parametrize(
    "changes", [{}, {"scale_embedding": False, "tgt_vocab_size": 29}, {"tie_word_embeddings": True}]
)
def test_model_from_fsmt_has_the_logits_of_fsmt(changes):
    original = fsmt(31, **changes)
    converted = model_from_fsmt(original)
    source, target = torch.randint(4, 29, (3, 9)), torch.randint(4, 29, (3, 7))
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 2 + [0] * 7])
    source = source.masked_fill(mask == 0, 1)
    given = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target, "use_cache": False}
    torch.testing.assert_close(converted(**given).logits, original(**given).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("count", COUNTS)
def test_from_fsmt_translates_as_fsmt(count, fsmt_tokenizer, tmp_path):
    original = fsmt(len(fsmt_tokenizer.encoder))
    original.save_pretrained(tmp_path / "fsmt")
    fsmt_tokenizer.save_pretrained(tmp_path / "fsmt")
    comparison = from_fsmt(tmp_path / "fsmt", tmp_path / "ours", sentences(count))
    LOGGER.info("FSMT: %s", comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (
        count,
        count,
    ) and comparison.max_logit_difference < 1e-3
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert type(tokenizer) is FSMTTokenizer
    ours = TranslationPipeline(model, tokenizer, task="translation")(SENTENCES, num_beams=2, max_new_tokens=20)
    theirs = TranslationPipeline(original, fsmt_tokenizer, task="translation")(
        SENTENCES, num_beams=2, max_new_tokens=20
    )
    assert ours == theirs


def fairseq_folder(folder, old=False, **arguments):
    """Write a fairseq folder with random weights.

    fairseq does not install on this version of Python. Names and shapes are the ones that FSMT's conversion reads.
    """
    folder.mkdir()
    given = {"source_lang": "en", "target_lang": "de", "activation_fn": "relu", **FAIRSEQ_SIZES, **arguments}
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{token} 7\n" for token in DICTIONARY))
    (folder / "bpecodes").write_text("#version: 0.2\n" + "".join(f"{merge} 12\n" for merge in MERGES))
    reference = fsmt(len(DICTIONARY) + 4).state_dict()
    weights = {name.removeprefix("model."): tensor for name, tensor in reference.items()}
    for side in ("encoder", "decoder"):
        del weights[f"{side}.embed_positions.weight"]
        weights[f"{side}.version"] = torch.tensor([3.0])
        weights[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if arguments.get(f"{side}_normalize_before"):
            weights |= {f"{side}.layer_norm.weight": torch.ones(16), f"{side}.layer_norm.bias": torch.zeros(16)}
        if arguments.get(f"{side}_learned_pos"):
            weights[f"{side}.embed_positions.weight"] = torch.randn(66, 16)
    if arguments.get("share_decoder_input_output_embed"):
        weights["decoder.output_projection.weight"] = weights["decoder.embed_tokens.weight"]
    content = {"model": weights, "args": argparse.Namespace(**given)} if old else {
        "model": weights,
        "args": None,
        "cfg": {"model": argparse.Namespace(**given), "task": {"source_lang": "en", "target_lang": "de"}},
    }  # fmt: skip
    torch.save(content, folder / "checkpoint_best.pt")
    return folder


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("old", [False, True])
def test_from_fairseq_translates_as_fsmt(old, count, tmp_path, fsmt_tokenizer):
    folder = fairseq_folder(tmp_path / "fairseq", old)
    comparison = from_fairseq(folder, tmp_path / "ours", sentences(count))
    LOGGER.info("fairseq: %s", comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (
        count,
        count,
    ) and comparison.max_logit_difference < 1e-3
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer(SENTENCES)["input_ids"] == fsmt_tokenizer(SENTENCES)["input_ids"]
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert (model.generation_config.num_beams, model.generation_config.decoder_start_token_id) == (5, 2)


def test_from_fairseq_keeps_the_options_of_the_model(tmp_path):
    choices = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    choices |= {"encoder_learned_pos": True, "decoder_learned_pos": True, "share_decoder_input_output_embed": True}
    choices |= {"max_source_positions": 64, "max_target_positions": 64, "no_scale_embedding": True}
    folder = fairseq_folder(tmp_path / "fairseq", **choices)
    model = model_from_fairseq(read_fairseq(folder))
    config = model.config
    assert config.normalize_before and config.tie_word_embeddings and not config.share_encoder_decoder_embeddings
    assert (config.max_position_embeddings, config.scale_embedding) == (64, False)
    theirs = read_fairseq(folder).weights["encoder.embed_positions.weight"]
    assert torch.equal(model.model.encoder.embed_positions.weight, theirs[2:])
    assert from_fairseq(folder, tmp_path / "ours", SENTENCES) is None


def test_from_fairseq_lists_every_reason_and_writes_nothing(tmp_path):
    folder = fairseq_folder(
        tmp_path / "fairseq", layernorm_embedding=True, activation_fn="linear", decoder_embed_dim=8
    )
    with pytest.raises(
        ValueError, match="widths .* differ; its activation function is 'linear'; its embeddings are normalized"
    ):
        from_fairseq(folder, tmp_path / "ours", SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


class Harmful:
    def __reduce__(self):
        return (print, ("run",))


def test_from_fairseq_runs_no_code_from_a_checkpoint(tmp_path, capsys):
    folder = fairseq_folder(tmp_path / "fairseq")
    torch.save({"model": Harmful()}, folder / "checkpoint_best.pt")
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "fairseq"]) == 2
    shown = capsys.readouterr()
    assert "cannot be read safely" in shown.err and "run" not in shown.out


@pytest.mark.parametrize(
    ("missing", "message"),
    [("checkpoint_best.pt", "one checkpoint"), ("dict.de.txt", "dict.de.txt"), ("bpecodes", "bpecodes")],
)
def test_from_fairseq_names_a_missing_file(missing, message, tmp_path):
    folder = fairseq_folder(tmp_path / "fairseq")
    (folder / missing).unlink()
    with pytest.raises(OSError, match=message):
        from_fairseq(folder, tmp_path / "ours", SENTENCES)


def test_from_fairseq_names_unknown_weights(tmp_path):
    folder = fairseq_folder(tmp_path / "fairseq")
    content = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    content["model"]["encoder.layers.0.gate.weight"] = torch.zeros(1)
    torch.save(content, folder / "checkpoint_best.pt")
    with pytest.raises(ValueError, match=r"unknown weights \['encoder.layers.0.gate.weight'\]"):
        from_fairseq(folder, tmp_path / "ours", SENTENCES)
