"""
Train a student on the translations of a teacher, and compare both: sequence-level distillation (Kim & Rush 2016).

The same command continues a run that was killed: the teacher's translations shard by shard, training from its last
checkpoint.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.data.data_arguments import corpus_specs
from vanilla_transformer.data.prepare_data import CachedTexts, Texts, load_texts
from vanilla_transformer.decoding.engine.precision import check_precision
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import load_config, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import Scores, translate_and_score
from vanilla_transformer.text.languages import find_languages
from vanilla_transformer.training.recipe_checks import check_recipe
from vanilla_transformer.training.run_arguments import Recipe
from vanilla_transformer.training.run_folder import RunFolder, lock_output_dir, refuse_model_inside
from vanilla_transformer.training.trainer import train
from vanilla_transformer.training.validation import Evaluator, loss_only
from vanilla_transformer.utils.device_utils import process_state
from vanilla_transformer.utils.file_utils import write_text_atomically

from .distillation_arguments import DistillationArguments
from .student import CORPUS_FILE, FilterReport, Row, one_line, write_student_corpora
from .teacher import Candidate, load_teacher, open_shards, open_teacher, search_options, translate_pairs

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
        scores: Scores on the test text of `teacher` and `student`.
    """

    folder: Path
    report: FilterReport
    scores: Mapping[str, Scores]

    @property
    def table(self) -> str:
        """The scores in Markdown."""
        rows = [f"| {name} | {scores.bleu:.2f} | {scores.chrf:.2f} |\n" for name, scores in self.scores.items()]
        return "".join(["| system | BLEU | chrF |\n| --- | ---: | ---: |\n", *rows])


def distill(recipe: Recipe, options: DistillationArguments, evaluate: Evaluator = loss_only) -> DistilledModel:
    """
    Train the model of a recipe on a teacher's translations of its training text, and score both on its test text.

    The scores are written to `RESULTS_FILE` and `TABLE_FILE` in the folder of the run.
    """
    # Refuse what would fail after hours.
    processes = process_state().num_processes
    if processes > 1:
        hint = "Distill in one process; `train` uses several"
        raise UserError(f"distill needs one process, got {processes} of `accelerate launch`. {hint}.")
    for name in filter(None, [*options.teacher, options.reverse_model]):
        refuse_model_inside(name, Path(recipe.output.output_dir))
    if options.teacher_precision is not None:
        check_precision(options.teacher_precision)
    directions = {spec.direction for spec in corpus_specs(recipe.data)}
    if len(directions) > 1 or find_languages(load_teacher(options)[1]) is not None:
        hint = "Translate each direction with `translate --target_language`, and train on `corpora`"
        raise UserError(f"distill needs one direction and a teacher of one, got several. {hint}.")
    for name in filter(None, [options.reverse_model, recipe.fine_tuning.init_from]):
        load_config(name)
        load_tokenizer(name)
    texts = load_texts(recipe.data)
    if not texts.test:
        raise UserError("Teacher and student are compared on test text, but the dataset has no split `test`.")
    training = texts.training
    assert isinstance(training, CachedTexts)  # see `parse_distillation`
    run, overwrite, total = Path(recipe.output.output_dir), recipe.output.overwrite_output_dir, len(training.dataset)
    folder = run / FOLDER
    student = student_recipe(recipe, texts, folder)
    RunFolder(student)  # fails now if the folder holds another run

    def rows() -> Iterator[Row]:
        for (corpus, pair), result in zip(training.pairs(), shards.result_lines(total), strict=True):
            yield Row(corpus, pair.source, [Candidate(*candidate) for candidate in json.loads(result)])

    with lock_output_dir(folder):
        shards = open_shards(folder / "translations", options, training.key, overwrite)
        if shards.finished_lines != total:
            logger.info("The teacher translates %s sentences.", f"{total:,}")
            translate_pairs(shards, lambda: (pair for _, pair in training.pairs()), total, options)
        rules = options.drop_warnings, options.drop_lowest_scores
        report = write_student_corpora(folder / "corpora", rows, len(texts.specs), *rules)
        kept, made = f"{report.kept:,}", f"{report.translations:,}"
        logger.info("%s of %s translations are kept. Dropped: %s.", kept, made, report.reasons())
        train(student, evaluate)
        distilled = DistilledModel(run, report, compare(run, options, texts.test))
    results = {name: {"bleu": scores.bleu, "chrf": scores.chrf} for name, scores in distilled.scores.items()}
    entries = {"filter": asdict(report), "results": results}
    write_text_atomically(run / RESULTS_FILE, json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
    write_text_atomically(run / TABLE_FILE, distilled.table)
    return distilled


def student_recipe(recipe: Recipe, texts: Texts, folder: Path) -> Recipe:
    """Return the recipe with the translations of the teacher as its training text."""
    corpora = [
        {
            "file": str(folder / "corpora" / CORPUS_FILE.format(number)),
            "name": spec.name,
            "weight": spec.weight,
            "source_language": spec.direction.source,
            "target_language": spec.direction.target,
        }
        for number, spec in enumerate(texts.specs)
    ]
    changes: dict[str, Any] = {"corpora": corpora, "train_source": None, "train_target": None, "dataset": None}
    # The text was cleaned before the teacher translated it: an n-best list repeats its source.
    changes |= {"drop": None, "score": None}
    if recipe.data.dataset is not None:
        for name, pairs in texts.held_out.items():
            for side in ("source", "target"):
                lines = (f"{one_line(getattr(pair, side))}\n" for pair in pairs)
                changes[f"{name}_{side}"] = str(write_text_atomically(folder / f"{name}.{side}", lines))
    student = recipe.replace("data", **changes)
    check_recipe(student)
    return student


def compare(run: Path, options: DistillationArguments, pairs: Any) -> dict[str, Scores]:
    """Translate the test text by teacher and student, and score both."""
    scores, search = {}, search_options(options) | {"num_return_sequences": 1}
    with open_teacher(options) as translate:
        texts, scores["teacher"] = translate_and_score(translate, pairs, **search)
        write_text_atomically(run / FOLDER / "test.teacher.txt", (f"{text}\n" for text in texts))
    texts, scores["student"] = translate_and_score(load_pipeline(run), pairs)
    write_text_atomically(run / FOLDER / "test.student.txt", (f"{text}\n" for text in texts))
    return scores
