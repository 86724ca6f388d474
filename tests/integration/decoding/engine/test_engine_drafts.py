"""Drafts in the decoding engine: whatever they are, the search finds what it finds without them, in
fewer passes.
"""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from tests.closeness import close_to
from tests.engine_cases import EOS, PAD, model_of, random_case
from tests.sweeps import examples, rare, sample
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model, tiny_model
from tests.tiny_engines import Recorder
from vanilla_transformer.decoding.engine.drafts import WIDTHS
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps
from vanilla_transformer.decoding.engine.requests import DecodeRequest
from vanilla_transformer.decoding.engine.step_package import export_step
from vanilla_transformer.decoding.ensemble import Ensemble

SOURCES = [[7, 8, 9, 2], [9, 2], [5] * 8 + [2], [11, 30, 6, 2]]
VOCAB = 40
KINDS = ("none", "end", "source", "random", "long", "padded", "exact", "changed", "lost", "added")


def draft_of(kind, source, tokens, vocab, draw):
    """Return a draft of some kind for a sentence whose target has the given tokens."""
    tokens = [token for token in tokens if token != EOS]
    middle, other = len(tokens) // 2, draw.randrange(5, vocab)
    before, after = tokens[:middle], tokens[middle:]
    drafts = {
        "none": [],
        "end": [EOS, *tokens],
        "source": [token % vocab for token in source],
        "random": [draw.randrange(vocab) for _ in range(9)],
        "long": [*tokens, *[draw.randrange(5, vocab) for _ in range(70)]],
        "padded": [*tokens, EOS, PAD, PAD],
        "exact": tokens,
        "changed": [*before, other, *after[1:]],
        "lost": [*before, *after[1:]],
        "added": [*before, other, *after],
    }
    return drafts[kind]


def requests_of(rows, sources, kinds, vocab=VOCAB, seed=0):
    """Return a request for each source, with a draft of its kind, given the hypotheses without."""
    draw, requests = random.Random(seed), []
    for source, (hypothesis, *_), kind in zip(sources, rows, kinds, strict=True):
        draft = draft_of(kind, source, hypothesis.tokens, vocab, draw)
        requests.append(DecodeRequest(source, draft=draft))
    return requests


