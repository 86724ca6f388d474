"""Conversion from fairseq: files in its layout, and a checkpoint that fairseq 0.12.2, the newest,
has written.

`fairseq_0_12_2/` holds a tiny model, trained under Python 3.8 by `fairseq-train` without
`--source-lang`, its dictionaries and merges, 40 sources, and what `fairseq-generate` answers with
its default options.
"""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.fairseq_files import FSMT_SENTENCES, build_fsmt_tokenizer, fairseq_folder
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import READERS
from vanilla_transformer.extensions.conversion.fairseq import FAIRSEQ
from vanilla_transformer.extensions.conversion.formats import convert

CHECKPOINT = Path(__file__).parent / "fairseq_0_12_2"


def read_lines(name):
    return (CHECKPOINT / name).read_text(encoding="utf-8").splitlines()


def test_from_fairseq_generates_the_tokens_of_fairseq_generate(tmp_path):
    sources, expected = read_lines("sources.en"), read_lines("hypotheses.de")
    comparison = READERS["fairseq"](CHECKPOINT, tmp_path / "ours", sources)
    assert comparison.num_identical == 40
    assert comparison.max_logit_difference < 1e-3
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer.init_kwargs["langs"] == ["en", "de"]
    tokens = FAIRSEQ.read(CHECKPOINT).tokens[1]
    inputs = tokenizer(sources, padding=True, return_tensors="pt")
    for row, text in zip(model.generate(**inputs).tolist(), expected, strict=True):
        words = [tokens[index] for index in row if index > 2]
        assert " ".join(words) == text


def test_model_from_fairseq_decodes_as_fairseq_generate(tmp_path):
    model = convert(FAIRSEQ, fairseq_folder(tmp_path / "fairseq")).model
    options = model.generation_config
    assert options.num_beams == 5
    assert options.early_stopping is True
    assert options.min_new_tokens == 1
    # A model that prefers to say nothing, which `--min-len 1` rules out
    norm = model.model.decoder.layers[-1].final_layer_norm
    with torch.no_grad():
        model.lm_head.weight[2] = 100 * norm.bias
    tokens = model.generate(torch.tensor([[5, 6, 2]]))
    assert (tokens[0, 1:] != 2).any()


def test_read_fairseq_ignores_copies_of_untrained_weights(tmp_path):
    content = torch.load(CHECKPOINT / "checkpoint_best.pt", weights_only=False)
    names = {"encoder.layers.0.in_proj_weight", "encoder.layers.0.fc2_bias"}
    assert names <= content["model"].keys()
    for name in FAIRSEQ.read(CHECKPOINT).weights:
        assert not name.endswith(("_weight", "_bias"))


def equal_dictionaries(folder):
    """Copy the checkpoint with two dictionaries of the same size, which fit both directions."""
    shutil.copytree(CHECKPOINT, folder)
    content = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    weights, name = content["model"], "encoder.embed_tokens.weight"
    weights[name] = weights[name][:128]
    torch.save(content, folder / "checkpoint_best.pt")
    shutil.copy(folder / "dict.de.txt", folder / "dict.en.txt")
    return folder


def test_read_fairseq_needs_languages_that_nothing_names(tmp_path):
    folder = equal_dictionaries(tmp_path / "fairseq")
    message = r"\(de, en\) fit 2 directions. Name both .*`--languages en de`"
    with pytest.raises(ValueError, match=message):
        FAIRSEQ.read(folder)
    tokenizer = FAIRSEQ.read(folder, ["de", "en"]).build_tokenizer()
    assert tokenizer.init_kwargs["langs"] == ["de", "en"]


def test_convert_takes_languages(tmp_path, capsys):
    folder, text = equal_dictionaries(tmp_path / "fairseq"), tmp_path / "text"
    text.write_text("\n".join(FSMT_SENTENCES))
    flags = ["--source_format", "fairseq", "--sentences", str(text)]
    arguments = ["convert", str(folder), str(tmp_path / "ours"), *flags]
    assert main(arguments) == 2
    assert "--languages en de" in capsys.readouterr().err
    assert main([*arguments, "--languages", "en"]) == 2
    assert "must be the source and the target language" in capsys.readouterr().err
    assert main([*arguments, "--languages", "en", "de"]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer.init_kwargs["langs"] == ["en", "de"]


def test_convert_refuses_languages_of_other_formats(capsys):
    flags = ["--source_format", "eole", "--languages", "en", "de"]
    assert main(["convert", "a", "b", *flags]) == 2
    refusal = capsys.readouterr().err
    assert "`--languages` needs `--source_format fairseq or m2m_100`" in refusal


@pytest.mark.parametrize("old", [False, True])
def test_read_fairseq_translates_as_fsmt(old, tmp_path):
    folder = fairseq_folder(tmp_path / "fairseq", old)
    comparison = READERS["fairseq"](folder, tmp_path / "ours", FSMT_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    assert comparison.max_logit_difference < 1e-3
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    expected = build_fsmt_tokenizer(tmp_path)(FSMT_SENTENCES)["input_ids"]
    assert tokenizer(FSMT_SENTENCES)["input_ids"] == expected
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert model.generation_config.num_beams == 5
    assert model.generation_config.decoder_start_token_id == 2


def test_from_fairseq_keeps_the_options_of_the_model(tmp_path):
    choices = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    choices |= {"encoder_learned_pos": True, "decoder_learned_pos": True}
    choices |= {"share_decoder_input_output_embed": True, "no_scale_embedding": True}
    choices |= {"max_source_positions": 64, "max_target_positions": 64}
    folder = fairseq_folder(tmp_path / "fairseq", **choices)
    model = convert(FAIRSEQ, folder).model
    config = model.config
    assert (
        config.normalize_before
        and config.tie_word_embeddings
        and not config.share_encoder_decoder_embeddings
    )
    assert (config.max_position_embeddings, config.scale_embedding) == (64, False)
    theirs = FAIRSEQ.read(folder).weights["encoder.embed_positions.weight"]
    assert torch.equal(model.model.encoder.embed_positions.weight, theirs[2:])
    assert READERS["fairseq"](folder, tmp_path / "ours", FSMT_SENTENCES) is None


class Harmful:
    def __reduce__(self):
        return (print, ("run",))


def test_from_fairseq_runs_no_code_from_a_checkpoint(tmp_path, capsys):
    folder = fairseq_folder(tmp_path / "fairseq")
    torch.save({"model": Harmful()}, folder / "checkpoint_best.pt")
    assert main(["convert", str(folder), str(tmp_path / "ours"), "--source_format", "fairseq"]) == 2
    shown = capsys.readouterr()
    assert "cannot be read safely" in shown.err and "run" not in shown.out
