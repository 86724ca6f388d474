"""Heads of cross-attention are ranked by the words that they align, and the best one is stored."""

import pytest
import torch

from tests.tiny import tiny_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.cli import main
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.extensions.alignments.alignment_scores import (
    align_by_heads,
    align_given,
    rank_alignment_heads,
)
from vanilla_transformer.extensions.alignments.word_alignments import (
    grow_diagonally,
    parse_alignment,
)
from vanilla_transformer.loading.model_folders import save_model_folder

GERMAN = "Zwei Hunde laufen über das grüne Gras."
PAIRS = [
    SentencePair("A man is sleeping.", "Ein Mann schläft."),
    SentencePair("Two dogs run across the green grass.", GERMAN),
]
HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


CHOICES = [*([head] for head in HEADS), HEADS[:2], HEADS[2:]]


def write_pairs(folder):
    source, target = folder / "en", folder / "de"
    source.write_text("".join(f"{pair.source}\n" for pair in PAIRS))
    target.write_text("".join(f"{pair.target}\n" for pair in PAIRS))
    return ["--source", str(source), "--target", str(target)]


def links_printed(capsys):
    lines = capsys.readouterr().out.splitlines()
    rows = zip(lines, PAIRS, strict=True)
    return [parse_alignment(line, pair, "output") for line, pair in rows]


def test_rank_alignment_heads_finds_the_heads_that_align(tiny_tokenizer):
    model = tiny_model(decoder_layers=2)
    rows = [*align_given(model, tiny_tokenizer, PAIRS, CHOICES)]
    assert rows[0][4] not in rows[0][:2]  # two heads together align in another way
    for position, heads in enumerate(CHOICES):
        alignments = [row[position] for row in rows]
        best, *others = rank_alignment_heads(model, tiny_tokenizer, PAIRS, alignments)
        assert (best.heads, best.error) == (heads, 0.0)
        errors = [choice.error for choice in others]
        assert errors == sorted(errors)
        assert errors[0] > 0
        assert len(errors) == 5


def test_choose_alignment_head_stores_the_best_head(tiny_tokenizer, tmp_path, capsys):
    model = tiny_model(decoder_layers=2)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    files = write_pairs(tmp_path)
    lines = []
    for (links,) in align_given(model, tiny_tokenizer, PAIRS, [[(1, 0)]]):
        words = [f"{here}-{there}" for here, there in links]
        lines.append(" ".join(words) + "\n")
    alignments = tmp_path / "align"
    alignments.write_text("".join(lines))
    command = ["choose-alignment-head", str(folder), *files]
    assert main([*command, "--alignments", str(alignments)]) == 0
    printed = capsys.readouterr().out
    assert "layer and head 1-0: alignment error rate 0.0% against the given" in printed
    config = VanillaTransformerConfig.from_pretrained(folder)
    assert config.alignment_heads == [[1, 0]]
    assert config.d_model == model.config.d_model
    assert main(command) == 0
    assert "against a lexical model" in capsys.readouterr().out
    translate = ["translate", str(folder), "A man.", "--num_beams", "1"]
    assert main([*translate, "--alignments"]) == 0


def test_rank_alignment_heads_names_models_without_weights(tiny_tokenizer):
    message = "softmax cross-attention, got VanillaTransformerLinearAttention"
    linear = tiny_long_model(cross_attention_type="linear_attention")
    with pytest.raises(ValueError, match=message):
        rank_alignment_heads(linear, tiny_tokenizer, PAIRS)
    message = "There must be sentences to choose an alignment head on, got none"
    with pytest.raises(ValueError, match=message):
        rank_alignment_heads(tiny_model(), tiny_tokenizer, [])


def test_choose_alignment_head_needs_a_folder(tmp_path, capsys):
    command = ["choose-alignment-head", "name/of-hub"]
    assert main([*command, "--source", "a", "--target", "b"]) == 2
    refusal = capsys.readouterr().err
    assert "error: The model must be a folder, whose config.json can be changed" in refusal


def test_align_given_follows_the_model_on_a_single_pair(tiny_tokenizer):
    torch.manual_seed(0)
    together = [*align_given(tiny_model(), tiny_tokenizer, PAIRS, [[(0, 1)]])]
    for pair, row in zip(PAIRS, together, strict=True):
        alone = align_given(tiny_model(), tiny_tokenizer, [pair], [[(0, 1)]])
        assert [*alone] == [row]


def test_write_alignments_joins_the_heads_of_two_directions(tiny_tokenizer, tmp_path, capsys):
    folders = [str(tmp_path / "forward"), str(tmp_path / "backward")]
    forward = tiny_model(decoder_layers=2)
    forward.config.alignment_heads = [[1, 0], [1, 1]]
    save_model_folder(forward, tiny_tokenizer, tmp_path / "forward")
    backward = tiny_model(seed=1, vocab_size=290)
    backward.config.alignment_heads = [[0, 1]]
    other = train_tokenizer([pair.target for pair in PAIRS] * 3, vocab_size=290)
    save_model_folder(backward, other, tmp_path / "backward")
    files = write_pairs(tmp_path)
    assert main(["write-alignments", folders[0], *files]) == 0
    alone = links_printed(capsys)
    assert main(["write-alignments", *folders, *files]) == 0
    together = links_printed(capsys)
    swapped = [SentencePair(pair.target, pair.source) for pair in PAIRS]
    reverse = align_by_heads(backward.eval(), other, swapped)
    assert alone == align_by_heads(forward.eval(), tiny_tokenizer, PAIRS)
    assert together == grow_diagonally(alone, reverse) != alone


def test_write_alignments_names_models_that_cannot_align(tiny_tokenizer, tmp_path, capsys):
    files = write_pairs(tmp_path)
    models = {"model": tiny_model(), "decoder": tiny_causal_lm()}
    models["linear"] = tiny_long_model(cross_attention_type="linear_attention")
    for name, model in models.items():
        save_model_folder(model, tiny_tokenizer, tmp_path / name)
    attention = "softmax cross-attention, got VanillaTransformerLinearAttention"
    for names, message in [
        (["model"], "configuration must have `alignment_heads`, got none."),
        (["linear"], attention),
        (["decoder"], "A model with an encoder and a decoder aligns words, but"),
        (["model"] * 3, "`models` must be a list of words with at most 2, got "),
    ]:
        models = [str(tmp_path / name) for name in names]
        assert main(["write-alignments", *models, *files]) == 2
        assert message in capsys.readouterr().err
