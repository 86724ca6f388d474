"""A student is trained on a teacher's translations; finished work is done once."""

import gzip
import json
import logging
import os
import shutil
import sys
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
from safetensors.torch import load_file

from tests.comet_files import REGRESSION, UNIFIED, write_comet
from tests.golden.removed_tasks import FOLDER as CHECKPOINTS
from tests.tiny_runs import (
    CANDIDATES,
    MONOLINGUAL,
    assert_equal_tensors,
    assert_same_run,
    damage_file,
    distill_tiny,
    in_other_letters,
    write_candidates,
    write_files,
)
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
from vanilla_transformer.evaluation.pair_scores import score_pairs
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.distillation import distill, teacher
from vanilla_transformer.extensions.distillation.distill import RESULTS_FILE, TABLE_FILE
from vanilla_transformer.extensions.distillation.distillation_arguments import DistillationArguments
from vanilla_transformer.extensions.quality.comet import Comet
from vanilla_transformer.files.hashes import update_json
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags
from vanilla_transformer.training import trainer

pytestmark = pytest.mark.usefixtures("short_translations")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp("files"))
    for name, options in (("quality", UNIFIED), ("regression", REGRESSION)):
        write_comet(folder / name, options)
    write_candidates(folder / "three.jsonl")
    return folder


@pytest.fixture(scope="module")
def logged_run(files, tmp_path_factory):
    """Return a distilled model, and the lines that were logged."""
    lines, handler = list[str](), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("vanilla_transformer")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    distilled = distill_tiny(files, tmp_path_factory.mktemp("straight") / "run")
    logger.removeHandler(handler)
    logger.setLevel(level)
    return distilled, lines


@pytest.fixture(scope="module")
def straight(logged_run):
    return logged_run[0]


@pytest.fixture(scope="module")
def straight_log(logged_run):
    return logged_run[1]


