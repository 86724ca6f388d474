"""A distillation that is killed continues at the stage where it was, and the student is the same
bit for bit.
"""

import pytest

from tests.processes import run_until_killed
from tests.tiny_runs import (
    CANDIDATES,
    MONOLINGUAL,
    TINY,
    assert_same_run,
    distill_tiny,
    distillation_flags,
    write_candidates,
    write_files,
)
from vanilla_transformer.decoding.pretrained import load_config
from vanilla_transformer.extensions.distillation import teacher

DISTILL = """
from tests.tiny_runs import no_scores
from vanilla_transformer.extensions.distillation import distill, teacher
from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation

teacher.SHARD_LINES = 16
distill.distill(*parse_distillation(words), evaluate=no_scores)
"""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(teacher, "SHARD_LINES", 16)


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


@pytest.mark.parametrize("kind", ["parallel", "monolingual", "candidates"])
@pytest.mark.parametrize(
    ("module", "function", "calls"),
    [
        ("vanilla_transformer.decoding.corpus_shards", "CorpusShards.write", 2),
        ("vanilla_transformer.extensions.distillation.distill", "write_student_corpora", 1),
        ("vanilla_transformer.training.trainer", "train_step", 4),
        ("vanilla_transformer.extensions.distillation.distill", "translate_and_score", 2),
    ],
    ids=["translation", "filtering", "training", "comparison"],
)
def test_distill_resumes_a_killed_run_bit_for_bit(files, tmp_path, module, function, calls, kind):
    candidates = {
        "candidates": write_candidates(files / "three.jsonl"),
        "reverse_model": files / "other",
    }
    calls -= kind == "candidates" and function == "translate_and_score"  # of the student alone
    changes = {"parallel": {}, "monolingual": MONOLINGUAL, "candidates": CANDIDATES | candidates}[
        kind
    ]
    straight = distill_tiny(files, tmp_path / "straight", **changes)
    run_until_killed(
        DISTILL, distillation_flags(files, tmp_path / "run", **changes), module, function, calls
    )
    resumed = distill_tiny(files, tmp_path / "run", **changes)
    assert_same_run(straight.folder, resumed.folder)
    assert straight.scores == resumed.scores and straight.report == resumed.report


def test_distill_starts_from_a_layer_of_its_teacher(files, tmp_path):
    sizes = dict.fromkeys(
        name
        for name in TINY
        if name.endswith(("_layers", "_heads", "_dim", "d_model", "vocab_size"))
    )
    changes = {
        "init_from": files / "teacher",
        "init_decoder_layers": 0,
        "teacher_targets": "interpolated",
    }
    ensemble = {
        "teacher": f"{files / 'teacher'},{files / 'other'}",
        "teacher_weights": "2,1",
        "teacher_num_beams": 4,
    }
    student = distill_tiny(
        files, tmp_path / "run", **sizes | changes | ensemble, reverse_model=files / "other"
    )
    teachers, students = (load_config(name) for name in (files / "teacher", student.folder))
    assert (students.d_model, students.decoder_layers) == (teachers.d_model, 1)


def test_distill_overwrites_a_run_of_another_teacher(files, tmp_path):
    distill_tiny(files, tmp_path / "run")
    found = distill_tiny(
        files, tmp_path / "run", teacher=files / "other", overwrite_output_dir=True
    )
    fresh = distill_tiny(files, tmp_path / "fresh", teacher=files / "other")
    assert_same_run(fresh.folder, found.folder)
