"""A student is trained on a teacher's translations; finished work is done once."""

import json
import sys
from types import SimpleNamespace

import datasets
import pytest
from safetensors.torch import load_file

from tests.tiny_distillation import distill_tiny, write_files
from tests.tiny_runs import assert_equal_tensors, damage_file
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.distillation import distill
from vanilla_transformer.extensions.distillation.distill import RESULTS_FILE, TABLE_FILE
from vanilla_transformer.training import trainer

pytestmark = pytest.mark.usefixtures("short_translations")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def straight(files, tmp_path_factory):
    return distill_tiny(files, tmp_path_factory.mktemp("straight") / "run")


def test_distill_trains_on_translations_and_compares(straight, files):
    report, corpora = straight.report, straight.folder / "distillation" / "corpora"
    assert report.sentences == 40 and report.dropped == {"score": report.translations // 5}
    lines = (corpora / "corpus-0.tsv").read_text().splitlines()
    assert len(lines) == report.kept == report.translations - report.dropped["score"]
    assert {line.split("\t")[0] for line in lines} <= {*(files / "train.a").read_text().splitlines()}
    assert json.loads((straight.folder / "corpus.json").read_text())["cleaning"]["kept"] == report.kept
    stored = json.loads((straight.folder / RESULTS_FILE).read_text())
    translations = [straight.folder / "distillation" / f"test.{name}.txt" for name in ("teacher", "student")]
    references = (files / "validation.b").read_text().splitlines()
    scores = [score(path.read_text().splitlines(), references) for path in translations]
    assert [*stored["results"].values()] == [{"bleu": each.bleu, "chrf": each.chrf} for each in scores]
    assert stored["filter"]["kept"] == report.kept
    rows = [f"| {name} | {each.bleu:.2f} | {each.chrf:.2f} |" for name, each in straight.scores.items()]
    assert (straight.folder / TABLE_FILE).read_text().splitlines()[2:] == rows


def test_distill_does_finished_work_once(straight, files, monkeypatch):
    before = load_file(straight.folder / "model.safetensors")
    corpus = straight.folder / "distillation" / "corpora" / "corpus-0.tsv"
    text = corpus.read_bytes()
    damage_file(corpus, "a flipped bit")  # which is made again from the translations
    monkeypatch.setattr(CorpusShards, "write", None)
    monkeypatch.setattr(trainer, "train_step", None)
    assert distill_tiny(files, straight.folder) == straight
    assert_equal_tensors(before, load_file(straight.folder / "model.safetensors"))
    assert corpus.read_bytes() == text


TARGETS = {"train_source": "{files}/train.b", "train_target": "{files}/train.b"}
INSIDE = {"output_dir": "{files}/teacher"}
REFUSALS = [
    ({"teacher": "nowhere"}, "nowhere"),
    ({"teacher": "{files}/teacher,nowhere"}, "nowhere"),
    ({"reverse_model": "nowhere"}, "nowhere"),
    ({"init_from": "nowhere", "vocab_size": None}, "nowhere"),
    ({"test_source": "nowhere"}, "nowhere"),
    ({"test_source": "{files}/train.a"}, "must have the same number of lines|40 .* 5|5 .* 40"),
    ({"train_source": "{files}/empty"}, "empty"),
    ({"teacher_precision": "int4"}, "`precision` must be one of .*, got 'int4'"),
    ({"teacher_precision": "int8"}, '`precision="int8"` needs packages that are not installed'),
    (INSIDE, "`output_dir` must be another folder than the one of a model that is read, but"),
    (TARGETS, "its translations of 40 sentences have"),
    ({"teacher": "{files}/teacher,{files}/german"}, "The models of an ensemble must have one vocabulary"),
    ({"train_source": None, "train_target": None, "corpora": "{corpora}"}, "one direction and .*, got several. Tran"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS)
def test_distill_refuses_before_it_trains(files, tmp_path, monkeypatch, changes, message):
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    (files / "empty").touch()
    text = {"source": str(files / "train.a"), "target": str(files / "train.b"), "source_language": "en"}
    names = {"files": files, "corpora": json.dumps([text | {"target_language": code} for code in ("de", "fr")])}
    given = {name: value if value is None else value.format(**names) for name, value in changes.items()}
    with pytest.raises((ValueError, OSError), match=message):
        distill_tiny(files, None if "output_dir" in given else tmp_path / "run", **given)
    assert not list((tmp_path / "run").rglob("*.tsv"))


def test_distill_trains_on_all_translations_of_a_source(files, tmp_path):
    changes = {"teacher_targets": "n_best", "teacher_n_best": 2, "drop_lowest_scores": 0}
    found = distill_tiny(files, tmp_path / "run", drop=["repeated_sources"], **changes)
    assert found.report.sentences < 40 and found.report.kept > found.report.sentences
    assert json.loads((found.folder / "corpus.json").read_text())["cleaning"]["kept"] == found.report.kept


def test_distill_reads_a_dataset(files, tmp_path):
    splits = {}
    for split in ("train", "validation", "test"):
        texts = [(files / f"{split.replace('test', 'validation')}.{end}").read_text().splitlines() for end in "ab"]
        rows = [{"en": source, "de": target} for source, target in zip(*texts, strict=True)]
        splits[split] = datasets.Dataset.from_dict({"translation": rows})
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "dataset")
    names = ("train_source", "train_target", "validation_source", "validation_target", "test_source", "test_target")
    changes = dict.fromkeys(names) | {
        "dataset": tmp_path / "dataset",
        "source_language": "en",
        "target_language": "de",
    }
    found = distill_tiny(files, tmp_path / "run", **changes)
    validation = tmp_path / "run" / "distillation" / "validation.source"
    assert validation.read_text() == (files / "validation.a").read_text() and found.report.sentences == 40


def test_distill_needs_one_process(files, tmp_path, monkeypatch):
    monkeypatch.setattr(distill, "process_state", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(ValueError, match="distill needs one process, got 2 of `accelerate launch`. Distill in one"):
        distill_tiny(files, tmp_path / "run")


def test_distill_refuses_other_options_of_the_teacher(straight, files):
    with pytest.raises(
        ValueError, match="must continue with the same options .*`teacher_num_beams` was None and is 2"
    ):
        distill_tiny(files, straight.folder, teacher_num_beams=2)
