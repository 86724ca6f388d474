"""Keys of a recipe that say how a teacher makes the training text of a student."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from vanilla_transformer.cli.flags import ClusterArguments
from vanilla_transformer.data.data_arguments import AGREEMENT, named_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import check_pipes
from vanilla_transformer.training.recipe import Recipe, parse_recipe_with
from vanilla_transformer.user_input.schemas import ONE_WORD, Input, Words, split_words

Targets = Literal["beam", "n_best", "interpolated", "best"]
BEAM, N_BEST, INTERPOLATED, BEST = get_args(Targets)
# The section of these keys in a recipe, and their folder within that of the run
DISTILLATION = "distillation"
# The training text of the student, in this folder.
CORPUS_FILE = "corpora/corpus-{}.tsv"
_MAIN_KEYS = (
    *(
        "teacher",
        "candidates",
        "teacher_targets",
        "teacher_num_beams",
        "reverse_model",
        "quality_model",
    ),
    *(
        "train_source",
        "train_target",
        "validation_source",
        "validation_target",
        "test_source",
        "test_target",
    ),
    *(
        "source_language",
        "target_language",
        "max_steps",
        "mixed_precision",
        "output_dir",
        "init_from",
    ),
    "init_decoder_layers",
)
_Count = Annotated[int, Field(ge=1, le=100_000)]


class DistillationArguments(ClusterArguments):
    """The teacher, its search, and which translations the student is trained on.

    None of this is in the paper.
    """

    noun = "recipe key"
    teacher: Words = Field(
        [],
        description=(
            "Folder or Hub name of the teacher, or of several models with one vocabulary "
            "(an ensemble)."
        ),
    )
    candidates: Input | None = Field(
        None,
        description="Instead of a teacher and training text: a file .jsonl, .jsonl.gz or "
        ".jsonl.zst of sources, each with translations and maybe their scores.",
    )
    teacher_weights: Annotated[list[float] | None, BeforeValidator(split_words), ONE_WORD] = Field(
        None, description="A positive number for each model of an ensemble, such as 2,1."
    )
    teacher_targets: Targets = Field(
        "beam",
        description="Translations for the student: the best one of beam search; all of the n-best "
        "list; the one of it with the highest sentence BLEU against the reference (Kim & Rush "
        "2016); or the one with the best score, as by default with candidates.",
    )
    teacher_num_beams: _Count | None = Field(
        None, description="Beam size of the teacher; by default its checkpoint's."
    )
    teacher_n_best: _Count = Field(
        4, description="Length of the n-best list, at most the beam size."
    )
    teacher_precision: str | None = Field(
        None, description="float32, bfloat16, int8 or auto; by default the teacher's."
    )
    teacher_batch_size: _Count = Field(32, description="Sentences per batch of the teacher.")
    teacher_workers: int = Field(1, description="Processes of the teacher.")
    drop_warnings: bool = Field(
        True,
        description="Drop translations with a warning: copy, repetition, numbers, script, length, "
        "or a placeholder that is lost.",
    )
    drop_lowest_scores: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share in [0, 1) of the pairs to drop: the lowest scores, by the reverse model "
        "(log-probabilities for each token), the quality model and the file of candidates, or "
        "without these by the teacher.",
    )
    reverse_model: str | None = Field(
        None,
        description="Model of the other direction that scores each source given its translation.",
    )
    quality_model: str | None = Field(
        None,
        description=(
            "COMET model that needs no references and scores pairs, such as "
            "Unbabel/wmt22-cometkiwi-da."
        ),
    )

    @model_validator(mode="after")
    def _check_together(self) -> "DistillationArguments":
        if not all(self.teacher) or not (self.teacher or self.candidates):
            raise UserError(
                "`teacher` must be given: the folder or Hub name of a model, or a list of several. "
                "Or give `candidates`, a file of translations."
            )
        teacher_keys = [name for name in self.model_fields_set if name.startswith("teacher_")]
        without_effect = {*teacher_keys} - {"teacher_targets", "teacher_n_best"}
        if not self.teacher and without_effect:
            raise UserError(
                f"`{min(without_effect)}` must be left out with `candidates`, which no teacher "
                "makes."
            )
        for name in ("reverse_model", "quality_model"):
            if getattr(self, name) is not None and not self.needs_scores:
                raise UserError(
                    f"`{name}` scores pairs, but `drop_lowest_scores` is 0. Leave one of them out."
                )
        num_beams = self.teacher_num_beams
        if num_beams is not None and self.hypotheses > num_beams:
            raise UserError(
                "`teacher_n_best` must be at most `teacher_num_beams`="
                f"{self.teacher_num_beams}, got {self.teacher_n_best}."
            )
        weights = self.teacher_weights
        if weights is not None and len(weights) != len(self.teacher):
            count = len(weights)
            raise UserError(
                f"`teacher_weights` must have {len(self.teacher)} numbers, got {count}."
            )
        if "teacher_n_best" in self.model_fields_set and self.teacher_targets == BEAM:
            raise UserError(
                f"`teacher_n_best` must be left out with `teacher_targets: {BEAM}`, which takes "
                f"the best translation, got {self.teacher_n_best}."
            )
        return self

    @property
    def hypotheses(self) -> int:
        """Return how many translations of each source the teacher writes."""
        return 1 if self.teacher_targets == BEAM else self.teacher_n_best

    @property
    def most(self) -> int:
        """Return how many translations of each source the student learns at most."""
        return self.teacher_n_best if self.teacher_targets == N_BEST else 1

    @property
    def needs_scores(self) -> bool:
        """Return whether a score decides which translations are kept."""
        return self.drop_lowest_scores > 0 or not self.teacher or self.teacher_targets == BEST


def parse_distillation(
    arguments: Sequence[str], program: str | None = None
) -> tuple[Recipe, DistillationArguments]:
    """
    Parse `[recipe.yaml] [--flag value …]` with the keys of training and of
    [`DistillationArguments`].

    `train_source` without `train_target` is text for the teacher. It becomes `candidates`, and as
    with these, the corpus of the recipe is the one that the student gets.
    """

    def complete(values: dict[str, Any]) -> dict[str, Any]:
        sources = ("teacher", "train_source", "train_target", "corpora", "dataset")
        named = [name for name in sources if name in values]
        if "candidates" in values and named:
            raise UserError(
                f"`{named[0]}` must be left out with `candidates`, which has sources and "
                "translations."
            )
        if "candidates" not in values and named != ["teacher", "train_source"]:
            return values
        folder = Path(str(values.get("output_dir"))) / DISTILLATION
        corpus = folder / CORPUS_FILE.format(0)
        candidates, corpora = values.pop("train_source", None), [{"file": str(corpus)}]
        return {"candidates": candidates, "corpora": corpora} | values

    sections = {DISTILLATION: DistillationArguments}
    recipe, options = parse_recipe_with(sections, arguments, program, _MAIN_KEYS, complete)
    data = recipe.data
    check_pipes([*filter(None, [options.candidates]), *named_files(data)])
    # The student gets other translations than the corpus has.
    if data.train_alignments not in (None, AGREEMENT):
        raise UserError(
            f"`train_alignments` must be {AGREEMENT} or left out, since the student gets other "
            f"translations, got {data.train_alignments}."
        )
    if options.candidates is not None and options.teacher_targets == INTERPOLATED:
        raise UserError(
            f"`teacher_targets: {INTERPOLATED}` needs references, but {options.candidates} has "
            "none."
        )
    if options.teacher and data.test_source is None and data.dataset is None:
        raise UserError(
            "`test_source` and `test_target` must be given: teacher and student are compared on "
            "them."
        )
    return recipe, options
