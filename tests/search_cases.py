"""Random models and searches of the engine, each compared with a textbook search."""

import random

from tests.engine_cases import EOS, random_case
from tests.textbook_search import (
    Textbook,
    assert_same_hypotheses,
    coverage_bonus,
    forbid_repeats,
    force,
    prefer,
    search_in_groups,
)
from vanilla_transformer.decoding.engine.engine import Engine


def engine_of(case, **options):
    return Engine(case.model, slots=case.slots, compile=False, **case.options | options)


def search_with_bias(seed):
    case, draw = random_case(seed), random.Random(seed)
    bias = draw.choice([0.1, 0.5, 0.9])
    plain = [best.tokens for (best,) in engine_of(case).translate_tokens(case.sources)]
    prefixes = [[token for token in tokens[:5] if token not in (EOS, 4)] for tokens in plain]
    prefixes = [[*prefix[:-1], 7] if draw.random() < 0.5 else prefix for prefix in prefixes]
    limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
    prefixes = [prefix[: limit - 1] for prefix, limit in zip(prefixes, limits, strict=True)]
    engine = engine_of(case, prefixed=True, prefix_bias=bias)
    found = engine.translate_tokens(case.sources, case.num_return_sequences, prefixes=prefixes)
    for source, prefix, ours in zip(case.sources, prefixes, found, strict=True):
        textbook = Textbook(case.model, source, case.options, prefer(prefix, bias))
        assert_same_hypotheses(ours, textbook.search(case.options["num_beams"]))


def search_with_coverage(seed):
    case, weight = random_case(seed), random.Random(seed).choice([0.05, 0.3, 2.0])
    found = engine_of(case, coverage_penalty=weight).translate_tokens(case.sources, case.num_return_sequences)
    for source, ours in zip(case.sources, found, strict=True):
        textbook = Textbook(case.model, source, case.options)
        textbook.bonus = coverage_bonus(textbook, weight)
        assert_same_hypotheses(ours, textbook.search(case.options["num_beams"]))


def search_with_groups(seed):
    case, draw = random_case(seed), random.Random(seed)
    groups, size, penalty = draw.choice([2, 3]), draw.choice([1, 2]), draw.choice([0.1, 0.7, 3.0])
    beams = groups * size
    prefixes = [[7, 9][: draw.randrange(3)] for _ in case.sources] if draw.random() < 0.5 else None
    case.options["num_beams"] = beams
    if prefixes is not None:
        limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
        prefixes = [prefix[: limit - 1] for prefix, limit in zip(prefixes, limits, strict=True)]
    options = {"num_beam_groups": groups, "diversity_penalty": penalty, "prefixed": prefixes is not None}
    found = engine_of(case, **options).translate_tokens(case.sources, beams, prefixes=prefixes)
    for source, prefix, ours in zip(case.sources, prefixes or [[]] * len(found), found, strict=True):
        textbook = Textbook(case.model, source, case.options, force(prefix))
        assert_same_hypotheses(ours, search_in_groups(textbook, beams, groups, penalty))


def search_without_repeated_ngrams(seed):
    """Search in groups, with forced prefixes that repeat n-grams, and a coverage penalty."""
    case, draw = random_case(seed), random.Random(seed)
    size, penalty, weight = draw.choice([1, 2, 3]), draw.choice([0.1, 0.7]), draw.choice([0.05, 0.3])
    beams = case.options["num_beams"] = 2 * draw.choice([1, 2])
    case.options["no_repeat_ngram_size"] = size
    limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
    prefixes = [[7, 9, 7, 9, 7][: draw.randrange(6)][: limit - 1] for limit in limits]
    options = {"num_beam_groups": 2, "diversity_penalty": penalty, "coverage_penalty": weight, "prefixed": True}
    found = engine_of(case, **options).translate_tokens(case.sources, beams, prefixes=prefixes)
    for source, prefix, ours in zip(case.sources, prefixes, found, strict=True):
        start = case.model.generation_config.decoder_start_token_id
        textbook = Textbook(case.model, source, case.options, forbid_repeats(size, start, force(prefix)))
        textbook.bonus = coverage_bonus(textbook, weight)
        assert_same_hypotheses(ours, search_in_groups(textbook, beams, 2, penalty))


SEARCHES = [search_with_bias, search_with_coverage, search_with_groups, search_without_repeated_ngrams]
