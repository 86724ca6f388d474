"""Keys of a recipe that say how a teacher makes the training text of a student."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vanilla_transformer.data.data_arguments import AGREEMENT
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.recipe import Recipe, parse_recipe_with
from vanilla_transformer.utils.user_input import as_list

BEAM, N_BEST, INTERPOLATED = "beam", "n_best", "interpolated"
DISTILLATION = "distillation"  # the section of these keys in a recipe
_MAIN_KEYS = [
    "teacher",
    "teacher_targets",
    "teacher_num_beams",
    "reverse_model",
    "train_source",
    "train_target",
    "validation_source",
    "validation_target",
    "test_source",
    "test_target",
    "max_steps",
    "mixed_precision",
    "output_dir",
    "init_from",
    "init_decoder_layers",
]


@dataclass
class DistillationArguments:
    """The teacher, its search, and which translations the student is trained on. None of this is in the paper."""

    teacher: list[str] | str | None = field(
        default=None,
        metadata={
            "help": "Folder or Hub name of the teacher, or of several models with one vocabulary (an ensemble)."
        },
    )
    teacher_weights: list[float] | str | None = field(
        default=None, metadata={"help": "A positive number for each model of an ensemble, such as 2,1."}
    )
    teacher_targets: str = field(
        default=BEAM,
        metadata={
            "help": "Translations for the student: the best one of beam search; all of the n-best list; or the one of "
            "the n-best list with the highest sentence BLEU against the reference (Kim & Rush 2016).",
            "choices": [BEAM, N_BEST, INTERPOLATED],
        },
    )
    teacher_num_beams: int | None = field(
        default=None, metadata={"help": "Beam size of the teacher; by default its checkpoint's."}
    )
    teacher_n_best: int = field(default=4, metadata={"help": "Length of the n-best list, at most the beam size."})
    teacher_precision: str | None = field(
        default=None, metadata={"help": "float32, bfloat16, int8 or auto; by default the teacher's."}
    )
    teacher_batch_size: int = field(default=32, metadata={"help": "Sentences per batch of the teacher."})
    teacher_workers: int = field(default=1, metadata={"help": "Processes of the teacher."})
    drop_warnings: bool = field(
        default=True,
        metadata={"help": "Drop translations with a warning: copy, repetition, numbers, script or length."},
    )
    drop_lowest_scores: float = field(
        default=0.05,
        metadata={
            "help": "Share in [0, 1) of the pairs to drop: the lowest log-probabilities for each token, by forced "
            "decoding of the reverse model, or without one of the teacher."
        },
    )
    reverse_model: str | None = field(
        default=None, metadata={"help": "Model of the other direction that scores each source given its translation."}
    )

    def __post_init__(self) -> None:
        self.teachers = as_list(self.teacher) if isinstance(self.teacher, str) else self.teacher or []
        weights = self.teacher_weights
        self.weights = _as_weights(as_list(weights)) if isinstance(weights, str) else weights
        if not all(self.teachers) or not self.teachers:
            raise UserError("`teacher` must be given: the folder or Hub name of a model, or a list of several.")
        for name in ("teacher_num_beams", "teacher_n_best", "teacher_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"`{name}` must be at least 1, got {value}.")
        if not 0.0 <= self.drop_lowest_scores < 1.0:
            raise UserError(f"`drop_lowest_scores` must be in [0, 1), got {self.drop_lowest_scores}.")
        if self.reverse_model is not None and not self.drop_lowest_scores:
            raise UserError("`reverse_model` scores pairs, but `drop_lowest_scores` is 0. Leave one of them out.")
        if self.teacher_num_beams is not None and self.hypotheses > self.teacher_num_beams:
            rule = f"`teacher_n_best` must be at most `teacher_num_beams`={self.teacher_num_beams}"
            raise UserError(f"{rule}, got {self.teacher_n_best}.")
        if self.weights is not None and len(self.weights) != len(self.teachers):
            raise UserError(f"`teacher_weights` must have {len(self.teachers)} numbers, got {len(self.weights)}.")

    @property
    def hypotheses(self) -> int:
        """Return how many translations of each source the teacher writes."""
        return 1 if self.teacher_targets == BEAM else self.teacher_n_best


def parse_distillation(arguments: Sequence[str], program: str | None = None) -> tuple[Recipe, DistillationArguments]:
    """Parse `[recipe.yaml] [--flag value …]` with the keys of training and of [`DistillationArguments`]."""
    recipe, options = parse_recipe_with({DISTILLATION: DistillationArguments}, arguments, program, _MAIN_KEYS)
    _check_recipe(recipe)
    if "teacher_n_best" in recipe.given and options.teacher_targets == BEAM:
        rule = f"must be left out with `teacher_targets: {BEAM}`, which takes the best translation"
        raise UserError(f"`teacher_n_best` {rule}, got {options.teacher_n_best}.")
    return recipe, options


def _check_recipe(recipe: Recipe) -> None:
    """Refuse keys of training that need the sentences of the corpus itself."""
    data = recipe.data
    if data.train_alignments not in (None, AGREEMENT):
        rule = f"must be {AGREEMENT} or left out, since the student gets other translations"
        raise UserError(f"`train_alignments` {rule}, got {data.train_alignments}.")
    if data.test_source is None and data.dataset is None:
        raise UserError("`test_source` and `test_target` must be given: teacher and student are compared on them.")


def _as_weights(words: Sequence[str]) -> list[float]:
    try:
        return [*map(float, words)]
    except ValueError:
        raise UserError(f"`teacher_weights` must be numbers, such as 2,1, got {','.join(words)}.") from None
