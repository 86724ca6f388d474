"""Keys of a recipe that say how a teacher makes the training text of a student."""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from vanilla_transformer.data.data_arguments import AGREEMENT
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.recipe import Recipe, parse_recipe_with
from vanilla_transformer.utils.schemas import ONE_WORD, Schema, Words, split_words

Targets = Literal["beam", "n_best", "interpolated"]
BEAM, N_BEST, INTERPOLATED = get_args(Targets)
DISTILLATION = "distillation"  # the section of these keys in a recipe
_MAIN_KEYS = (
    *("teacher", "teacher_targets", "teacher_num_beams", "reverse_model", "train_source", "train_target"),
    *("validation_source", "validation_target", "test_source", "test_target", "max_steps", "mixed_precision"),
    *("output_dir", "init_from", "init_decoder_layers"),
)
_Count = Annotated[int, Field(ge=1, le=100_000)]


class DistillationArguments(Schema):
    """The teacher, its search, and which translations the student is trained on. None of this is in the paper."""

    noun = "recipe key"
    teacher: Words = Field(
        [], description="Folder or Hub name of the teacher, or of several models with one vocabulary (an ensemble)."
    )
    teacher_weights: Annotated[list[float] | None, BeforeValidator(split_words), ONE_WORD] = Field(
        None, description="A positive number for each model of an ensemble, such as 2,1."
    )
    teacher_targets: Targets = Field(
        "beam",
        description="Translations for the student: the best one of beam search; all of the n-best list; or the one of "
        "the n-best list with the highest sentence BLEU against the reference (Kim & Rush 2016).",
    )
    teacher_num_beams: _Count | None = Field(
        None, description="Beam size of the teacher; by default its checkpoint's."
    )
    teacher_n_best: _Count = Field(4, description="Length of the n-best list, at most the beam size.")
    teacher_precision: str | None = Field(
        None, description="float32, bfloat16, int8 or auto; by default the teacher's."
    )
    teacher_batch_size: _Count = Field(32, description="Sentences per batch of the teacher.")
    teacher_workers: int = Field(1, description="Processes of the teacher.")
    drop_warnings: bool = Field(
        True, description="Drop translations with a warning: copy, repetition, numbers, script or length."
    )
    drop_lowest_scores: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share in [0, 1) of the pairs to drop: the lowest log-probabilities for each token, by forced "
        "decoding of the reverse model, or without one of the teacher.",
    )
    reverse_model: str | None = Field(
        None, description="Model of the other direction that scores each source given its translation."
    )

    @model_validator(mode="after")
    def _check_together(self) -> "DistillationArguments":
        if not all(self.teacher) or not self.teacher:
            raise UserError("`teacher` must be given: the folder or Hub name of a model, or a list of several.")
        if self.reverse_model is not None and not self.drop_lowest_scores:
            raise UserError("`reverse_model` scores pairs, but `drop_lowest_scores` is 0. Leave one of them out.")
        if self.teacher_num_beams is not None and self.hypotheses > self.teacher_num_beams:
            rule = f"`teacher_n_best` must be at most `teacher_num_beams`={self.teacher_num_beams}"
            raise UserError(f"{rule}, got {self.teacher_n_best}.")
        if self.teacher_weights is not None and len(self.teacher_weights) != len(self.teacher):
            found = len(self.teacher_weights)
            raise UserError(f"`teacher_weights` must have {len(self.teacher)} numbers, got {found}.")
        if "teacher_n_best" in self.model_fields_set and self.teacher_targets == BEAM:
            rule = f"must be left out with `teacher_targets: {BEAM}`, which takes the best translation"
            raise UserError(f"`teacher_n_best` {rule}, got {self.teacher_n_best}.")
        return self

    @property
    def hypotheses(self) -> int:
        """Return how many translations of each source the teacher writes."""
        return 1 if self.teacher_targets == BEAM else self.teacher_n_best


def parse_distillation(arguments: Sequence[str], program: str | None = None) -> tuple[Recipe, DistillationArguments]:
    """Parse `[recipe.yaml] [--flag value …]` with the keys of training and of [`DistillationArguments`]."""
    recipe, options = parse_recipe_with({DISTILLATION: DistillationArguments}, arguments, program, _MAIN_KEYS)
    # The student gets other translations than the corpus has.
    data = recipe.data
    if data.train_alignments not in (None, AGREEMENT):
        rule = f"must be {AGREEMENT} or left out, since the student gets other translations"
        raise UserError(f"`train_alignments` {rule}, got {data.train_alignments}.")
    if data.test_source is None and data.dataset is None:
        raise UserError("`test_source` and `test_target` must be given: teacher and student are compared on them.")
    return recipe, options
