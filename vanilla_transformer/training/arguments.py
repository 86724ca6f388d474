"""What a training run can be told, by a YAML recipe, by flags, or by a recipe with flags on top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from vanilla_transformer.data.arguments import DataArguments, check_data_arguments, check_names

from .model_arguments import LongArguments, ModelArguments
from .recipe import Parser, as_flags, read_recipe

PAPER_SCHEDULE = "noam"  # as Tensor2Tensor calls it


@dataclass
class OptimizationArguments:
    """The paper's training; every default is its value (section 5), except where the help says so."""

    max_steps: int = field(default=100_000, metadata={"help": "Updates of the parameters (section 5.2, base model)."})
    max_minutes: float | None = field(default=None, metadata={"help": "End after so many minutes. Not in the paper."})
    lr_scheduler: str = field(
        default="noam",
        metadata={
            "help": "noam is equation 3. Not in the paper: inverse_sqrt, linear, cosine and others of transformers, "
            "which rise to --learning_rate."
        },
    )
    warmup_steps: int = field(default=4000, metadata={"help": "Updates of growing learning rate (section 5.3)."})
    learning_rate_scale: float = field(
        default=1.0, metadata={"help": "Factor on the learning rate of equation 3. Not in the paper."}
    )
    learning_rate: float | None = field(
        default=None, metadata={"help": "Peak of every schedule but noam, whose peak follows from equation 3."}
    )
    adam_beta1: float = field(default=0.9, metadata={"help": "Section 5.3."})
    adam_beta2: float = field(default=0.98, metadata={"help": "Section 5.3."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "Section 5.3."})
    label_smoothing: float = field(default=0.1, metadata={"help": "ε of section 5.4."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Batches per process and update."})
    max_grad_norm: float | None = field(default=None, metadata={"help": "Clip gradients to it. Not in the paper."})
    ema_decay: float | None = field(
        default=None,
        metadata={"help": "Keep an exponential moving average of the weights too, such as 0.999. Not in the paper."},
    )
    fsdp: bool = field(
        default=False, metadata={"help": "Spread parameters and optimizer state over the processes (FSDP2)."}
    )
    torch_compile: bool = field(default=False, metadata={"help": "Compile the model with torch.compile."})
    mixed_precision: str = field(
        default="no", metadata={"help": "no, bf16 or fp16.", "choices": ["no", "bf16", "fp16"]}
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={"help": "eager, sdpa, …, as transformers names them. The default is sdpa."},
    )
    seed: int = field(default=0, metadata={"help": "Of parameters, dropout and batch order."})
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "End after so many validations without a new best. Not in the paper."}
    )


