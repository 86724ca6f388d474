"""Conversion from fairseq and FSMT: the same logits and translations."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, FSMTTokenizer

from tests.fairseq_files import FSMT_SENTENCES, build_fsmt_tokenizer, fairseq_folder, fsmt
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.fairseq import (
    from_fairseq,
    from_fsmt,
    model_from_fairseq,
    model_from_fsmt,
    read_fairseq,
)


@pytest.fixture
def fsmt_tokenizer(tmp_path):
    return build_fsmt_tokenizer(tmp_path)


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


def test_from_fsmt_translates_as_fsmt(fsmt_tokenizer, tmp_path):
    original = fsmt(len(fsmt_tokenizer.encoder))
    original.save_pretrained(tmp_path / "fsmt")
    fsmt_tokenizer.save_pretrained(tmp_path / "fsmt")
    comparison = from_fsmt(tmp_path / "fsmt", tmp_path / "ours", FSMT_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    assert comparison.max_logit_difference < 1e-3
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert type(tokenizer) is FSMTTokenizer
    ours = TranslationPipeline(model, tokenizer, task="translation")(FSMT_SENTENCES, num_beams=2, max_new_tokens=20)
    theirs = TranslationPipeline(original, fsmt_tokenizer, task="translation")(
        FSMT_SENTENCES, num_beams=2, max_new_tokens=20
    )
    assert ours == theirs


@pytest.mark.parametrize("old", [False, True])
def test_from_fairseq_translates_as_fsmt(old, tmp_path, fsmt_tokenizer):
    folder = fairseq_folder(tmp_path / "fairseq", old)
    comparison = from_fairseq(folder, tmp_path / "ours", FSMT_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    assert comparison.max_logit_difference < 1e-3
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer(FSMT_SENTENCES)["input_ids"] == fsmt_tokenizer(FSMT_SENTENCES)["input_ids"]
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
    assert from_fairseq(folder, tmp_path / "ours", FSMT_SENTENCES) is None


class Harmful:
    def __reduce__(self):
        return (print, ("run",))


def test_from_fairseq_runs_no_code_from_a_checkpoint(tmp_path, capsys):
    folder = fairseq_folder(tmp_path / "fairseq")
    torch.save({"model": Harmful()}, folder / "checkpoint_best.pt")
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "fairseq"]) == 2
    shown = capsys.readouterr()
    assert "cannot be read safely" in shown.err and "run" not in shown.out
