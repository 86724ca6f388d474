"""Decoding answers as it did when `python -m tests.golden.write` stored the answers."""

import pytest

from tests.golden.cases import SUBJECTS
from tests.golden.comparison import ANSWERS, answer, find_difference, read_answers
from tests.golden.doors import Doors
from tests.sweeps import sample

CASES = [(subject, name) for subject, cases in SUBJECTS.items() for name in cases]


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    doors = Doors(tmp_path_factory.mktemp("golden"))
    yield doors
    doors.close()


@pytest.fixture(scope="module")
def stored():
    return {subject: read_answers(subject) for subject in SUBJECTS}


@pytest.mark.parametrize(
    ("subject", "name"), sample(CASES, *CASES[::4]), ids=["-".join(case) for case in CASES]
)
def test_answers_as_stored(doors, stored, subject, name):
    assert name in stored[subject], (
        "The answer is not stored. Run `python -m tests.golden.write` on purpose."
    )
    difference = find_difference(answer(doors, subject, name), stored[subject][name])
    assert difference is None, difference


def test_each_stored_answer_has_a_case(stored):
    assert {path.stem for path in ANSWERS.glob("*.json")} == {*SUBJECTS}
    assert {subject: {*answers} for subject, answers in stored.items()} == {
        subject: {*cases} for subject, cases in SUBJECTS.items()
    }
