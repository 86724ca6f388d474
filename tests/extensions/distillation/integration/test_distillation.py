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
from tests.sweeps import rare
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


def read_lines(path):
    """Return the lines of a file."""
    return path.read_text().splitlines()


def kept_pairs(student):
    """Return the number of pairs that cleaning kept."""
    return json.loads((student.folder / "corpus.json").read_text())["cleaning"]["kept"]


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
    assert report.sentences == 40
    assert report.dropped == {"score": report.translations // 5}
    lines = read_lines(corpora / "corpus-0.tsv")
    assert len(lines) == report.kept
    assert report.kept == report.translations - report.dropped["score"]
    sources = {line.split("\t")[0] for line in lines}
    assert sources <= {*read_lines(files / "train.a")}
    assert kept_pairs(straight) == report.kept
    stored = json.loads((straight.folder / RESULTS_FILE).read_text())
    references = read_lines(files / "validation.b")
    results = []
    for name in ("teacher", "student"):
        path = straight.folder / "distillation" / f"test.{name}.txt"
        result = score(read_lines(path), references)
        results.append({"bleu": result.bleu, "chrf": result.chrf})
    assert [*stored["results"].values()] == results
    assert stored["filter"]["kept"] == report.kept
    lines = read_lines(straight.folder / TABLE_FILE)
    for line, (name, result) in zip(lines[2:4], straight.scores.items(), strict=True):
        assert line == f"| {name} | {result.bleu:.2f} | {result.chrf:.2f} |"
    assert lines[4] == ""
    start = f"{report.kept} of 40 translations of 40 sentences "
    assert lines[5].startswith(start)
    examples = [line for line in lines if line.startswith("- ")]
    assert len(examples) == len(report.examples["score"]) == 8


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
NLLB = {
    "teacher": "{nllb}",
    "source_language": "eng_Latn",
    "target_language": "deu_Latn",
}
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
    text = {"source": str(files / "train.a"), "target": str(files / "train.b")}
    text["source_language"] = "en"
    corpora = [text | {"target_language": code} for code in ("de", "fr")]
    names = {"files": files, "nllb": CHECKPOINTS / "nllb"}
    names["corpora"] = json.dumps(corpora)
    options = {"output_dir": tmp_path / "run"}
    for name, value in changes.items():
        options[name] = value.format(**names) if isinstance(value, str) else value
    folder = options.pop("output_dir")
    with pytest.raises((ValueError, OSError), match=message):
        distill_tiny(files, folder, **options)
    assert not list((tmp_path / "run").rglob("*.tsv"))


def test_distill_trains_on_all_translations_of_a_source(files, tmp_path):
    changes = {"teacher_targets": "n_best", "teacher_n_best": 2}
    changes |= {"drop_lowest_scores": 0, "drop": ["repeated_sources"]}
    student = distill_tiny(files, tmp_path / "run", **changes)
    report = student.report
    assert report.sentences < 40
    assert report.kept > report.sentences
    assert kept_pairs(student) == report.kept


def test_distill_reads_a_dataset(files, tmp_path):
    splits = {}
    for split in ("train", "validation", "test"):
        stem = "train" if split == "train" else "validation"
        texts = [read_lines(files / f"{stem}.{end}") for end in "ab"]
        rows = [dict(zip(("en", "de"), pair, strict=True)) for pair in zip(*texts, strict=True)]
        splits[split] = datasets.Dataset.from_dict({"translation": rows})
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "dataset")
    changes = {"dataset": tmp_path / "dataset"}
    changes |= {"source_language": "en", "target_language": "de"}
    for split in splits:
        changes |= {f"{split}_source": None, f"{split}_target": None}
    student = distill_tiny(files, tmp_path / "run", **changes)
    validation = tmp_path / "run" / "distillation" / "validation.source"
    assert validation.read_text() == (files / "validation.a").read_text()
    assert student.report.sentences == 40


def test_distill_needs_one_process(files, tmp_path, monkeypatch):
    state = SimpleNamespace(num_processes=2)
    monkeypatch.setattr(distill, "process_state", lambda: state)
    message = "distill needs one process, got 2 of `accelerate launch`. Distill in one"
    with pytest.raises(ValueError, match=message):
        distill_tiny(files, tmp_path / "run")


def test_distill_refuses_other_options_of_the_teacher(straight, files):
    message = "must continue with the same options .*`teacher_num_beams` was None and is 2"
    with pytest.raises(ValueError, match=message):
        distill_tiny(files, straight.folder, teacher_num_beams=2)


