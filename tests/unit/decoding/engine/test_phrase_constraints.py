"""Phrases are found in hypotheses, and beams are divided among banks, as by literal definitions."""

import random

import pytest
import torch

from tests.textbook_search import count_missing, next_tokens, occurrences
from vanilla_transformer.decoding.engine.phrase_constraints import PhraseTokens, phrase_rows
from vanilla_transformer.decoding.engine.top_k import Candidates

ROOM = 12


def phrase_tokens(*sentences):
    rows = zip(*(phrase_rows(phrases, ROOM) for phrases in sentences), strict=True)
    return PhraseTokens(*map(torch.tensor, rows))


def advance(phrases_of_slot, progress, token):
    """Return the progress of the only hypothesis after a token."""
    parents = torch.zeros(1, 1, dtype=torch.long)
    return phrases_of_slot.advance(progress, parents, torch.tensor([[token]]))


def random_phrases(draw):
    phrases = []
    for _ in range(draw.randint(0, 3)):
        length = draw.randint(1, 4)
        phrases.append(tuple(draw.choices(range(3), k=length)))
    most = 3 if draw.random() < 0.5 else 1
    return phrases[:most] + phrases[:1] * draw.randint(0, 1)


@pytest.mark.parametrize("seed", range(30))
def test_phrase_tokens_follow_hypotheses(seed):
    draw = random.Random(seed)
    phrases = random_phrases(draw)
    phrases_of_slot = phrase_tokens(phrases)
    progress, written = phrases_of_slot.begin(1), []
    for _ in range(25):
        row = phrases_of_slot.next_tokens(progress)[0, 0]
        wanted = phrases_of_slot.tokens[0][row]
        assert set(wanted.tolist()) == next_tokens(written, phrases)
        assert phrases_of_slot.missing(progress).item() == count_missing(written, phrases)
        written.append(draw.randrange(3))
        progress = advance(phrases_of_slot, progress, written[-1])
    complete = True
    for phrase in phrases:
        complete &= occurrences(written, phrase)[0] >= phrases.count(phrase)
    assert (phrases_of_slot.missing(progress).item() == 0) == complete


def test_phrase_tokens_need_equal_phrases_as_often_as_given():
    phrases_of_slot = phrase_tokens([(1, 2, 1), (1, 2, 1)])
    progress = phrases_of_slot.begin(1)
    missing = []
    for token in (1, 2, 1, 2, 1, 1, 2, 1):
        progress = advance(phrases_of_slot, progress, token)
        missing.append(phrases_of_slot.missing(progress).item())
    assert missing == [5, 4, 3, 3, 2, 2, 1, 0]


def test_allocate_gives_each_bank_a_beam_first():
    phrases_of_slot = phrase_tokens([(7, 8)], [])
    progress = phrases_of_slot.begin(2)
    scores = torch.tensor([[-1.0, -2.0, -9.0, -8.0, -3.0]] * 2)
    parents = torch.zeros(2, 5, dtype=torch.long)
    candidates = Candidates(scores, parents, torch.tensor([[3, 4, 7, 5, 6]] * 2))
    ordered = phrases_of_slot.allocate(candidates, progress, torch.tensor([9, 9]))
    assert ordered.tokens.tolist() == [[7, 3, 4, 6, 5], [3, 4, 6, 5, 7]]


def test_allocate_puts_candidates_without_room_for_their_phrases_last():
    phrases_of_slot = phrase_tokens([(7, 8)])
    scores, parents = torch.tensor([[-1.0, -2.0]]), torch.zeros(1, 2, dtype=torch.long)
    candidates = Candidates(scores, parents, torch.tensor([[3, 7]]))
    ordered = phrases_of_slot.allocate(candidates, phrases_of_slot.begin(1), torch.tensor([1]))
    assert ordered.tokens.tolist() == [[7, 3]] and ordered.scores[0, 1] < -1e8
