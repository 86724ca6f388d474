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

PAIRS = [
    SentencePair("A man is sleeping.", "Ein Mann schläft."),
    SentencePair("Two dogs run across the green grass.", "Zwei Hunde laufen über das grüne Gras."),
]
HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


CHOICES = [*([head] for head in HEADS), HEADS[:2], HEADS[2:]]


def write_pairs(folder):
    (folder / "en").write_text("".join(f"{pair.source}\n" for pair in PAIRS))
    (folder / "de").write_text("".join(f"{pair.target}\n" for pair in PAIRS))
    return ["--source", str(folder / "en"), "--target", str(folder / "de")]


def links_printed(capsys):
    lines = capsys.readouterr().out.splitlines()
    return [parse_alignment(line, pair, "output") for line, pair in zip(lines, PAIRS, strict=True)]


def test_rank_alignment_heads_finds_the_heads_that_gave_the_alignments(tiny_tokenizer):
    model = tiny_model(decoder_layers=2)
    rows = [*align_given(model, tiny_tokenizer, PAIRS, CHOICES)]
    assert rows[0][4] not in rows[0][:2]  # two heads together align in another way
    for place, heads in enumerate(CHOICES):
        best, *others = rank_alignment_heads(
            model, tiny_tokenizer, PAIRS, [row[place] for row in rows]
        )
        assert (best.heads, best.error) == (heads, 0.0)
        assert [each.error for each in others] == sorted(each.error for each in others) and others[
            0
        ].error > 0
        assert len(others) == 5


def test_choose_alignment_head_stores_the_best_head(tiny_tokenizer, tmp_path, capsys):
    model = tiny_model(decoder_layers=2)
    folder, files = (
        save_model_folder(model, tiny_tokenizer, tmp_path / "model"),
        write_pairs(tmp_path),
    )
    rows = align_given(model, tiny_tokenizer, PAIRS, [[(1, 0)]])
    lines = (" ".join(f"{here}-{there}" for here, there in links) + "\n" for (links,) in rows)
    (tmp_path / "align").write_text("".join(lines))
    assert (
        main(
            ["choose-alignment-head", str(folder), *files, "--alignments", str(tmp_path / "align")]
        )
        == 0
    )
    assert (
        "layer and head 1-0: alignment error rate 0.0% against the given" in capsys.readouterr().out
    )
    config = VanillaTransformerConfig.from_pretrained(folder)
    assert config.alignment_heads == [[1, 0]] and config.d_model == model.config.d_model
    assert main(["choose-alignment-head", str(folder), *files]) == 0
    assert "against a lexical model" in capsys.readouterr().out
    assert main(["translate", str(folder), "A man.", "--num_beams", "1", "--alignments"]) == 0


def test_rank_alignment_heads_names_models_without_weights(tiny_tokenizer):
    with pytest.raises(
        ValueError, match="softmax cross-attention, got VanillaTransformerLinearAttention"
    ):
        rank_alignment_heads(
            tiny_long_model(cross_attention_type="linear_attention"), tiny_tokenizer, PAIRS
        )
    with pytest.raises(
        ValueError, match="There must be sentences to choose an alignment head on, got none"
    ):
        rank_alignment_heads(tiny_model(), tiny_tokenizer, [])


def test_choose_alignment_head_needs_a_folder(tmp_path, capsys):
    assert main(["choose-alignment-head", "name/of-hub", "--source", "a", "--target", "b"]) == 2
    assert (
        "error: The model must be a folder, whose config.json can be changed"
        in capsys.readouterr().err
    )


def test_align_given_follows_the_model_on_a_single_pair(tiny_tokenizer):
    torch.manual_seed(0)
    together = [*align_given(tiny_model(), tiny_tokenizer, PAIRS, [[(0, 1)]])]
    alone = [
        row
        for pair in PAIRS
        for row in align_given(tiny_model(), tiny_tokenizer, [pair], [[(0, 1)]])
    ]
    assert together == alone


def test_write_alignments_puts_the_heads_of_two_directions_together(
    tiny_tokenizer, tmp_path, capsys
):
    forward, backward = tiny_model(decoder_layers=2), tiny_model(seed=1, vocab_size=290)
    forward.config.alignment_heads, backward.config.alignment_heads = [[1, 0], [1, 1]], [[0, 1]]
    save_model_folder(forward, tiny_tokenizer, tmp_path / "forward")
    other = train_tokenizer([pair.target for pair in PAIRS] * 3, vocab_size=290)
    save_model_folder(backward, other, tmp_path / "backward")
    files, folders = write_pairs(tmp_path), [str(tmp_path / "forward"), str(tmp_path / "backward")]
    assert main(["write-alignments", folders[0], *files]) == 0
    alone = links_printed(capsys)
    assert main(["write-alignments", *folders, *files]) == 0
    together = links_printed(capsys)
    swapped = [SentencePair(pair.target, pair.source) for pair in PAIRS]
    reverse = align_by_heads(backward.eval(), other, swapped)
    assert alone == align_by_heads(forward.eval(), tiny_tokenizer, PAIRS)
    assert together == grow_diagonally(alone, reverse) != alone


def test_write_alignments_names_models_that_cannot_align(tiny_tokenizer, tmp_path, capsys):
    files, folder = (
        write_pairs(tmp_path),
        str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model")),
    )
    linear = tiny_long_model(cross_attention_type="linear_attention")
    save_model_folder(linear, tiny_tokenizer, tmp_path / "linear")
    save_model_folder(tiny_causal_lm(), tiny_tokenizer, tmp_path / "decoder")
    for models, message in [
        ([folder], "configuration must have `alignment_heads`, got none."),
        (
            [str(tmp_path / "linear")],
            "softmax cross-attention, got VanillaTransformerLinearAttention",
        ),
        ([str(tmp_path / "decoder")], "A model with an encoder and a decoder aligns words, but"),
        ([folder] * 3, "`models` must be a list of words with at most 2, got "),
    ]:
        assert main(["write-alignments", *models, *files]) == 2
        assert message in capsys.readouterr().err
