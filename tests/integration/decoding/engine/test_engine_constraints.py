"""The engine finds the constrained hypotheses of a literal definition."""

import random

import pytest
import torch

from tests.closeness import close_to
from tests.engine_cases import EOS, START
from tests.sweeps import sample
from tests.textbook_search import ConstrainedBeamSearch, occurrences
from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords, WordContinuations
from vanilla_transformer.decoding.engine.requests import DecodeRequest

VOCAB = 24


def random_case(seed):
    """Return a model, options of an engine, sources, and the phrases of each."""
    draw = random.Random(seed)
    model = tiny_model(seed, vocab_size=VOCAB, init_std=0.4, lm_head_bias=True, source_eos=True)
    with torch.no_grad():
        model.lm_head.bias[EOS] = draw.choice([0.0, 2.0, 4.0])
    options = {
        "num_beams": draw.randint(2, 5),
        "early_stopping": draw.choice([True, False, "never"]),
    }
    options |= {
        "length_penalty": draw.choice([0.0, 0.6, 1.0]),
        "length_penalty_type": draw.choice(["wu", "power"]),
    }
    options |= {"max_new_tokens": draw.randint(9, 14), "min_new_tokens": draw.choice([0, 0, 3])}
    sources = [[*draw.choices(range(5, VOCAB), k=draw.randint(1, 6)), EOS] for _ in range(5)]
    return model, options, sources, [random_phrases(draw) for _ in sources]


def random_phrases(draw):
    few = draw.sample(range(5, VOCAB), k=2)  # so that phrases overlap and begin alike
    phrases = [tuple(draw.choices(few, k=draw.randint(1, 3))) for _ in range(draw.randint(0, 2))]
    return phrases + phrases[:1] * draw.randint(0, 1)


def test_engine_says_when_too_few_hypotheses_can_contain_constraints():
    engine = Engine(
        tiny_model(vocab_size=VOCAB),
        num_beams=3,
        compile=False,
        max_new_tokens=2,
        constraint_tokens=2,
    )
    assert engine.decode([DecodeRequest([5, EOS], phrases=[[7, 8]])])[0][0].tokens == [7, 8]
    with pytest.raises(
        ValueError, match=r"Only 1 of 2 translations can contain the constraints\. Raise the limit"
    ):
        engine.decode([DecodeRequest([5, EOS], phrases=[[7, 8]])], 2)


def test_engine_constrains_what_follows_a_prefix():
    engine = Engine(
        tiny_model(vocab_size=VOCAB),
        num_beams=3,
        compile=False,
        max_new_tokens=9,
        constraint_tokens=3,
        target_prefix="",
    )
    (found,) = engine.decode([DecodeRequest([5, EOS], [11, 7], [[7, 8], [9]])], 2)
    for each in found:
        assert (
            each.tokens[:2] == [11, 7] and 9 in each.tokens and occurrences(each.tokens, (7, 8))[0]
        )


@pytest.mark.parametrize("seed", sample(range(4), 0, 2, 3))
def test_engine_finds_hypotheses_of_definition_with_whole_words(seed):
    model, options, sources, phrases = random_case(seed)
    phrases = [
        [*map(random.Random(seed).choice([WholeWords, WholeWords, tuple]), each)]
        for each in phrases
    ]
    continuations = WordContinuations(random.Random(seed).sample(range(5, VOCAB), k=9))
    engine = Engine(
        model,
        slots=3,
        compile=False,
        constraint_tokens=9,
        word_continuations=continuations,
        **options,
    )
    check_definition(engine, model, options, sources, phrases, continuations)


def test_engine_continues_no_whole_words():
    model = tiny_model(vocab_size=VOCAB, init_std=0.4)
    options = {"num_beams": 3, "compile": False, "max_new_tokens": 9, "constraint_tokens": 3}
    ((plain,),) = Engine(model, **options).decode([DecodeRequest([5, EOS], phrases=[[7]])])
    follower = plain.tokens[plain.tokens.index(7) + 1]
    engine = Engine(model, **options, word_continuations=WordContinuations([follower]))
    ((stem,),) = engine.decode([DecodeRequest([5, EOS], phrases=[[7]])])
    ((whole,),) = engine.decode([DecodeRequest([5, EOS], phrases=[WholeWords([7])])])
    assert stem == plain and follower not in whole.tokens[whole.tokens.index(7) + 1 :][:1]


def test_engine_lets_a_prefix_continue_a_word():
    engine = Engine(
        tiny_model(vocab_size=VOCAB),
        **{
            "num_beams": 3,
            "compile": False,
            "max_new_tokens": 9,
            "constraint_tokens": 3,
            "target_prefix": "",
        },
        word_continuations=WordContinuations([8]),
    )
    ((found,),) = engine.decode([DecodeRequest([5, EOS], [7, 8, 9], [WholeWords([7])])])
    assert found.tokens[:3] == [7, 8, 9]


@pytest.mark.parametrize("seed", sample(range(12), 0, 6))
def test_engine_finds_constrained_hypotheses_of_definition(seed):
    model, options, sources, phrases = random_case(seed)
    engine = Engine(model, slots=3, compile=False, constraint_tokens=9, **options)
    check_definition(engine, model, options, sources, phrases)


def check_definition(engine, model, options, sources, phrases, continuations=frozenset()):
    requests = [
        DecodeRequest(*each) for each in zip(sources, [()] * len(sources), phrases, strict=True)
    ]
    found = engine.decode(requests, 2)
    names = {"num_beams": "beams", "max_new_tokens": "limit", "length_penalty": "penalty"}
    names |= {"length_penalty_type": "penalty_type"}
    settings = {names.get(name, name): value for name, value in options.items()}
    for source, wanted, ours in zip(sources, phrases, found, strict=True):
        definition = ConstrainedBeamSearch(
            model,
            source,
            wanted,
            start=START,
            eos=(EOS,),
            word_continuations=continuations,
            **settings,
        )()
        assert [each.tokens for each in ours] == [tokens for _, tokens in definition[:2]]
        assert [each.score for each in ours] == close_to([score for score, _ in definition[:2]])
        for each in ours:
            assert all(
                occurrences(each.tokens, phrase)[0] >= wanted.count(phrase) for phrase in wanted
            )
