"""
Train a student on the translations of a teacher, and compare both: sequence-level distillation (Kim & Rush 2016).

Each stage keeps its results in the folder of the run, so that the same command continues a run that was killed:
the teacher's translations and their scores shard by shard, training from its last checkpoint, the comparison system by
system.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vanilla_transformer.data.data_arguments import corpus_specs
from vanilla_transformer.data.prepare_data import CachedTexts, Texts, load_texts
from vanilla_transformer.data.readers import ROWS_PER_BATCH, SentencePair
from vanilla_transformer.data.tokenized_corpus import hash_json
from vanilla_transformer.decoding.corpus_shards import SHARD_LINES, CorpusShards
from vanilla_transformer.decoding.engine.precision import check_precision
from vanilla_transformer.decoding.pretrained import hash_model, load_config, load_seq2seq, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import find_languages
from vanilla_transformer.text.translation_warnings import WarningLimits
from vanilla_transformer.training.recipe_checks import check_recipe
from vanilla_transformer.training.run_arguments import Recipe
from vanilla_transformer.training.run_folder import RunFolder, lock_output_dir, refuse_model_inside
from vanilla_transformer.training.trainer import train
from vanilla_transformer.training.validation import Evaluator, loss_only
from vanilla_transformer.utils.device_utils import process_state
from vanilla_transformer.utils.file_utils import find_damage, write_text_atomically

from .distillation_arguments import DistillationArguments
from .student import (
    REPORT_FILE,
    FilterReport,
    Row,
    System,
    SystemResult,
    as_table,
    corpus_name,
    measure,
    one_line,
    read_report,
    write_student_corpora,
)
from .teacher import (
    DIRECTION_SAMPLE,
    Scorer,
    as_line,
    check_direction,
    load_teacher,
    open_teacher,
    read_candidates,
    translation_origin,
    write_candidates,
    write_hypotheses,
)

logger = logging.getLogger(__name__)

# In the folder of the run:
FOLDER = "distillation"
RESULTS_FILE, TABLE_FILE = f"{FOLDER}/results.json", f"{FOLDER}/results.md"


@dataclass(frozen=True)
class DistilledModel:
    """
    The outcome of a distillation.

    Attributes:
        folder: Folder of the student.
        report: The numbers of the teacher's translations, kept and dropped.
        results: Results of the teacher, and of the student with each decoding.
    """

    folder: Path
    report: FilterReport
    results: list[SystemResult]

    @property
    def table(self) -> str:
        """The results in Markdown."""
        return as_table(self.results)


def distill(recipe: Recipe, options: DistillationArguments, evaluate: Evaluator = loss_only) -> DistilledModel:
    """
    Train the model of a recipe on a teacher's translations of its training text, and compare both on its test text.

    The table is written to `RESULTS_FILE` and `TABLE_FILE` in the folder of the run.
    """
    folder = Path(recipe.output.output_dir)
    _check(recipe, options)
    texts = load_texts(recipe.data)
    if not texts.test:
        raise UserError("Teacher and student are compared on test text, but the dataset has no split `test`.")
    run = _Run(recipe, options, texts)
    student = run.student_recipe()
    RunFolder(student)  # fails now if the folder holds another run
    with lock_output_dir(folder / FOLDER):
        run.translate()
        run.measure_candidates()
        report = run.write_corpora()
        train(student, evaluate)
        distilled = DistilledModel(folder, report, run.compare())
    entries = {"filter": asdict(report), "results": [asdict(result) for result in distilled.results]}
    write_text_atomically(folder / RESULTS_FILE, json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
    write_text_atomically(folder / TABLE_FILE, distilled.table)
    return distilled


class _Run:
    """The stages of a distillation, each of which does the work that earlier runs have left."""

    def __init__(self, recipe: Recipe, options: DistillationArguments, texts: Texts):
        assert isinstance(texts.training, CachedTexts)  # see `parse_distillation`
        self.recipe, self.options, self.texts, self.training = recipe, options, texts, texts.training
        self.folder = Path(recipe.output.output_dir) / FOLDER
        self.total = len(self.training.dataset)
        origin = translation_origin(options, self.training.key)
        self.hypotheses = CorpusShards(self.folder / "hypotheses", origin, SHARD_LINES)
        origin = self._candidates_origin(origin)
        self.candidates = CorpusShards(self.folder / "candidates", origin, SHARD_LINES)

    def student_recipe(self) -> Recipe:
        """Return the recipe with the translations of the teacher as its training text."""
        specs, data = self.texts.specs, self.recipe.data
        corpora = [
            {
                "file": str(self.folder / "corpora" / corpus_name(number)),
                "name": spec.name,
                "weight": spec.weight,
                "source_language": spec.direction.source,
                "target_language": spec.direction.target,
            }
            for number, spec in enumerate(specs)
        ]
        changes: dict[str, Any] = {"corpora": corpora, "train_source": None, "train_target": None, "dataset": None}
        # The text was cleaned before the teacher translated it: an n-best list repeats its source.
        changes |= {"drop": None, "score": None}
        if data.dataset is not None:
            for name, pairs in self.texts.held_out.items():
                for side in ("source", "target"):
                    path = self.folder / f"{name}.{side}"
                    lines = (f"{one_line(getattr(pair, side))}\n" for pair in pairs)
                    changes[f"{name}_{side}"] = str(write_text_atomically(path, lines))
        student = self.recipe.replace("data", **changes)
        check_recipe(student)
        return student

    def translate(self) -> None:
        """Write the translations of the teacher."""
        self._open(self.hypotheses)
        if self.hypotheses.finished_lines == self.total:
            return
        logger.info("The teacher translates %s sentences.", f"{self.total:,}")
        with open_teacher(self.options) as translate:
            check_direction(translate, [pair for _, pair in islice(self._pairs(), DIRECTION_SAMPLE)])
            lines = (pair.source for _, pair in self._pairs())
            write_hypotheses(self.hypotheses, lines, self.total, self.options, translate)

    def measure_candidates(self) -> None:
        """Choose among the translations, and measure the chosen ones."""
        self._open(self.candidates)
        if self.candidates.finished_lines == self.total:
            return
        limits, scorer = WarningLimits.from_config(load_config(self.options.teacher[0])), self._load_scorer()
        hypotheses = map(json.loads, self.hypotheses.result_lines(self.total))
        lines = (as_line(pair, texts) for (_, pair), texts in zip(self._pairs(), hypotheses, strict=True))
        write_candidates(self.candidates, lines, self.total, self.options.teacher_targets, limits, scorer)

    def write_corpora(self) -> FilterReport:
        """Write the pairs that the student is trained on."""
        rules = self.options.drop_warnings, self.options.drop_lowest_scores
        origin = hash_json(self.candidates.origin, rules)
        path = self.folder / "corpora" / REPORT_FILE
        stored = read_report(path)
        if stored is not None and stored.origin == origin and find_damage(path.parent) is None:
            return stored
        report = write_student_corpora(path.parent, self._rows, len(self.texts.specs), *rules, origin=origin)
        kept, made = f"{report.kept:,}", f"{report.translations:,}"
        logger.info("%s of %s translations are kept. Dropped: %s.", kept, made, report.reasons())
        return report

    def compare(self) -> list[SystemResult]:
        """Measure the teacher and the student on the test text."""
        options, student = self.options, (self.recipe.output.output_dir,)
        weights = None if options.teacher_weights is None else tuple(options.teacher_weights)
        systems = [
            System("teacher", tuple(options.teacher), weights, options.teacher_num_beams, options.teacher_precision),
            System("student", student),
        ]
        if (options.student_num_beams, options.student_precision) != (None, None):
            systems.append(System("fast student", student, None, options.student_num_beams, options.student_precision))
        paths = [self.folder / f"test.{system.name.replace(' ', '_')}.json" for system in systems]
        return [
            measure(replace(system, compile=options.compile_steps), self.texts.test, path)
            for system, path in zip(systems, paths, strict=True)
        ]

    def _open(self, shards: CorpusShards) -> None:
        try:
            shards.open(resume=True)
        except UserError:
            if not self.recipe.output.overwrite_output_dir:
                raise
            shards.delete()
            shards.open(resume=True)

    def _pairs(self) -> Iterator[tuple[int, SentencePair]]:
        """Yield each pair of the training text with the number of its corpus."""
        for table in self.training.dataset.with_format("arrow").iter(ROWS_PER_BATCH):
            columns = (table[name].to_pylist() for name in ("corpus", "source", "target"))
            for corpus, source, target in zip(*columns, strict=True):
                yield corpus, SentencePair(source, target)

    def _rows(self) -> Iterator[Row]:
        candidates = read_candidates(self.candidates, self.total)
        for (corpus, pair), found in zip(self._pairs(), candidates, strict=True):
            yield Row(corpus, pair.source, found)

    def _candidates_origin(self, hypotheses: dict[str, Any]) -> dict[str, Any]:
        options, scores = self.options, bool(self.options.drop_lowest_scores)
        reverse = None if options.reverse_model is None else hash_model(options.reverse_model)
        chosen = {"teacher_targets": options.teacher_targets, "drop_lowest_scores > 0": scores}
        return {"text": self.training.key, "hypotheses": hash_json(hypotheses), "reverse": reverse, "options": chosen}

    def _load_scorer(self) -> Scorer | None:
        options, device = self.options, process_state().device
        if not options.drop_lowest_scores:
            return None
        if options.reverse_model is not None:
            model = load_seq2seq(options.reverse_model, "scores translations")
            return Scorer(model.to(device), load_tokenizer(options.reverse_model), reverse=True)
        model, tokenizer = load_teacher(options)
        return Scorer(model.to(device), tokenizer, reverse=False)


def _check(recipe: Recipe, options: DistillationArguments) -> None:
    """Refuse what would end a later stage."""
    processes = process_state().num_processes
    if processes > 1:
        hint = "Distill in one process; `train` uses several"
        raise UserError(f"distill needs one process, got {processes} of `accelerate launch`. {hint}.")
    folder = Path(recipe.output.output_dir)
    for name in filter(None, [*options.teacher, options.reverse_model]):
        refuse_model_inside(name, folder)
    for precision in filter(None, [options.teacher_precision, options.student_precision]):
        check_precision(precision)
    directions = {spec.direction for spec in corpus_specs(recipe.data)}
    if len(directions) > 1 or find_languages(load_teacher(options)[1]) is not None:
        hint = "Translate each direction with `translate --target_language`, and train on `corpora`"
        raise UserError(f"distill needs one direction and a teacher of one, got several. {hint}.")
    for name in filter(None, [options.reverse_model, recipe.fine_tuning.init_from]):
        load_config(name)
        load_tokenizer(name)
