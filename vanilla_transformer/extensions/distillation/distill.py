"""
Train a student on the translations of a teacher, and compare both: sequence-level distillation (Kim
& Rush 2016).

The same command continues a run that was killed: the teacher's translations shard by shard,
training from its last checkpoint.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from vanilla_transformer.data.data_arguments import corpus_specs
from vanilla_transformer.data.prepare_data import load_held_out, load_texts
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.texts import Texts, ValidationSet
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.decoding.engine.precision import check_precision
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import load_config, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import Scores, translate_and_score
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.scripts import find_scripts
from vanilla_transformer.text.translation_warnings import USED_SHARE, WarningLimits
from vanilla_transformer.training.recipe_checks import check_recipe
from vanilla_transformer.training.run_arguments import Recipe
from vanilla_transformer.training.run_folder import RunFolder, lock_output_dir, refuse_model_inside
from vanilla_transformer.training.trainer import train
from vanilla_transformer.training.validation import Evaluator

from .candidates import DistillationText, Entry, text_of_file
from .distillation_arguments import CORPUS_FILE, DISTILLATION, DistillationArguments
from .student import FilterReport, Row, one_line, write_student_corpora
from .teacher import (
    Candidate,
    language_options,
    load_models,
    load_scorers,
    open_shards,
    open_teacher,
    search_options,
    translate_text,
)

logger = logging.getLogger(__name__)

# In the folder of the run:
FOLDER = DISTILLATION
RESULTS_FILE, TABLE_FILE = f"{FOLDER}/results.json", f"{FOLDER}/results.md"


@dataclass(frozen=True)
class DistilledModel:
    """
    The outcome of a distillation.

    Attributes:
        folder: Folder of the student.
        report: The numbers of the teacher's translations, kept and dropped.
        scores: Scores on the test text of `teacher` and `student`.
    """

    folder: Path
    report: FilterReport
    scores: Mapping[str, Scores]

    @property
    def table(self) -> str:
        """The scores in Markdown, and nothing if there are none."""
        if not self.scores:
            return ""
        rows = ["| system | BLEU | chrF |\n| --- | ---: | ---: |\n"]
        for name, scores in self.scores.items():
            rows.append(f"| {name} | {scores.bleu:.2f} | {scores.chrf:.2f} |\n")
        return "".join(rows)


@dataclass(frozen=True)
class _Material:
    """
    What a distillation reads.

    Attributes:
        text: The sentences for the teacher, or their candidates.
        student: The recipe that trains on its translations.
        corpora: The number of corpora of the student.
        validation: Held-out pairs by their direction, maybe none.
        test: Held-out pairs, maybe none.
    """

    text: DistillationText
    student: Recipe
    corpora: int
    validation: Sequence[ValidationSet]
    test: Sequence[SentencePair]

    def find_scripts(self) -> tuple[str, ...]:
        """Return the scripts that held-out targets use."""
        held_out_pairs = [validation_set.pairs for validation_set in self.validation]
        targets = (pair.target for pair in chain(*held_out_pairs, self.test))
        return find_scripts(targets, USED_SHARE)


def distill(
    recipe: Recipe, options: DistillationArguments, evaluate: Evaluator | None = None
) -> DistilledModel:
    """
    Train the model of a recipe on a teacher's translations of its training text, and score both on
    its test text.

    The scores are written to `RESULTS_FILE` and `TABLE_FILE` in the folder of the run.
    """
    direction = _check_distillation(recipe, options)
    run = Path(recipe.output.output_dir)
    folder = run / FOLDER
    material = _read_material(recipe, options, folder)
    if options.teacher and not material.test:
        raise UserError(
            "Teacher and student are compared on test text, but the dataset has no split `test`."
        )
    config = load_config(options.teacher[0]) if options.teacher else None
    limits = WarningLimits.from_config(config)
    scripts = None if limits.scripts else material.find_scripts()
    limits = replace(limits, scripts=scripts or limits.scripts)
    further = {"scripts": scripts, "direction": direction if any(direction) else None}
    RunFolder(material.student)  # fails now if the folder holds another run
    with lock_output_dir(folder):
        overwrite = recipe.output.overwrite_output_dir
        text = material.text
        shards = open_shards(folder / "translations", options, text, further, overwrite)
        if shards.finished_lines != text.total:
            made = "Translating %s sentences with the teacher …"
            logger.info(made if options.teacher else "Scoring %s sentences …", f"{text.total:,}")
            translate_text(shards, text, options, direction, limits, material.test)
        corpora_folder = folder / Path(CORPUS_FILE).parent
        read_rows = partial(_read_rows, shards, text.total)
        report = write_student_corpora(corpora_folder, read_rows, material.corpora, options)
        kept, made = f"{report.kept:,}", f"{report.translations:,}"
        logger.info("%s of %s translations are kept. Dropped: %s.", kept, made, report.reasons())
        train(material.student, evaluate)
        scores = compare(run, options, direction, material.test)
    distilled = DistilledModel(run, report, scores)
    _write_results(distilled)
    return distilled


def _check_distillation(recipe: Recipe, options: DistillationArguments) -> Direction:
    """Refuse what would fail after hours, and return the direction of the text."""
    processes = process_state().num_processes
    if processes > 1:
        hint = "Distill in one process; `train` uses several"
        raise UserError(
            f"distill needs one process, got {processes} of `accelerate launch`. {hint}."
        )
    models = [*options.teacher, options.reverse_model, options.quality_model]
    for name in filter(None, models):
        refuse_model_inside(name, Path(recipe.output.output_dir))
    if options.teacher_precision is not None:
        check_precision(options.teacher_precision)
    direction, *others = {spec.direction for spec in corpus_specs(recipe.data)}
    if others:
        hint = "Translate each direction with `translate --target_language`, and train on `corpora`"
        raise UserError(f"distill needs text of one direction, got several. {hint}.")
    if options.teacher:
        tokenizer = load_models(options.teacher, options.teacher_weights)[1]
        language_options(tokenizer, direction)
    if options.reverse_model or options.quality_model:
        load_scorers(options, direction)
    if recipe.fine_tuning.init_from is not None:
        load_config(recipe.fine_tuning.init_from)
        load_tokenizer(recipe.fine_tuning.init_from)
    return direction


def _read_material(recipe: Recipe, options: DistillationArguments, folder: Path) -> _Material:
    """Read the text of a recipe, or of the file of candidates."""
    if options.candidates is not None:
        validation, test = load_held_out(recipe.data)
        text = text_of_file(options.candidates, has_candidates=not options.teacher)
        return _Material(text, recipe, 1, validation, test)
    texts = load_texts(recipe.data)
    pairs = texts.training

    def read_entries() -> Iterator[Entry]:
        for number, pair in pairs.pairs():
            yield Entry(number, *pair)

    text = DistillationText(pairs.key, len(pairs.dataset), read_entries)
    student = student_recipe(recipe, texts, folder)
    return _Material(text, student, len(texts.specs), texts.validation_sets, texts.test)


def _read_rows(shards: CorpusShards, total: int) -> Iterator[Row]:
    """Yield the sentences and their candidates from the results of the teacher."""
    for line in shards.result_lines(total):
        corpus, source, candidates = json.loads(line)
        yield Row(corpus, source, [Candidate(*fields) for fields in candidates])


def _write_results(distilled: DistilledModel) -> None:
    results = {}
    for name, scores in distilled.scores.items():
        results[name] = {"bleu": scores.bleu, "chrf": scores.chrf}
    entries = {"filter": asdict(distilled.report), "results": results}
    content = json.dumps(entries, indent=2, ensure_ascii=False)
    write_text_atomically(distilled.folder / RESULTS_FILE, content + "\n")
    page = "\n".join(filter(None, [distilled.table, str(distilled.report)]))
    write_text_atomically(distilled.folder / TABLE_FILE, page)


def student_recipe(recipe: Recipe, texts: Texts, folder: Path) -> Recipe:
    """Return the recipe with the translations of the teacher as its training text."""
    corpora = []
    for number, spec in enumerate(texts.specs):
        corpus = {
            "file": str(folder / CORPUS_FILE.format(number)),
            "name": spec.name,
            "weight": spec.weight,
            "source_language": spec.direction.source,
            "target_language": spec.direction.target,
        }
        corpora.append(corpus)
    changes: dict[str, Any] = {"corpora": corpora}
    changes |= {"train_source": None, "train_target": None, "dataset": None}
    # The text was cleaned before the teacher translated it: an n-best list repeats its source.
    changes |= {"drop": None, "score": None}
    if recipe.data.dataset is not None:
        for name, pairs in texts.held_out.items():
            for side in ("source", "target"):
                lines = (f"{one_line(getattr(pair, side))}\n" for pair in pairs)
                path = write_text_atomically(folder / f"{name}.{side}", lines)
                changes[f"{name}_{side}"] = str(path)
    student = recipe.replace("data", **changes)
    check_recipe(student)
    return student


def compare(
    run: Path,
    options: DistillationArguments,
    direction: Direction,
    pairs: Sequence[SentencePair],
) -> dict[str, Scores]:
    """Translate the test text, if there is one, by the student and the teacher, if there is one,
    and score both.
    """
    scores = dict[str, Scores]()

    def translate_test(name: str, translate: TranslationPipeline, **search: Any) -> None:
        search |= language_options(translate.tokenizer, direction)
        texts, scores[name] = translate_and_score(translate, pairs, **search)
        lines = (f"{text}\n" for text in texts)
        write_text_atomically(run / FOLDER / f"test.{name}.txt", lines)

    if options.teacher:
        with open_teacher(options) as translate:
            search = search_options(options) | {"num_return_sequences": 1}
            translate_test("teacher", translate, **search)
    if pairs:
        translate_test("student", load_pipeline(run))
    return scores
