"""Stages of a recipe: their rules, the mix of each one, and the steps at which a run changes to the
next one.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora import LengthsCorpus
from tests.sweeps import examples, rare
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.corpus import sample_epoch, share_weights
from vanilla_transformer.data.stages import ENDS, ONE_STAGE, Stages, read_stages

NAMES = ["back", "clean"]
BACK, CLEAN = {"corpora": {"back": 1}}, {"corpora": {"clean": 1}}
MIX = {"corpora": {"back": 0.5, "clean": 1.5}}


def test_read_stages_reads_shares_and_ends():
    section = [BACK | {"until_step": 10}, MIX | {"until_step": 30}, CLEAN]
    stages = read_stages(section, NAMES, 100)
    shares = ({"back": 1}, {"back": 0.5, "clean": 1.5}, {"clean": 1})
    assert stages == Stages(shares, (10, 30), "step")
    numbers = [stages.at(step, epoch=7) for step in (0, 9, 10, 29, 30, 99)]
    assert numbers == [0, 0, 1, 1, 2, 2]
    assert stages.describe(1) == "stage 2 of 3, until step 30: 25% of back, 75% of clean"
    assert stages.describe(2) == "stage 3 of 3, until the end of the run: 100% of clean"
    epochs = read_stages([BACK | {"until_epoch": 2}, CLEAN], NAMES, 100)
    assert [epochs.at(step=50, epoch=epoch) for epoch in range(4)] == [0, 0, 1, 1]
    section = [BACK | {"until_share": 0.25}, MIX | {"until_share": 0.5}, CLEAN]
    shares = read_stages(section, NAMES, 201)
    assert (shares.ends, shares.unit) == ((50, 100), "step")
    assert ONE_STAGE.at(0, 0) == ONE_STAGE.at(10**9, 99) == 0


WRONG_SHARES = [{}, ["back"], {"back": 0}, {"back": -0.5}, {"back": True}]
WRONG_SHARES.append({"back": float("nan")})
WITH_WRONG_SHARES = [[BACK | {"until_step": 5}, {"corpora": shares}] for shares in WRONG_SHARES]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "`stages` must be a list with a stage in it, got {}"),
        ([], r"`stages` must be a list with a stage in it, got \[\]"),
        (["back"], "Stage 1 of `stages`: It must be a mapping, such as .*, got 'back'"),
        (
            [{"corpus": {"back": 1}}],
            "Stage 1 of `stages`: There is no key 'corpus'. Did you mean 'corpora'?",
        ),
        (
            [{"until_step": 5}, CLEAN],
            "Stage 1 of `stages`: `corpora` must be given: the shares of corpora by name",
        ),
        *[
            (section, "Stage 2 .* `corpora` must be a mapping of .* shares")
            for section in WITH_WRONG_SHARES
        ],
        (
            [{"corpora": {"bach": 1}}],
            "Stage 1 of `stages`: There is no corpus 'bach'. Did you mean 'back'?",
        ),
        (
            [BACK, CLEAN],
            "Stage 1 of `stages`: It must have one of until_step, until_epoch, until_share, got "
            "none",
        ),
        (
            [BACK | {"until_step": 5, "until_epoch": 1}, CLEAN],
            "Stage 1 .* It must have one of .*, got until_step and until_epoch",
        ),
        (
            [BACK | {"until_step": 5}],
            "Stage 1 .* The last one lasts until the run ends. Leave `until_step` out",
        ),
        (
            [BACK | {"until_step": 0}, CLEAN],
            "Stage 1 .* `until_step` must be an integer of 1 or more, got 0",
        ),
        (
            [BACK | {"until_epoch": 1.5}, CLEAN],
            "Stage 1 .* `until_epoch` must be an integer of 1 or more, got 1.5",
        ),
        (
            [BACK | {"until_share": 1}, CLEAN],
            r"Stage 1 .* `until_share` must be a number in \(0, 1\), got 1",
        ),
        (
            [BACK | {"until_step": 5}, MIX | {"until_epoch": 9}, CLEAN],
            "All stages must end by the same key, got `until_step` and `until_epoch`",
        ),
        (
            [BACK | {"until_step": 5}, MIX | {"until_step": 5}, CLEAN],
            "Stage 2 must end after its beginning, step 5, got step 5. Let the ends of `stages` "
            "increase.",
        ),
        (
            [BACK | {"until_epoch": 2}, MIX | {"until_epoch": 1}, CLEAN],
            "Stage 2 must end after its beginning, epoch 2, got epoch 1",
        ),
        (
            [BACK | {"until_step": 100}, CLEAN],
            r"Stage 2 must end after its beginning, step 100, got step 100 \(`max_steps`\)",
        ),
        (
            [BACK | {"until_share": 0.001}, CLEAN],
            "Stage 1 must end after its beginning, step 0, got step 0",
        ),
    ],
)
def test_read_stages_refuses_what_cannot_work(section, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        read_stages(section, NAMES, 100)
    assert "\n" not in str(caught.value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(NAMES)
)
STAGE = st.dictionaries(
    st.sampled_from(["corpora", *ENDS]) | SCALARS, SCALARS | st.dictionaries(SCALARS, SCALARS)
)


SECTIONS = STAGE | st.just(CLEAN) | st.just(BACK | {"until_step": 5}) | SCALARS


@given(st.lists(SECTIONS, max_size=3) | SCALARS)
@examples(100)
def test_read_stages_raises_mistakes_only(section):
    try:
        stages = read_stages(section, [*NAMES, "1"], 100)
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert set().union(*stages.shares) <= {*NAMES, "1"}


def test_share_weights_give_each_corpus_its_share_of_an_epoch():
    names = ["back", "clean", "other", "clean"]
    corpora = np.repeat([0, 1, 2, 3], [60, 10, 50, 20])
    weights = share_weights(names, np.bincount(corpora).tolist(), {"back": 1, "clean": 2})
    rows = sample_epoch(corpora, weights, seed=0, epoch=0)
    assert np.bincount(corpora[rows], minlength=4).tolist() == [30, 20, 0, 40]
    assert share_weights(names, [60, 10, 50, 20], {"other": 3.5}) == [0.0, 0.0, 1.0, 0.0]


def test_share_weights_refuses_a_corpus_that_cleaning_has_emptied():
    message = "^The corpus clean of `stages` must have pairs, but cleaning has left none."
    with pytest.raises(ValueError, match=message):
        share_weights(NAMES, [60, 0], {"clean": 1})


class StagedCorpus(LengthsCorpus):
    """The first half of the pairs in stage 0, the other half later."""

    def epoch(self, number, stage=0):
        middle = len(self.lengths) // 2
        return self.pairs[middle:] if stage else self.pairs[:middle]


def sampler(stages):
    return TokenBudgetBatchSampler(StagedCorpus([5] * 40), 20, seed=0, stages=stages)


def walk(order, count):
    steps = []
    for _ in range(count):
        order.enter_next_epoch()
        (batch,) = order.take_step()
        steps.append((order.epoch, order.stage, sorted(batch.rows.tolist())))
    return steps


@pytest.mark.parametrize(
    ("stages", "epochs"),
    [
        (Stages(({}, {}), (3,), "step"), [0, 0, 0, *[1] * 6, *[2] * 6]),
        *[rare((Stages(({}, {}), (8,), "step"), [*[0] * 6, 1, 1, *[2] * 6, 3]))],
        (Stages(({}, {}), (2,), "epoch"), [*[0] * 6, *[1] * 6, *[2] * 3]),
    ],
)
def test_sampler_changes_the_stage_and_resumes(stages, epochs):
    expected = walk(sampler(stages), 15)
    first = None
    for step, (epoch, stage, rows) in enumerate(expected):
        assert epoch == epochs[step]
        assert (stage == 1) == (min(rows) >= 20)
        if first is None and stages.at(step, epoch) == 1:
            first = step
    assert [stage for _, stage, _ in expected] == [0] * first + [1] * (15 - first)
    for done in range(15):
        stopped, again = sampler(stages), sampler(stages)
        walk(stopped, done)
        again.load_state_dict(stopped.position.state_dict())
        assert again.position == stopped.position and walk(again, 15 - done) == expected[done:]
