"""Training with guided alignment: the head aligns, a resumed run is the same run, and so are two
processes.
"""

import pytest
from transformers import AutoModelForSeq2SeqLM

from tests.tiny_runs import (
    assert_same_run,
    assert_two_processes_match_one,
    flags,
    kill_at_step,
    no_scores,
)
from vanilla_transformer.data.readers import read_text_files
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.extensions.alignments.alignment_scores import align_given, score_alignments
from vanilla_transformer.extensions.alignments.word_alignments import GoldAlignment
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


@pytest.mark.parametrize("from_file", [True, False])
def test_train_with_alignments_lets_a_head_align_words(corpus, alignments, tmp_path, from_file):
    options = {"train_alignments": alignments if from_file else "agreement"}
    options |= {"alignment_weight": 2.0, "decoder_layers": 2, "d_model": 32}
    options |= {"max_steps": 100, "eval_steps": 100, "save_steps": 100}
    options |= {"average_checkpoints": 1}
    options |= {"learning_rate_scale": 0.25, "max_tokens": 200}
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **options))
    run = train(recipe, evaluate=no_scores)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(run), load_tokenizer(run)
    assert model.config.alignment_heads == [[1, 0]]
    pairs = read_text_files(corpus / "validation.a", corpus / "validation.b")
    rows = align_given(model.eval(), tokenizer, pairs, [[(1, 0)]])
    links = [row[0] for row in rows]
    gold = []
    for pair in pairs:
        numbers = range(len(pair.source.split()))
        expected = {*zip(numbers, numbers, strict=True)}
        gold.append(GoldAlignment(expected, expected))
    assert score_alignments(links, gold).error_rate < 0.1


@pytest.mark.parametrize("from_file", [True, False])
def test_train_with_alignments_resumes_bit_for_bit(
    corpus, alignments, tmp_path, monkeypatch, from_file
):
    options = {"train_alignments": alignments if from_file else "agreement"}
    options |= {"dropout": 0.3, "ema_decay": 0.9, "alignment_layer": 0}

    def read_recipe(name, **changes):
        return parse_recipe(flags(corpus, tmp_path / name, **options, **changes))

    straight = train(read_recipe("straight"), evaluate=no_scores)
    kill_at_step(read_recipe("killed"), monkeypatch, 4)
    resumed = read_recipe("killed", dataloader_num_workers=1)
    assert_same_run(straight, train(resumed, evaluate=no_scores))


@pytest.mark.parametrize("augment", [None, "{phrases: 0.5}"])
def test_training_with_alignments_is_the_same_on_two_processes(
    corpus, alignments, tmp_path, augment
):
    options = {"train_alignments": alignments, "alignment_weight": 1.0, "augment": augment}
    assert_two_processes_match_one(corpus, tmp_path, **options)