def corpus_of(student):
    return read_lines(student.folder / "distillation" / "corpora" / "corpus-0.tsv")


def results_of(student):
    """Return the candidates of each source: text, warnings and scores."""
    results = []
    for path in sorted((student.folder / "distillation" / "translations").glob("0*.txt")):
        for line in read_lines(path)[1:]:
            candidates = json.loads(line)[2]
            results.append([[text, why, *scores] for text, why, scores in candidates])
    return results


def test_distill_chooses_among_candidates_of_a_file(files, tmp_path):
    """The first candidate has a warning, the second one the better score of the others; eight have
    the lowest.
    """
    options = CANDIDATES | {"candidates": files / "three.jsonl"}
    student = distill_tiny(files, tmp_path / "run", **options)
    sources = read_lines(files / "train.a")
    pairs = [f"{line}\t{in_other_letters(line)}" for line in sources]
    assert corpus_of(student) == pairs[8:]
    assert [*student.scores] == ["student"]
    report = student.report
    assert report.dropped == {"numbers": 20, "script": 20, "score": 8, "choice": 40}
    assert report.translations == 120
    assert sorted(map(len, report.examples.values())) == [8, 10, 10, 10]
    stored = json.loads((student.folder / RESULTS_FILE).read_text())
    assert stored["filter"]["examples"] == report.examples
    assert [*stored["results"]] == ["student"]


def test_distill_needs_no_test_text_with_candidates(files, tmp_path):
    changes = {"test_source": None, "test_target": None}
    changes |= {"candidates": files / "three.jsonl"}
    changes |= {"teacher_targets": "n_best", "drop": ["repeated_sources"]}
    student = distill_tiny(files, tmp_path / "run", **CANDIDATES | changes)
    assert student.scores == {}
    assert (student.folder / TABLE_FILE).read_text() == str(student.report)
    assert student.report.kept == 80  # of equal scores none is the lowest
    sources = {line.split("\t")[0] for line in corpus_of(student)}
    assert kept_pairs(student) == len(sources)


@pytest.mark.parametrize("scored", [False, True])
def test_distill_scores_candidates_by_models(files, tmp_path, scored):
    """Scores of the reverse model, of COMET and of the file are in this order, and the best mean is
    chosen.
    """
    path = write_candidates(files / f"{scored}.jsonl", scored)
    models = {"reverse_model": files / "other", "quality_model": files / "quality"}
    options = CANDIDATES | models | {"drop_lowest_scores": 0, "candidates": path}
    student = distill_tiny(files, tmp_path / "run", **options)
    assert student.report.kept == 40
    assert student.report.dropped == {"numbers": 20, "script": 20, "choice": 40}
    usable = []
    for row in results_of(student):
        usable += [scores for _, why, *scores in row if not why]
    usable = np.array(usable)
    assert usable.shape == (80, 2 + scored)
    standard = (usable - usable.mean(0)) / usable.std(0)
    best = standard.mean(1).reshape(40, 2).argmax(1)
    chosen = [line.endswith(" q") for line in corpus_of(student)]
    assert chosen == [*map(bool, best)]
    sources = read_lines(files / "train.a")
    translations = [in_other_letters(source) for source in sources]
    comet = Comet.load(files / "quality").score(sources, translations)
    assert usable[::2, 1] == pytest.approx(comet)


def test_distill_reads_candidates_from_a_pipe(files, tmp_path):
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:  # which holds the 6 kB
        pipe.write((files / "three.jsonl").read_bytes())
    options = CANDIDATES | {"candidates": f"/dev/fd/{reader}"}
    student = distill_tiny(files, tmp_path / "run", **options)
    assert len(corpus_of(student)) == 32


def test_distill_translates_text_without_translations(straight, files, tmp_path):
    """The teacher writes the same as for parallel text. A blank line is left out."""
    text = tmp_path / "mono.a.gz"
    text.write_bytes(gzip.compress(b"\n" + (files / "train.a").read_bytes()))
    student = distill_tiny(files, tmp_path / "run", **MONOLINGUAL, train_source=text)
    assert corpus_of(student) == corpus_of(straight)
    assert student.report == straight.report
    assert student.scores["teacher"] == straight.scores["teacher"]


def test_distill_chooses_among_the_n_best_list(files, tmp_path):
    options = {"teacher_targets": "best", "teacher_num_beams": 4}
    options |= {"quality_model": files / "quality", "drop_lowest_scores": 0}
    student = distill_tiny(files, tmp_path / "run", **MONOLINGUAL | options)
    assert student.report.kept == 40 < student.report.translations
    assert student.report.dropped == {"choice": student.report.translations - 40}


