"""Random models and searches of the engine, each compared with a textbook search."""

import random

from tests.engine_cases import random_case
from tests.textbook_search import Textbook, assert_same_hypotheses, forbid_repeats, force
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.requests import DecodeRequest


def search_without_repeated_ngrams(seed):
    """Search with forced prefixes that repeat n-grams."""
    case, draw = random_case(seed), random.Random(seed)
    size, beams = draw.choice([1, 2, 3]), case.options["num_beams"]
    case.options["no_repeat_ngram_size"] = size
    limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
    prefixes = [[7, 9, 7, 9, 7][: draw.randrange(6)][: limit - 1] for limit in limits]
    engine = Engine(case.model, slots=case.slots, compile=False, target_prefix="", **case.options)
    found = engine.decode(map(DecodeRequest, case.sources, prefixes), beams)
    for source, prefix, ours in zip(case.sources, prefixes, found, strict=True):
        start = case.model.generation_config.decoder_start_token_id
        textbook = Textbook(case.model, source, case.options, forbid_repeats(size, start, force(prefix)))
        assert_same_hypotheses(ours, textbook.search(beams))
