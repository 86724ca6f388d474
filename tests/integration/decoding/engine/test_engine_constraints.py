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
VOCAB = 24
OPTIONS = {"num_beams": 3, "compile": False, "max_new_tokens": 9, "constraint_tokens": 3}


def random_case(seed):
    """Return a model, options of an engine, sources, and the phrases of each."""
    draw = random.Random(seed)
    fields = {"vocab_size": VOCAB, "init_std": 0.4, "lm_head_bias": True}
    model = tiny_model(seed, source_eos=True, **fields)
    with torch.no_grad():
        model.lm_head.bias[EOS] = draw.choice([0.0, 2.0, 4.0])
    options = {"num_beams": draw.randint(2, 5)}
    options["early_stopping"] = draw.choice([True, False, "never"])
    options["length_penalty"] = draw.choice([0.0, 0.6, 1.0])
    options["length_penalty_type"] = draw.choice(["wu", "power"])
    options["max_new_tokens"] = draw.randint(9, 14)
    options["min_new_tokens"] = draw.choice([0, 0, 3])
    sources = [random_source(draw) for _ in range(5)]
    return model, options, sources, [random_phrases(draw) for _ in sources]


def random_source(draw):
    return [*draw.choices(range(5, VOCAB), k=draw.randint(1, 6)), EOS]


def random_phrases(draw):
    few = draw.sample(range(5, VOCAB), k=2)  # so that phrases overlap and begin alike
    phrases = []
    for _ in range(draw.randint(0, 2)):
        phrases.append(tuple(draw.choices(few, k=draw.randint(1, 3))))
    return phrases + phrases[:1] * draw.randint(0, 1)


def test_engine_says_when_too_few_can_contain_constraints():
    options = OPTIONS | {"max_new_tokens": 2, "constraint_tokens": 2}
    engine = Engine(tiny_model(vocab_size=VOCAB), **options)
    request = DecodeRequest([5, EOS], phrases=[[7, 8]])
    ((hypothesis,),) = engine.decode([request])
    assert hypothesis.tokens == [7, 8]
    message = r"Only 1 of 2 translations can contain the constraints\. Raise the limit"
    with pytest.raises(ValueError, match=message):
        engine.decode([request], 2)


def test_engine_constrains_what_follows_a_prefix():
    engine = Engine(tiny_model(vocab_size=VOCAB), **OPTIONS, target_prefix="")
    (hypotheses,) = engine.decode([DecodeRequest([5, EOS], [11, 7], [[7, 8], [9]])], 2)
    for hypothesis in hypotheses:
        tokens = hypothesis.tokens
        assert tokens[:2] == [11, 7] and 9 in tokens
        assert occurrences(tokens, (7, 8))[0]


@pytest.mark.parametrize("seed", sample(range(4), 0, 2, 3))
def test_engine_finds_hypotheses_with_whole_words(seed):
    model, options, sources, phrases = random_case(seed)
    marked = []
    for row in phrases:
        kind = random.Random(seed).choice([WholeWords, WholeWords, tuple])
        marked.append([*map(kind, row)])
    continuations = WordContinuations(random.Random(seed).sample(range(5, VOCAB), k=9))
    options_of_engine = {"slots": 3, "compile": False, "constraint_tokens": 9, **options}
    engine = Engine(model, word_continuations=continuations, **options_of_engine)
    check_definition(engine, model, options, sources, marked, continuations)


def test_engine_continues_no_whole_words():
    model = tiny_model(vocab_size=VOCAB, init_std=0.4)
    request = DecodeRequest([5, EOS], phrases=[[7]])
    ((plain,),) = Engine(model, **OPTIONS).decode([request])
    follower = plain.tokens[plain.tokens.index(7) + 1]
    continuations = WordContinuations([follower])
    engine = Engine(model, **OPTIONS, word_continuations=continuations)
    ((stem,),) = engine.decode([request])
    ((whole,),) = engine.decode([DecodeRequest([5, EOS], phrases=[WholeWords([7])])])
    assert stem == plain
    assert follower not in whole.tokens[whole.tokens.index(7) + 1 :][:1]


def test_engine_lets_a_prefix_continue_a_word():
    model, continuations = tiny_model(vocab_size=VOCAB), WordContinuations([8])
    options = {"target_prefix": "", "word_continuations": continuations, **OPTIONS}
    request = DecodeRequest([5, EOS], [7, 8, 9], [WholeWords([7])])
    ((hypothesis,),) = Engine(model, **options).decode([request])
    assert hypothesis.tokens[:3] == [7, 8, 9]


def test_engine_continues_no_prefix_of_whole_words():
    model = tiny_model(vocab_size=VOCAB, init_std=0.4)
    options = {"target_prefix": "", "compile": False, "slots": 3, "max_new_tokens": 9}
    ((plain,),) = Engine(model, **options).decode([DecodeRequest([5, EOS], [7])])
    continuations = WordContinuations([plain.tokens[1]])
    engine = Engine(model, word_continuations=continuations, **options)
    prefixes = [[7], WholeWords([7]), WholeWords()]
    requests = [DecodeRequest([5, EOS], prefix) for prefix in prefixes]
    (stem,), (whole,), (none,) = engine.decode(requests)
    ((free,),) = Engine(model, **options).decode([DecodeRequest([5, EOS])])
    assert stem.tokens == plain.tokens and none.tokens == free.tokens
    assert whole.tokens[0] == 7 and whole.tokens[1] != plain.tokens[1]


@pytest.mark.parametrize("seed", sample(range(12), 0, 6))
def test_engine_finds_constrained_hypotheses_of_definition(seed):
    model, options, sources, phrases = random_case(seed)
    engine = Engine(model, slots=3, compile=False, constraint_tokens=9, **options)
    check_definition(engine, model, options, sources, phrases)


NAMES = {"num_beams": "beams", "max_new_tokens": "limit", "length_penalty": "penalty"}
NAMES["length_penalty_type"] = "penalty_type"


def check_definition(engine, model, options, sources, phrases, continuations=()):
    requests = []
    for source, row in zip(sources, phrases, strict=True):
        requests.append(DecodeRequest(source, phrases=row))
    settings = {NAMES.get(name, name): value for name, value in options.items()}
    settings |= {"start": START, "eos": (EOS,)}
    settings["word_continuations"] = continuations or frozenset()
    rows = zip(sources, phrases, engine.decode(requests, 2), strict=True)
    for source, wanted, ours in rows:
        search = ConstrainedBeamSearch(model, source, wanted, **settings)
        scores, tokens = zip(*search()[:2], strict=True)
        assert [hypothesis.tokens for hypothesis in ours] == [*tokens]
        assert [hypothesis.score for hypothesis in ours] == close_to([*scores])
        for hypothesis in ours:
            for phrase in wanted:
                count = occurrences(hypothesis.tokens, phrase)[0]
                assert count >= wanted.count(phrase)
