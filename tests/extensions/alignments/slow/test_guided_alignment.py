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


@pytest.mark.parametrize("given", [True, False])
def test_train_with_alignments_lets_a_head_align_words(corpus, alignments, tmp_path, given):
    options = {
        "train_alignments": alignments if given else "agreement",
        "alignment_weight": 2.0,
        "decoder_layers": 2,
        "d_model": 32,
    }
    options |= {"max_steps": 100, "eval_steps": 100, "save_steps": 100, "average_checkpoints": 1}
    options |= {"learning_rate_scale": 0.25, "max_tokens": 200}
    run = train(parse_recipe(flags(corpus, tmp_path / "run", **options)), evaluate=no_scores)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(run), load_tokenizer(run)
    assert model.config.alignment_heads == [[1, 0]]
    pairs = read_text_files(corpus / "validation.a", corpus / "validation.b")
    found = [row[0] for row in align_given(model.eval(), tokenizer, pairs, [[(1, 0)]])]
    expected = [{(place, place) for place in range(len(pair.source.split()))} for pair in pairs]
    gold = [GoldAlignment(links, links) for links in expected]
    assert score_alignments(found, gold).error_rate < 0.1


@pytest.mark.parametrize("given", [True, False])
def test_train_with_alignments_resumes_bit_for_bit(
    corpus, alignments, tmp_path, monkeypatch, given
):
    options = {
        "train_alignments": alignments if given else "agreement",
        "dropout": 0.3,
        "ema_decay": 0.9,
        "alignment_layer": 0,
    }
    straight = train(
        parse_recipe(flags(corpus, tmp_path / "straight", **options)), evaluate=no_scores
    )
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **options))
    kill_at_step(recipe, monkeypatch, 4)
    resumed = parse_recipe(flags(corpus, tmp_path / "killed", dataloader_num_workers=1, **options))
    assert_same_run(straight, train(resumed, evaluate=no_scores))


def test_train_with_alignments_is_the_same_on_two_processes(corpus, alignments, tmp_path):
    assert_two_processes_match_one(
        corpus, tmp_path, train_alignments=alignments, alignment_weight=1.0
    )