@dataclass
class OutputArguments:
    """Where results go, and how often."""

    output_dir: str = field(default="", metadata={"help": "Folder of the model, its checkpoints and curves."})
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Replace a model that is there, or a run that has not ended."}
    )
    logging_steps: int = field(default=50, metadata={"help": "Updates between lines of metrics.jsonl."})
    eval_steps: int = field(default=1000, metadata={"help": "Updates between validations."})
    save_steps: int | None = field(
        default=None, metadata={"help": "Updates between checkpoints; 1000 unless --save_minutes is given."}
    )
    save_minutes: float | None = field(
        default=None, metadata={"help": "Minutes between checkpoints, in place of --save_steps; the paper has 10."}
    )
    average_checkpoints: int = field(
        default=5, metadata={"help": "The final model is the mean of so many last checkpoints (section 6.1)."}
    )
    keep_last: int | None = field(
        default=None, metadata={"help": "Checkpoints kept; as many as are averaged, unless it says more."}
    )
    sharded_checkpoints: bool = field(
        default=False, metadata={"help": "Each process writes its share of a checkpoint; only with --fsdp."}
    )
    keep_best: int = field(
        default=1, metadata={"help": "Models of the best validations kept, beside the last checkpoints."}
    )
    best_metric: str = field(
        default="bleu",
        metadata={
            "help": "What makes a checkpoint the best: bleu, chrf or loss.",
            "choices": ["bleu", "chrf", "loss"],
        },
    )
    report_to: str | None = field(
        default=None, metadata={"help": "Trackers of Accelerate, such as tensorboard or tensorboard,wandb."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Print the plan, time a few updates, write nothing."})

    def __post_init__(self) -> None:
        if self.save_steps is None and self.save_minutes is None:
            self.save_steps = 1000
        if self.keep_last is None:
            self.keep_last = self.average_checkpoints


@dataclass
class Recipe:
    """Everything one run needs. Its parts have no field name in common, so that a recipe is one flat file."""

    data: DataArguments
    model: ModelArguments
    long: LongArguments
    optimization: OptimizationArguments
    output: OutputArguments

    def __post_init__(self) -> None:
        check_recipe(self)


_PARTS = (DataArguments, ModelArguments, LongArguments, OptimizationArguments, OutputArguments)


def parse_recipe(arguments: Sequence[str], program: str | None = None) -> Recipe:
    """
    Reads `[recipe.yaml] [--flag value …]`; flags win over the recipe, the recipe over the defaults.

    Raises:
        ValueError: a flag or key that does not exist (with the nearest that does), or values that do not go together.
        OSError: the recipe cannot be read.
    """
    parser = Parser(_PARTS, prog=program, usage="%(prog)s [RECIPE.yaml] [--flag value ...]")
    rest = list(arguments)
    recipe = read_recipe(rest.pop(0)) if rest and not rest[0].startswith("-") else {}
    known = {item.name for part in _PARTS for item in fields(part)}
    check_names(recipe, known, "recipe key")
    check_names([flag[2:].split("=")[0] for flag in rest if flag.startswith("--") and flag != "--help"], known, "flag")
    # A recipe is parsed as the flags it stands for, so that both are checked by the same rules; later flags win.
    return Recipe(*parser.parse([*as_flags(recipe), *rest]))


def check_recipe(recipe: Recipe) -> None:
    """
    Refuses values that cannot work, before anything is read or written.

    Raises:
        ValueError: naming the field, the value and the rule.
    """
    _check_numbers(recipe)
    _check_optimization(recipe.optimization)
    check_data_arguments(recipe.data)
    _check_trackers(recipe.output.report_to)
    if not recipe.output.output_dir:
        raise ValueError("`output_dir` must be given: the folder for the model, such as --output_dir runs/my-model.")
    if (recipe.output.keep_last or 0) < recipe.output.average_checkpoints:
        raise ValueError(
            f"`keep_last` must be at least `average_checkpoints`={recipe.output.average_checkpoints}, got "
            f"{recipe.output.keep_last}: checkpoints are averaged at the end."
        )
    if recipe.output.sharded_checkpoints and not recipe.optimization.fsdp:
        raise ValueError(
            "`sharded_checkpoints` must be given with `fsdp` only, got it without: each process has the whole model "
            "then, and one of them writes it. Add --fsdp, or leave it out."
        )


def _check_numbers(recipe: Recipe) -> None:
    for part in (recipe.data, recipe.optimization, recipe.output):
        for item in fields(part):
            value = getattr(part, item.name)
            if item.type not in (int, float, float | None) or value is None:
                continue
            if not math.isfinite(value):
                raise ValueError(f"`{item.name}` must be a finite number, got {value}.")
            if value < 0:
                raise ValueError(f"`{item.name}` must not be negative, got {value}.")
    if recipe.optimization.seed >= 2**32:
        raise ValueError(f"`seed` must be below 2**32, got {recipe.optimization.seed}.")
    for part, names in (
        (recipe.data, ("max_tokens",)),
        (
            recipe.optimization,
            ("max_steps", "warmup_steps", "gradient_accumulation_steps", "early_stopping_patience"),
        ),
        (recipe.output, ("logging_steps", "eval_steps", "save_steps", "average_checkpoints")),
    ):
        for name in names:
            if getattr(part, name) is not None and getattr(part, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(part, name)}.")


def _check_optimization(options: OptimizationArguments) -> None:
    from transformers import SchedulerType  # takes seconds, which `--help` should not

    if not 0.0 <= options.label_smoothing < 1.0:
        raise ValueError(f"`label_smoothing` must be in [0, 1), got {options.label_smoothing}.")
    if options.ema_decay is not None and not 0.0 < options.ema_decay < 1.0:
        raise ValueError(f"`ema_decay` must be in (0, 1), got {options.ema_decay}.")
    known = [PAPER_SCHEDULE, *(item.value for item in SchedulerType)]
    if options.lr_scheduler not in known:
        raise ValueError(f"`lr_scheduler` must be one of {', '.join(known)}, got {options.lr_scheduler!r}.")
    if (options.lr_scheduler == PAPER_SCHEDULE) != (options.learning_rate is None):
        raise ValueError(
            "`learning_rate` must be given with every `lr_scheduler` but noam, and with that not: its peak is "
            "(d_model · warmup_steps)^-0.5, times `learning_rate_scale`. Got "
            f"lr_scheduler={options.lr_scheduler} and learning_rate={options.learning_rate}."
        )
    if options.fsdp and options.mixed_precision == "fp16":
        raise ValueError(
            "`fsdp` goes with `mixed_precision` bf16 or no, got fp16: processes that hold parts of one gradient would "
            "scale their losses differently. Use bf16."
        )


def _check_trackers(report_to: str | None) -> None:
    """Accelerate passes over a tracker that is not installed."""
    if not report_to:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known, installed = ["all", *LOGGER_TYPE_TO_CLASS], ["all", *map(str, get_available_trackers())]
    for name in report_to.split(","):
        if name not in known:
            raise ValueError(f"`report_to` must name trackers of {', '.join(known)}, got {name!r}.")
        if name not in installed:
            raise ValueError(f"`report_to` names {name}, which must be installed and is not. Install or leave it out.")