def test_distill_trains_on_translations_and_compares(straight, files):
    report, corpora = straight.report, straight.folder / "distillation" / "corpora"
    assert report.sentences == 40 and report.dropped == {"score": report.translations // 5}
    lines = (corpora / "corpus-0.tsv").read_text().splitlines()
    assert len(lines) == report.kept == report.translations - report.dropped["score"]
    assert {line.split("\t")[0] for line in lines} <= {
        *(files / "train.a").read_text().splitlines()
    }
    assert (
        json.loads((straight.folder / "corpus.json").read_text())["cleaning"]["kept"] == report.kept
    )
    stored = json.loads((straight.folder / RESULTS_FILE).read_text())
    translations = [
        straight.folder / "distillation" / f"test.{name}.txt" for name in ("teacher", "student")
    ]
    references = (files / "validation.b").read_text().splitlines()
    scores = [score(path.read_text().splitlines(), references) for path in translations]
    assert [*stored["results"].values()] == [
        {"bleu": each.bleu, "chrf": each.chrf} for each in scores
    ]
    assert stored["filter"]["kept"] == report.kept
    rows = [
        f"| {name} | {each.bleu:.2f} | {each.chrf:.2f} |" for name, each in straight.scores.items()
    ]
    lines = (straight.folder / TABLE_FILE).read_text().splitlines()
    assert lines[2:5] == [*rows, ""] and lines[5].startswith(
        f"{report.kept} of 40 translations of 40 sentences "
    )
    assert sum(line.startswith("- ") for line in lines) == len(report.examples["score"]) == 8


def test_distill_says_what_it_works_on(straight_log):
    assert "Translating 40 sentences with the teacher …" in straight_log
    assert "Lines 1 to 40 of 40 are done." in straight_log


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
NLLB = {"teacher": "{nllb}", "source_language": "eng_Latn", "target_language": "deu_Latn"}
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
    (
        INSIDE | {"teacher": "{files}/other", "reverse_model": "{files}/teacher"},
        "`output_dir` must be another folder",
    ),
    (INSIDE, "`output_dir` must be another folder than the one of a model that is read, but"),
    (TARGETS, "its translations of 40 sentences have"),
    (
        {"teacher": "{files}/teacher,{files}/german"},
        "The models of an ensemble must have one vocabulary",
    ),
    (
        {"train_source": None, "train_target": None, "corpora": "{corpora}"},
        "text of one direction, got several. Tran",
    ),
    ({"teacher": "{nllb}"}, "The target language must be one of .*; got none"),
    (
        NLLB | {"target_language": "de"},
        "The target language must be one of .*; got 'de'. Did you mean 'deu_Latn'",
    ),
    ({"quality_model": "nowhere"}, "nowhere"),
    (
        {"quality_model": "{files}/regression"},
        "must be a unified_metric, which needs no references",
    ),
    (MONOLINGUAL | {"train_source": "{files}/empty"}, "empty"),
    (CANDIDATES | {"candidates": "nowhere"}, "There is no file nowhere"),
    (CANDIDATES | {"candidates": "{files}/train.a"}, "Line 1 of .*/train.a must be JSON such as"),
    (CANDIDATES | {"candidates": "{files}/three.jsonl", "test_source": "nowhere"}, "nowhere"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS)
def test_distill_refuses_before_it_trains(files, tmp_path, monkeypatch, changes, message):
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    (files / "empty").touch()
    text = {
        "source": str(files / "train.a"),
        "target": str(files / "train.b"),
        "source_language": "en",
    }
    names = {
        "files": files,
        "nllb": CHECKPOINTS / "nllb",
        "corpora": json.dumps([text | {"target_language": code} for code in ("de", "fr")]),
    }
    given = {
        name: value.format(**names) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises((ValueError, OSError), match=message):
        distill_tiny(files, None if "output_dir" in given else tmp_path / "run", **given)
    assert not list((tmp_path / "run").rglob("*.tsv"))


def test_distill_trains_on_all_translations_of_a_source(files, tmp_path):
    changes = {"teacher_targets": "n_best", "teacher_n_best": 2, "drop_lowest_scores": 0}
    found = distill_tiny(files, tmp_path / "run", drop=["repeated_sources"], **changes)
    assert found.report.sentences < 40 and found.report.kept > found.report.sentences
    assert (
        json.loads((found.folder / "corpus.json").read_text())["cleaning"]["kept"]
        == found.report.kept
    )


def test_distill_reads_a_dataset(files, tmp_path):
    splits = {}
    for split in ("train", "validation", "test"):
        texts = [
            (files / f"{split.replace('test', 'validation')}.{end}").read_text().splitlines()
            for end in "ab"
        ]
        rows = [{"en": source, "de": target} for source, target in zip(*texts, strict=True)]
        splits[split] = datasets.Dataset.from_dict({"translation": rows})
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "dataset")
    names = (
        "train_source",
        "train_target",
        "validation_source",
        "validation_target",
        "test_source",
        "test_target",
    )
    changes = dict.fromkeys(names) | {
        "dataset": tmp_path / "dataset",
        "source_language": "en",
        "target_language": "de",
    }
    found = distill_tiny(files, tmp_path / "run", **changes)
    validation = tmp_path / "run" / "distillation" / "validation.source"
    assert (
        validation.read_text() == (files / "validation.a").read_text()
        and found.report.sentences == 40
    )


def test_distill_needs_one_process(files, tmp_path, monkeypatch):
    monkeypatch.setattr(distill, "process_state", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(
        ValueError, match="distill needs one process, got 2 of `accelerate launch`. Distill in one"
    ):
        distill_tiny(files, tmp_path / "run")


def test_distill_refuses_other_options_of_the_teacher(straight, files):
    with pytest.raises(
        ValueError,
        match="must continue with the same options .*`teacher_num_beams` was None and is 2",
    ):
        distill_tiny(files, straight.folder, teacher_num_beams=2)


def corpus_of(student):
    return (student.folder / "distillation" / "corpora" / "corpus-0.tsv").read_text().splitlines()


def results_of(student):
    """Return the candidates of each source: text, warnings and scores."""
    shards = sorted((student.folder / "distillation" / "translations").glob("0*.txt"))
    lines = [line for path in shards for line in path.read_text().splitlines()[1:]]
    return [[[text, why, *scores] for text, why, scores in json.loads(line)[2]] for line in lines]


def test_distill_chooses_among_candidates_of_a_file(files, tmp_path):
    """The first candidate has a warning, the second one the better score of the others; eight have
    the lowest.
    """
    found = distill_tiny(files, tmp_path / "run", **CANDIDATES, candidates=files / "three.jsonl")
    pairs = [
        f"{line}\t{in_other_letters(line)}" for line in (files / "train.a").read_text().splitlines()
    ]
    assert corpus_of(found) == pairs[8:] and [*found.scores] == ["student"]
    dropped = {"numbers": 20, "script": 20, "score": 8, "choice": 40}
    assert found.report.dropped == dropped and found.report.translations == 120
    assert sorted(len(each) for each in found.report.examples.values()) == [8, 10, 10, 10]
    stored = json.loads((found.folder / RESULTS_FILE).read_text())
    assert stored["filter"]["examples"] == found.report.examples and [*stored["results"]] == [
        "student"
    ]


def test_distill_needs_no_test_text_with_candidates(files, tmp_path):
    changes = CANDIDATES | {
        "test_source": None,
        "test_target": None,
        "candidates": files / "three.jsonl",
    }
    found = distill_tiny(
        files, tmp_path / "run", **changes, teacher_targets="n_best", drop=["repeated_sources"]
    )
    assert found.scores == {} and (found.folder / TABLE_FILE).read_text() == str(found.report)
    assert found.report.kept == 80  # of equal scores none is the lowest
    cleaning = json.loads((found.folder / "corpus.json").read_text())["cleaning"]
    assert cleaning["kept"] == len({line.split("\t")[0] for line in corpus_of(found)})


@pytest.mark.parametrize("scored", [False, True])
def test_distill_scores_candidates_by_models(files, tmp_path, scored):
    """Scores of the reverse model, of COMET and of the file are in this order, and the best mean is
    chosen.
    """
    path = write_candidates(files / f"{scored}.jsonl", scored)
    models = {
        "reverse_model": files / "other",
        "quality_model": files / "quality",
        "drop_lowest_scores": 0,
    }
    found = distill_tiny(files, tmp_path / "run", **CANDIDATES | models, candidates=path)
    assert found.report.kept == 40 and found.report.dropped == {
        "numbers": 20,
        "script": 20,
        "choice": 40,
    }
    usable = np.array([each[2:] for row in results_of(found) for each in row if not each[1]])
    assert usable.shape == (80, 2 + scored)
    best = ((usable - usable.mean(0)) / usable.std(0)).mean(1).reshape(40, 2).argmax(1)
    assert [line.endswith(" q") for line in corpus_of(found)] == [*map(bool, best)]
    sources = (files / "train.a").read_text().splitlines()
    comet = Comet.load(files / "quality").score(sources, [*map(in_other_letters, sources)])
    assert usable[::2, 1] == pytest.approx(comet)


def test_distill_reads_candidates_from_a_pipe(files, tmp_path):
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:  # which holds the 6 kB
        pipe.write((files / "three.jsonl").read_bytes())
    found = distill_tiny(files, tmp_path / "run", **CANDIDATES, candidates=f"/dev/fd/{reader}")
    assert len(corpus_of(found)) == 32


def test_distill_translates_text_without_translations(straight, files, tmp_path):
    """The teacher writes the same as for parallel text. A blank line is left out."""
    text = tmp_path / "mono.a.gz"
    text.write_bytes(gzip.compress(b"\n" + (files / "train.a").read_bytes()))
    found = distill_tiny(files, tmp_path / "run", **MONOLINGUAL, train_source=text)
    assert corpus_of(found) == corpus_of(straight) and found.report == straight.report
    assert found.scores["teacher"] == straight.scores["teacher"]


def test_distill_chooses_among_the_n_best_list(files, tmp_path):
    options = {
        "teacher_targets": "best",
        "teacher_num_beams": 4,
        "quality_model": files / "quality",
    }
    found = distill_tiny(
        files, tmp_path / "run", **MONOLINGUAL | options | {"drop_lowest_scores": 0}
    )
    assert found.report.kept == 40 < found.report.translations
    assert found.report.dropped == {"choice": found.report.translations - 40}


@pytest.mark.parametrize(
    ("name", "languages"),
    [("nllb", ("eng_Latn", "deu_Latn")), ("m2m_100", ("en", "de")), ("ours", ("en", "de"))],
)
def test_distill_takes_a_teacher_of_many_languages(files, tmp_path, monkeypatch, name, languages):
    """The teacher translates to the language that is named, as its pipeline does, and is scored in
    it.
    """
    checked = []
    monkeypatch.setattr(teacher, "check_direction", lambda *given: checked.append(given[2]))
    folder = (
        shutil.copytree(CHECKPOINTS / name, tmp_path / name) if name != "ours" else tmp_path / name
    )
    if name == "nllb":  # whose weights are random, and which has no limit of its own
        update_json(folder / "generation_config.json", {"max_length": 14})
    if name == "ours":
        tokenizer, model = (
            load_tokenizer(files / "teacher"),
            load_seq2seq(files / "teacher", "translates"),
        )
        add_language_tags(tokenizer, [Direction("en", code) for code in ("fr", "de")])
        model.resize_token_embeddings(len(tokenizer))
        save_model_folder(model, tokenizer, folder)
    options = {
        "teacher": folder,
        "teacher_num_beams": 2,
        "drop_lowest_scores": 0.5,
        "max_tokens": 300,
    }
    options |= zip(("source_language", "target_language"), languages, strict=True)
    codes = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
    found = distill_tiny(files, tmp_path / "run", **options)
    lines, translate = (files / "train.a").read_text().splitlines(), load_pipeline(folder)
    answers = translate(lines, **codes, num_beams=2)
    texts = [answer["translation_text"] for answer in answers]
    results = results_of(found)
    assert [[target for target, *_ in row] for row in results] == [
        [text] * bool(text.strip()) for text in texts
    ]
    pairs = [SentencePair(line, row[0][0]) for line, row in zip(lines, results, strict=True) if row]
    scored = score_pairs(
        translate.model, translate.tokenizer, pairs, direction=Direction(*languages)
    )
    scores = [each.log_probability / len(each.tokens) for each in scored]
    assert [row[0][2] for row in results if row] == pytest.approx(scores, abs=1e-4)
    answers = translate((files / "validation.a").read_text().splitlines(), **codes, num_beams=2)
    translated = (found.folder / "distillation" / "test.teacher.txt").read_bytes().decode()
    assert translated == "".join(
        f"{answer['translation_text']}\n" for answer in answers
    ) and checked == [codes]


def test_reverse_models_score_sources_given_translations_in_the_other_direction():
    name, code, other = str(CHECKPOINTS / "nllb"), "eng_Latn", "deu_Latn"
    options = DistillationArguments(candidates="a", reverse_model=name)
    (score_all,) = teacher.load_scorers(options, Direction(code, other))
    model, tokenizer = load_seq2seq(name, "translates"), load_tokenizer(name)
    pairs = [SentencePair("A dog.", "Ein Hund schläft dort.")]
    (expected,) = score_pairs(
        model, tokenizer, [SentencePair(*pairs[0][::-1])], direction=Direction(other, code)
    )
    assert score_all(pairs) == pytest.approx([expected.log_probability / len(expected.tokens)])


def test_distill_continues_a_scoring_that_was_interrupted(files, tmp_path, monkeypatch):
    """Candidates are scored in shards, and none is scored twice; the student is the same, bit for
    bit.
    """
    monkeypatch.setattr(teacher, "SHARD_LINES", 16)
    options = CANDIDATES | {"candidates": files / "three.jsonl", "reverse_model": files / "other"}
    straight = distill_tiny(files, tmp_path / "straight", **options)
    write, shards = CorpusShards.write, []

    def interrupted(self, shard, results):
        if len(shards) == 2:
            raise KeyboardInterrupt
        shards.append(shard.number)
        write(self, shard, results)

    monkeypatch.setattr(CorpusShards, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        distill_tiny(files, tmp_path / "run", **options)
    monkeypatch.setattr(
        CorpusShards, "write", lambda *given: shards.append(given[1].number) or write(*given)
    )
    resumed = distill_tiny(files, tmp_path / "run", **options)
    assert shards == [0, 1, 2] and resumed.report == straight.report
    assert_same_run(straight.folder, resumed.folder)
    other = write_candidates(files / "other.jsonl", scored=False)
    with pytest.raises(
        ValueError, match="must continue with the same text as .*, but the text is another one"
    ):
        distill_tiny(files, tmp_path / "run", **options | {"candidates": other})
