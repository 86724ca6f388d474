"""The tasks that transformers 5 removed answer as in transformers 4, for models of any family."""

import json

import pytest
from transformers import pipeline

from tests.golden.removed_tasks import FOLDER

ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))["answers"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ANSWERS)
def test_removed_tasks_answer_as_in_transformers_4(name):
    wrong, calls, folder = [], ANSWERS[name], FOLDER / name
    for (task, constructor, inputs, options), expected in calls:
        try:
            answers = pipeline(task, model=str(folder), device="cpu", **constructor)(inputs, **options)
            answers = json.loads(json.dumps(answers, default=lambda tensor: tensor.tolist()))
        except Exception as error:
            answers = f"{type(error).__name__}: {str(error)[:150]}"
        if answers != expected:
            wrong.append((task, constructor, inputs, options, expected, answers))
    assert not wrong, f"{len(wrong)} of {len(calls)}:\n" + "\n".join(map(str, wrong))