def assert_same(rows, expected):
    for ours, theirs in zip(rows, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.tokens == other.tokens
            assert one.token_log_probabilities == close_to(other.token_log_probabilities)
            assert one.score == close_to(other.score)
            if other.attention is not None:
                attention, of_other = torch.tensor(one.attention), torch.tensor(other.attention)
                torch.testing.assert_close(attention, of_other, rtol=1e-4, atol=1e-5)


def count_passes(engine):
    """Return a list to which the engine appends the shape of the tokens of each pass."""
    passes = []
    decoder = engine.steps.step.decoders[0]
    decoder.register_forward_hook(lambda module, inputs, logits: passes.append(inputs[0].shape))
    return passes


def engines(model, slots=3, **options):
    """Return an engine without drafts and one with."""
    options = {"slots": slots, "compile": False, "num_beams": 1, **options}
    return Engine(model, **options), Engine(model, draft="", **options)


@pytest.mark.parametrize("seed", sample(range(40), 0, 8))
def test_engine_finds_the_same_with_each_draft(seed):
    case = random_case(seed)
    plain, drafted = engines(case.model, case.slots, **{**case.options, "num_beams": 1})
    expected, vocab = plain.decode(case.sources), case.model.lm_head.out_features
    for first in range(len(KINDS)):
        kinds = [KINDS[(first + number) % len(KINDS)] for number in range(len(case.sources))]
        requests = requests_of(expected, case.sources, kinds, vocab, seed)
        assert_same(drafted.decode(requests), expected)


def test_engine_ends_targets_where_they_end_without_a_draft():
    model = model_of(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[EOS] = 9.0
    plain, drafted = engines(model, max_new_tokens=20, min_new_tokens=6)
    expected = plain.decode(SOURCES)
    assert all(row[0].tokens[-1] == EOS for row in expected)
    for kind in KINDS:
        requests = requests_of(expected, SOURCES, [kind] * len(SOURCES))
        assert_same(drafted.decode(requests), expected)


tokens_of_any_draft = st.lists(st.integers(0, VOCAB - 1), max_size=30)


@examples(40)
@given(
    seed=st.integers(0, 50),
    drafts=st.lists(tokens_of_any_draft, min_size=len(SOURCES), max_size=len(SOURCES)),
    cut=st.integers(0, 12),
    length=st.integers(1, 14),
)
def test_engine_finds_the_same_with_any_tokens_in_a_draft(seed, drafts, cut, length):
    plain, drafted = engines(model_of(seed, lm_head_bias=True), max_new_tokens=length)
    expected = plain.decode(SOURCES)
    requests = []
    for source, (hypothesis,), draft in zip(SOURCES, expected, drafts, strict=True):
        tokens = [*hypothesis.tokens[:cut], *draft, *hypothesis.tokens[cut:]]
        requests.append(DecodeRequest(source, draft=tokens))
    assert_same(drafted.decode(requests), expected)


def aligned_model():
    model = model_of()
    model.config.alignment_heads = [[0, 1], [1, 0]]
    return model


def ensemble():
    sizes = {"vocab_size": VOCAB, "init_std": 0.4}
    return Ensemble([tiny_model(0, **sizes), tiny_model(1, d_model=8, **sizes)], (2, 1))


FORCED = {"forced_bos_token_id": 9, "forced_eos_token_id": EOS, "max_new_tokens": 12}
FORCED["max_new_tokens_beyond_source"] = None
REPEATS = {"no_repeat_ngram_size": 2, "min_new_tokens": 6, "max_new_tokens": 12}
SAMPLED = {"do_sample": True, "top_k": 5, "max_new_tokens": 12}
SEARCHES = {
    "alignments": (aligned_model, {"return_alignments": True, "max_new_tokens": 12}),
    "ensemble": (ensemble, {"max_new_tokens": 12}),
    "forced tokens": (model_of, FORCED),
    "forbidden tokens": (model_of, {"suppress_tokens": [7, 30], "max_new_tokens": 12}),
    "repeats": (model_of, REPEATS),
    "samples": (model_of, SAMPLED),
    "linear": (lambda: tiny_long_model(vocab_size=VOCAB), {"max_new_tokens": 12}),
    "prompts": (lambda: tiny_causal_lm(vocab_size=VOCAB), {"max_new_tokens": 12}),
    "linear prompts": (lambda: tiny_long_causal_lm(vocab_size=VOCAB), {"max_new_tokens": 12}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_engine_follows_drafts_in_each_search(name):
    build, options = SEARCHES[name]
    plain, drafted = engines(build(), **options)
    sampling = [2, 7] if "do_sample" in options else []  # samples of each source, and the seed
    expected = plain.decode(SOURCES, *sampling)
    for kinds in (KINDS[2:6], KINDS[6:]):
        requests = requests_of(expected, SOURCES, kinds)
        assert_same(drafted.decode(requests, *sampling), expected)


def test_engine_follows_drafts_after_prefixes():
    options = {"target_prefix": "", "max_new_tokens": 12}
    plain, drafted = engines(model_of(), **options)
    prefixes = [[7, 9], [], [5, 5, 5], [30]]
    expected = plain.decode([*map(DecodeRequest, SOURCES, prefixes)])
    for kinds in (KINDS[2:6], KINDS[6:]):
        requests = requests_of(expected, SOURCES, kinds)
        prefixed = []
        for request, prefix in zip(requests, prefixes, strict=True):
            prefixed.append(request._replace(prefix=prefix))
        assert_same(drafted.decode(prefixed), expected)


# The passes for a target of 20 tokens: its start and what follows a difference take one pass each.
PASSES = {"none": 20, "exact": 2, "padded": 2, "changed": 5, "lost": 5, "added": 5}


@pytest.mark.parametrize("kind", PASSES)
def test_engine_reads_the_right_part_of_a_draft_at_once(kind):
    # Each token comes once, so that its place in a draft is clear.
    options = {"max_new_tokens": 20, "min_new_tokens": 20, "no_repeat_ngram_size": 1}
    plain, drafted = engines(model_of(), **options)
    expected, passes = plain.decode(SOURCES[:1]), count_passes(drafted)
    requests = requests_of(expected, SOURCES[:1], [kind])
    assert_same(drafted.decode(requests), expected)
    assert len(passes) <= PASSES[kind]
    assert {shape[1] for shape in passes} <= {1, *WIDTHS}


def test_engine_reads_no_more_tokens_than_are_worth_it():
    """Many sentences without drafts beside one that has one are read one token at a time."""
    plain, drafted = engines(model_of(), slots=8, max_new_tokens=20)
    sources = SOURCES * 2
    expected, passes = plain.decode(sources), count_passes(drafted)
    requests = requests_of(expected, sources, ["exact", *["none"] * 7])
    assert_same(drafted.decode(requests), expected)
    assert {shape[1] for shape in passes if shape[0] == 8} == {1}
    passes.clear()
    drafted.decode(requests_of(expected, sources, ["exact"] * 8))
    assert passes[0] == (8, 8)


def test_engine_changes_a_target_toward_a_draft_by_its_bias():
    plain, drafted = engines(model_of(), max_new_tokens=12)
    (expected,) = plain.decode(SOURCES[:1])
    draft = expected[0].tokens[:3] + [7, 30, 8, 11]
    request = DecodeRequest(SOURCES[0], draft=draft)
    outputs, passes = [], count_passes(drafted)
    for bias in (0.0, 0.001, 0.5):
        passes.clear()
        ((hypothesis,),) = drafted.decode([request._replace(draft_bias=bias)])
        outputs.append(hypothesis.tokens)
    assert len(passes) == 5  # the draft and a token after it, and four more tokens
    assert outputs[0] == outputs[1] == expected[0].tokens
    assert outputs[2][: len(draft)] == draft != outputs[0][: len(draft)]
    # The log-probabilities are the model's.
    of_prefix = Engine(plain.model, compile=False, target_prefix="", max_new_tokens=12, num_beams=1)
    ((forced,),) = of_prefix.decode([DecodeRequest(SOURCES[0], draft)])
    assert_same([[hypothesis]], [[forced]])


def test_engine_prefers_a_draft_by_as_much_as_its_bias():
    """A token of a draft wins if `(1 - bias) p + bias` is the largest."""
    plain, drafted = engines(model_of(), max_new_tokens=1)
    ((best,),) = plain.decode(SOURCES[:1])
    forced = Engine(plain.model, compile=False, target_prefix="", max_new_tokens=2, num_beams=1)
    ((other,),) = forced.decode([DecodeRequest(SOURCES[0], [7])])
    lead, of_draft = (
        torch.tensor(value).exp().item()
        for value in (best.log_probability, other.token_log_probabilities[0])
    )
    least = (lead - of_draft) / (1 + lead - of_draft)
    assert 0 < least < 0.5
    for bias, token in ((least - 0.01, best.tokens[0]), (least + 0.01, 7)):
        ((hypothesis,),) = drafted.decode([DecodeRequest(SOURCES[0], draft=[7], draft_bias=bias)])
        assert hypothesis.tokens == [token]


def test_engine_without_a_bias_prefers_no_token_of_a_draft_among_equal_ones():
    model = model_of(tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    plain, drafted = engines(model, max_new_tokens=3)
    expected = plain.decode(SOURCES)
    drafts = [DecodeRequest(source, draft=[7, 30, 8]) for source in SOURCES]
    assert_same(drafted.decode(drafts), expected)


def test_engine_keeps_forbidden_tokens_of_a_draft_with_a_bias_forbidden():
    _, drafted = engines(model_of(), max_new_tokens=12, suppress_tokens=[7, 30])
    request = DecodeRequest(SOURCES[0], draft=[7, 30, 7, 7], draft_bias=0.5)
    ((hypothesis,),) = drafted.decode([request])
    assert not {7, 30} & {*hypothesis.tokens}


def test_engine_keeps_the_bias_of_each_sentence():
    _, drafted = engines(model_of(), slots=2, max_new_tokens=12)
    requests = []
    for number, source in enumerate(SOURCES):
        requests.append(DecodeRequest(source, draft=[7, 30, 8], draft_bias=number % 2 / 2))
    together = drafted.decode(requests)
    assert_same(together, [drafted.decode([request])[0] for request in requests])
    assert [row[0].tokens[:3] == [7, 30, 8] for row in together] == [False, True, False, True]


def test_engine_prefers_each_token_by_its_own_bias():
    _, drafted = engines(model_of(), slots=2, max_new_tokens=12)
    request = DecodeRequest(SOURCES[0], draft=[7, 30, 8], draft_bias=0.5)
    first = request._replace(draft=[7])
    requests = [request, request._replace(draft_bias=[0.5] * 3)]
    requests += [first, request._replace(draft_bias=[0.5, 0.0, 0.5, 0.5])]
    rows = drafted.decode(requests)
    assert_same(rows[1:2], rows[:1])
    assert_same(rows[3:], rows[2:3])
    assert [row[0].tokens[:2] == [7, 30] for row in rows] == [True, True, False, False]


def test_engine_finds_a_draft_that_wins_again_after_one_token():
    plain, drafted = engines(model_of(), max_new_tokens=12)
    ((expected,),) = plain.decode(SOURCES[:1])
    first, second = expected.tokens[:2]
    assert not {7, 30} & {first, second}
    for bias, token in ((0.5, 30), (0.4, second)):
        request = DecodeRequest(SOURCES[0], draft=[7, first, 30], draft_bias=[0.0, 0.0, bias])
        ((hypothesis,),) = drafted.decode([request])
        assert hypothesis.tokens[:2] == [first, token]


def test_engine_follows_drafts_in_buffers_that_grow_and_shrink():
    """A draft longer than the room, and sentences that are set aside."""
    plain, drafted = engines(model_of(), slots=2, max_new_tokens=50)
    sources = [*SOURCES, [6] * 40 + [EOS], [8, EOS], [9, 9, EOS]]
    expected = plain.decode(sources)
    for seed in range(3):
        kinds = random.Random(seed).choices(KINDS, k=len(sources))
        assert_same(drafted.decode(requests_of(expected, sources, kinds)), expected)


def replace_steps(engine, steps_of):
    """Let other forms of its steps decode, whatever their width."""
    for width in WIDTHS:
        engine.wide_steps[width] = steps_of(engine.steps.step.widen(width))
    engine.steps = steps_of(engine.steps.step)


def assert_same_with_other_steps(steps_of, slots=2):
    plain, drafted = engines(aligned_model(), slots, max_new_tokens=12, return_alignments=True)
    expected = plain.decode(SOURCES)
    replace_steps(drafted, lambda step: steps_of(drafted, step))
    for kinds in (KINDS[2:6], KINDS[6:]):
        assert_same(drafted.decode(requests_of(expected, SOURCES, kinds)), expected)


def test_engine_follows_drafts_in_captured_steps():
    assert_same_with_other_steps(lambda engine, step: GraphedSteps(step, "auto", Recorder()))


class ExportedSteps(GraphedSteps):
    """The program that is compiled, as torch exports it."""

    def __init__(self, engine, step):
        super().__init__(step, False, None)
        buffers = engine.buffers
        program = export_step(step, buffers.example(), buffers.dimensions()).module()
        self.step = lambda *arguments: program(pytree.tree_leaves(arguments))


@pytest.mark.parametrize("slots", [rare(1), rare(3)])
def test_engine_follows_drafts_in_exported_steps(slots):
    assert_same_with_other_steps(ExportedSteps, slots)


def test_engine_without_drafts_has_no_tensors_for_them():
    plain, drafted = engines(tiny_model())
    assert not plain.buffers.state.features
    assert len(drafted.buffers.state.features) == 1
    identities = {plain.steps.identity, drafted.steps.identity}
    identities |= {drafted._steps_of(width).identity for width in WIDTHS}
    assert len(identities) == 2 + len(WIDTHS)