TEACHERS = [
    rare(("nllb", ("eng_Latn", "deu_Latn"))),
    ("m2m_100", ("en", "de")),
    ("ours", ("en", "de")),
]


@pytest.mark.parametrize(("name", "languages"), TEACHERS)
def test_distill_takes_a_teacher_of_many_languages(files, tmp_path, monkeypatch, name, languages):
    """The teacher translates to the language that is named, as its pipeline does, and is scored in
    it.
    """
    checked = []

    def check_direction(translate, pairs, languages):
        checked.append(languages)

    monkeypatch.setattr(teacher, "check_direction", check_direction)
    folder = tmp_path / name
    if name != "ours":
        shutil.copytree(CHECKPOINTS / name, folder)
    if name == "nllb":  # whose weights are random, and which has no limit of its own
        update_json(folder / "generation_config.json", {"max_length": 14})
    if name == "ours":
        tokenizer = load_tokenizer(files / "teacher")
        model = load_seq2seq(files / "teacher", "translates")
        add_language_tags(tokenizer, [Direction("en", code) for code in ("fr", "de")])
        model.resize_token_embeddings(len(tokenizer))
        save_model_folder(model, tokenizer, folder)
    options = {"teacher": folder, "teacher_num_beams": 2}
    options |= {"drop_lowest_scores": 0.5, "max_tokens": 300}
    options |= zip(("source_language", "target_language"), languages, strict=True)
    codes = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
    student = distill_tiny(files, tmp_path / "run", **options)
    lines = read_lines(files / "train.a")
    translate = load_pipeline(folder)
    answers = translate(lines, **codes, num_beams=2)
    pairs, log_probabilities = [], []
    for line, answer, row in zip(lines, answers, results_of(student), strict=True):
        text = answer["translation_text"]
        targets = [target for target, *_ in row]
        assert targets == [text] * bool(text.strip())
        if row:
            pairs.append(SentencePair(line, targets[0]))
            log_probabilities.append(row[0][2])
    direction = Direction(*languages)
    scored = score_pairs(translate.model, translate.tokenizer, pairs, direction=direction)
    scores = [pair.log_probability / len(pair.tokens) for pair in scored]
    assert log_probabilities == pytest.approx(scores, abs=1e-4)
    answers = translate(read_lines(files / "validation.a"), **codes, num_beams=2)
    expected = "".join(f"{answer['translation_text']}\n" for answer in answers)
    translated = (student.folder / "distillation" / "test.teacher.txt").read_bytes()
    assert translated.decode() == expected
    assert checked == [codes]


def test_reverse_models_score_the_other_direction():
    name, code, other = str(CHECKPOINTS / "nllb"), "eng_Latn", "deu_Latn"
    options = DistillationArguments(candidates="a", reverse_model=name)
    (score_all,) = teacher.load_scorers(options, Direction(code, other))
    model, tokenizer = load_seq2seq(name, "translates"), load_tokenizer(name)
    pairs = [SentencePair("A dog.", "Ein Hund schläft dort.")]
    reversed_pairs = [SentencePair(*pairs[0][::-1])]
    direction = Direction(other, code)
    (expected,) = score_pairs(model, tokenizer, reversed_pairs, direction=direction)
    mean = expected.log_probability / len(expected.tokens)
    assert score_all(pairs) == pytest.approx([mean])


def test_distill_continues_a_scoring_that_was_interrupted(files, tmp_path, monkeypatch):
    """Candidates are scored in shards, and none is scored twice; the student is the same, bit for
    bit.
    """
    monkeypatch.setattr(teacher, "SHARD_LINES", 16)
    options = CANDIDATES | {"candidates": files / "three.jsonl"}
    options["reverse_model"] = files / "other"
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

    def write_again(self, shard, results):
        shards.append(shard.number)
        write(self, shard, results)

    monkeypatch.setattr(CorpusShards, "write", write_again)
    resumed = distill_tiny(files, tmp_path / "run", **options)
    assert shards == [0, 1, 2] and resumed.report == straight.report
    assert_same_run(straight.folder, resumed.folder)
    other = write_candidates(files / "other.jsonl", scored=False)
    message = "must continue with the same text as .*, but the text is another one"
    with pytest.raises(ValueError, match=message):
        distill_tiny(files, tmp_path / "run", **options | {"candidates": other})
