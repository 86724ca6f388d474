"""Forced decoding gives the log-probabilities that decoding gives, for every attention that the
engine serves.
"""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from tests.closeness import close_to
from tests.engine_cases import (
    EOS,
    IMPOSSIBLE,
    random_case,
    random_long_case,
    random_long_prompt_case,
    random_prompt_case,
)
from tests.sweeps import rare, sample
from tests.tiny import TINY_SIZES, tiny_long_model, tiny_model
from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.forced_decoding import plan_scoring_batches, score_tokens
from vanilla_transformer.generation_vanilla_transformer import length_penalty

pytestmark = pytest.mark.filterwarnings("ignore:Unfeasible length")


def decoded(case):
    """Return the engine of a case, and each of its sources with each of its possible hypotheses."""
    engine = Engine(case.model, slots=case.slots, compile=False, **case.options)
    rows = engine.decode(case.sources, case.num_return_sequences)
    pairs = []
    for source, hypotheses in zip(case.sources, rows, strict=True):
        for hypothesis in hypotheses:
            if hypothesis.score > IMPOSSIBLE:
                pairs.append((source, hypothesis))
    return engine, pairs


def assert_is_consistent(hypothesis, options):
    penalty = (options.length_penalty, options.length_penalty_type)
    divisor = length_penalty(len(hypothesis.tokens), *penalty)
    log_probability = hypothesis.log_probability
    assert hypothesis.score == close_to(log_probability / divisor)
    assert sum(hypothesis.token_log_probabilities) == close_to(log_probability)


@torch.no_grad()
def continued(model, prompt, tokens):
    """Return the log-probability of each token that continues a prompt, token by token as the model
    decodes.
    """
    seen = prompt[:-1] if len(prompt) > 1 and prompt[-1] == EOS else prompt
    outputs = model(torch.tensor([seen]), use_cache=True)
    log_probabilities = []
    for token in tokens:
        row = outputs.logits[0, -1].log_softmax(dim=-1)
        log_probabilities.append(row[token].item())
        inputs = {"cache": outputs[CACHE], "use_cache": True}
        outputs = model(torch.tensor([[token]]), **inputs)
    return log_probabilities


@pytest.mark.parametrize("draw", [random_case, random_long_case])
@pytest.mark.parametrize("first", sample(range(0, 20, 5), 10))
def test_score_tokens_gives_log_probabilities_of_decoding(draw, first):
    for seed in range(first, first + 5):
        case = draw(seed)
        engine, pairs = decoded(case)
        sources, hypotheses = zip(*pairs, strict=True)
        tokens = [hypothesis.tokens for hypothesis in hypotheses]
        forced = score_tokens(case.model, [*sources], tokens, 64)
        for hypothesis, log_probabilities in zip(hypotheses, forced, strict=True):
            assert hypothesis.token_log_probabilities == close_to(log_probabilities)
            assert_is_consistent(hypothesis, engine.options)


@pytest.mark.parametrize("draw", [random_prompt_case, random_long_prompt_case])
@pytest.mark.parametrize("first", [0, rare(4)])
def test_engine_gives_log_probabilities_of_continued_prompts(draw, first):
    for seed in range(first, first + 4):
        case = draw(seed)
        engine, pairs = decoded(case)
        for source, hypothesis in pairs[:6]:
            eos = engine.options.eos_token_ids
            prompt = source[:-1] + [EOS] if source[-1] in eos else source
            expected = continued(case.model, prompt, hypothesis.tokens)
            assert hypothesis.token_log_probabilities == close_to(expected)
            assert_is_consistent(hypothesis, engine.options)


def test_score_tokens_does_not_depend_on_the_batch():
    model = tiny_model(vocab_size=40, init_std=0.4)
    sources = [[7, EOS], [5] * 9 + [EOS], [8, 9, EOS]]
    targets = [[6] * 7 + [EOS], [EOS], [9, 7, EOS]]
    alone = []
    for source, target in zip(sources, targets, strict=True):
        alone += score_tokens(model, [source], [target])
    for max_tokens in (1, 16, 1000):
        together = score_tokens(model, sources, targets, max_tokens)
        assert [*map(len, together)] == [8, 1, 3]
        for row, expected in zip(together, alone, strict=True):
            assert row == close_to(expected)


def marian_model():
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    sizes = {"vocab_size": 40, "max_position_embeddings": 8, **TINY_SIZES}
    config = MarianConfig(forced_eos_token_id=None, **sizes, **special)
    return MarianMTModel(config).eval()


LEARNED = {"position_embedding_type": "learned", "max_position_embeddings": 8}


@pytest.mark.parametrize("model", [tiny_model(**LEARNED), marian_model()])
def test_score_tokens_refuses_texts_beyond_the_positions(model):
    message = "at most 8 tokens, as many as the model has positions, got 9"
    with pytest.raises(ValueError, match=message):
        score_tokens(model, [[7, EOS]], [[7] * 8 + [EOS]])


@torch.no_grad()
def test_score_tokens_gives_the_loss_of_models_of_transformers():
    model = marian_model()
    sources = [[7, EOS], [9, 8, 11, EOS]]
    targets = [[5, 6, 9, EOS], [12, EOS]]
    rows = zip(sources, targets, score_tokens(model, sources, targets), strict=True)
    for source, target, row in rows:
        ids, labels = torch.tensor([source]), torch.tensor([target])
        loss = model(input_ids=ids, labels=labels).loss
        assert sum(row) / len(row) == close_to(-loss.item())


def test_score_tokens_is_finite_for_sources_without_tokens_to_attend_to():
    for model in (tiny_model(source_eos=False), tiny_long_model(source_eos=False)):
        rows = score_tokens(model, [[EOS], [7, 8, EOS]], [[9, EOS], [EOS]])
        assert torch.tensor(sum(rows, [])).isfinite().all()


def test_plan_batches_keeps_the_budget_and_each_pair_once():
    sizes = [(draw % 7 + 1, draw * 3 % 11 + 1) for draw in range(50)]
    batches = [*plan_scoring_batches(sizes, 24)]
    assert sorted(sum(batches, [])) == [*range(50)]
    for batch in batches:
        sources, targets = zip(*(sizes[index] for index in batch), strict=True)
        assert len(batch) * max(*sources, *targets) <= 24
