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

PACKAGE = "vanilla_transformer.extensions.distillation"
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


STAGES = {
    "translation": ("vanilla_transformer.decoding.corpus_shards", "CorpusShards.write", 2),
    "filtering": (f"{PACKAGE}.distill", "write_student_corpora", 1),
    "training": ("vanilla_transformer.training.trainer", "train_step", 4),
    "comparison": (f"{PACKAGE}.distill", "translate_and_score", 2),
}


@pytest.mark.parametrize("kind", ["parallel", "monolingual", "candidates"])
@pytest.mark.parametrize("stage", STAGES)
def test_distill_resumes_a_killed_run_bit_for_bit(files, tmp_path, stage, kind):
    module, function, calls = STAGES[stage]
    changes = {}
    if kind == "monolingual":
        changes = MONOLINGUAL
    if kind == "candidates":
        path = write_candidates(files / "three.jsonl")
        changes = CANDIDATES | {"candidates": path, "reverse_model": files / "other"}
        calls -= stage == "comparison"  # of the student alone
    straight = distill_tiny(files, tmp_path / "straight", **changes)
    flags = distillation_flags(files, tmp_path / "run", **changes)
    run_until_killed(DISTILL, flags, module, function, calls)
    resumed = distill_tiny(files, tmp_path / "run", **changes)
    assert_same_run(straight.folder, resumed.folder)
    assert straight.scores == resumed.scores
    assert straight.report == resumed.report


def test_distill_starts_from_a_layer_of_its_teacher(files, tmp_path):
    ends = ("_layers", "_heads", "_dim", "d_model", "vocab_size")
    changes = dict.fromkeys(name for name in TINY if name.endswith(ends))
    changes |= {"init_from": files / "teacher", "init_decoder_layers": 0}
    changes |= {"teacher_targets": "interpolated", "teacher_num_beams": 4}
    changes["teacher"] = f"{files / 'teacher'},{files / 'other'}"
    changes |= {"teacher_weights": "2,1", "reverse_model": files / "other"}
    student = distill_tiny(files, tmp_path / "run", **changes)
    teachers, students = load_config(files / "teacher"), load_config(student.folder)
    assert (students.d_model, students.decoder_layers) == (teachers.d_model, 1)


def test_distill_overwrites_a_run_of_another_teacher(files, tmp_path):
    distill_tiny(files, tmp_path / "run")
    changes = {"teacher": files / "other"}
    second = distill_tiny(files, tmp_path / "run", **changes, overwrite_output_dir=True)
    fresh = distill_tiny(files, tmp_path / "fresh", **changes)
    assert_same_run(fresh.folder, second.folder)
