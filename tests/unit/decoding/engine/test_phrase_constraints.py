"""Phrases are found in hypotheses, and beams are divided among banks, as by literal definitions."""

import random

import pytest
import torch

from tests.textbook_search import count_missing, next_tokens, occurrences
from vanilla_transformer.decoding.engine.phrase_constraints import PhraseTokens, phrase_rows
from vanilla_transformer.decoding.engine.top_k import Candidates

ROOM = 12


def phrase_tokens(*sentences):
    return PhraseTokens(
        *(
            torch.tensor(rows)
            for rows in zip(*(phrase_rows(each, ROOM) for each in sentences), strict=True)
        )
    )


def random_phrases(draw):
    phrases = [
        tuple(draw.choices(range(3), k=draw.randint(1, 4))) for _ in range(draw.randint(0, 3))
    ]
    return phrases[: 3 if draw.random() < 0.5 else 1] + phrases[:1] * draw.randint(0, 1)


@pytest.mark.parametrize("seed", range(30))
def test_phrase_tokens_follow_hypotheses(seed):
    draw = random.Random(seed)
    phrases = random_phrases(draw)
    phrases_of_slot = phrase_tokens(phrases)
    progress, written = phrases_of_slot.begin(1), []
    for _ in range(25):
        wanted = phrases_of_slot.tokens[0][phrases_of_slot.next_tokens(progress)[0, 0]]
        assert set(wanted.tolist()) == next_tokens(written, phrases)
        assert phrases_of_slot.missing(progress).item() == count_missing(written, phrases)
        written.append(draw.randrange(3))
        progress = phrases_of_slot.advance(
            progress, torch.zeros(1, 1, dtype=torch.long), torch.tensor([[written[-1]]])
        )
    complete = all(occurrences(written, each)[0] >= phrases.count(each) for each in phrases)
    assert (phrases_of_slot.missing(progress).item() == 0) == complete


def test_phrase_tokens_need_equal_phrases_as_often_as_given():
    phrases_of_slot = phrase_tokens([(1, 2, 1), (1, 2, 1)])
    progress = phrases_of_slot.begin(1)
    missing = []
    for token in (1, 2, 1, 2, 1, 1, 2, 1):
        progress = phrases_of_slot.advance(
            progress, torch.zeros(1, 1, dtype=torch.long), torch.tensor([[token]])
        )
        missing.append(phrases_of_slot.missing(progress).item())
    assert missing == [5, 4, 3, 3, 2, 2, 1, 0]


def test_allocate_gives_each_bank_a_beam_first():
    phrases_of_slot = phrase_tokens([(7, 8)], [])
    progress = phrases_of_slot.begin(2)
    scores = torch.tensor([[-1.0, -2.0, -9.0, -8.0, -3.0]] * 2)
    candidates = Candidates(
        scores, torch.zeros(2, 5, dtype=torch.long), torch.tensor([[3, 4, 7, 5, 6]] * 2)
    )
    ordered = phrases_of_slot.allocate(candidates, progress, torch.tensor([9, 9]))
    assert ordered.tokens.tolist() == [[7, 3, 4, 6, 5], [3, 4, 6, 5, 7]]


def test_allocate_puts_candidates_without_room_for_their_phrases_last():
    phrases_of_slot = phrase_tokens([(7, 8)])
    candidates = Candidates(
        torch.tensor([[-1.0, -2.0]]), torch.zeros(1, 2, dtype=torch.long), torch.tensor([[3, 7]])
    )
    ordered = phrases_of_slot.allocate(candidates, phrases_of_slot.begin(1), torch.tensor([1]))
    assert ordered.tokens.tolist() == [[7, 3]] and ordered.scores[0, 1] < -1e8
