"""Arguments of a training run: dataclasses that a YAML recipe and flags fill in, and the rules they must keep."""

import inspect
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from typing import Any

from transformers import PreTrainedConfig, SchedulerType

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.arguments import (
    TOKEN_AUGMENTATIONS,
    DataArguments,
    augmentations,
    check_data_arguments,
    stages,
)
from vanilla_transformer.data.names import check_names
from vanilla_transformer.data.stages import UNTIL_SHARE

from .lr_scheduler import NEED_MAX_STEPS, NOAM, PAPER_MAX_STEPS
from .recipe import Parser, as_flags, check_renamed, read_recipe

logger = logging.getLogger(__name__)

# Fields of the configuration that follow from the tokenizer and the corpus, or that training does not use.
_DERIVED = {"vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "max_source_length"}
_DERIVED |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "is_encoder_decoder"}
_DERIVED |= {"use_cache"}


def config_fields(config_class: type[PreTrainedConfig]) -> set[str]:
    """Return the names of the fields that this package declares in a configuration."""
    classes = config_class.__mro__[: config_class.__mro__.index(PreTrainedConfig)]
    return {name for each in classes for name in each.__annotations__}


def _model_arguments(name: str, config_class: type[PreTrainedConfig], known: set[str], **defaults: Any) -> Any:
    """Create a dataclass of the fields that `config_class` adds to `known`, with its types, defaults and help.

    Args:
        defaults: By field, where a run has another default than the configuration.
    """
    added = []
    for item in fields(config_class):
        if item.name in config_fields(config_class) - known:
            # A flag reads 0 as 0.0, and takes one type for all layers.
            kinds: dict[Any, Any] = {float | int: float, str | list[str]: str}
            kind = kinds.get(item.type, item.type)
            default = defaults.get(item.name, item.default)
            added.append((item.name, kind, field(default=default, metadata={"help": _help(config_class, item.name)})))
    return make_dataclass(name, added)


def _help(config_class: type, name: str) -> str:
    """Return the first sentences about a field from the `Args` of the configuration's docstring."""
    text = inspect.getdoc(config_class) or ""
    found = re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*(?: \(.*?\))?:((?:.|\n     +)*)", text, re.MULTILINE)
    return f"See {config_class.__name__}." if found is None else " ".join(found[1].split()).replace("%", "%%")


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
ModelArguments = _model_arguments("ModelArguments", VanillaTransformerConfig, _DERIVED)
LongArguments = _model_arguments(
    "LongArguments",
    VanillaTransformerLongConfig,
    config_fields(VanillaTransformerConfig),
    layer_types="full_attention",
)


@dataclass
class OptimizationArguments:
    """Optimization. Every default is the paper's value (section 5), unless the help says otherwise."""

    max_steps: int | None = field(
        default=None,
        metadata={"help": "Optimizer steps; 100,000 in the paper (section 5.2, base model). Default: see --dry_run."},
    )
    num_train_epochs: float | None = field(default=None, metadata={"help": "Limit in epochs. Not in the paper."})
    max_minutes: float | None = field(default=None, metadata={"help": "Limit in minutes. Not in the paper."})
    lr_scheduler: str = field(
        default="noam",
        metadata={
            "help": "noam is equation 3. Not in the paper: inverse_sqrt, linear, cosine and the other schedules of "
            "transformers, which warm up to --learning_rate."
        },
    )
    warmup_steps: int | None = field(
        default=None,
        metadata={
            "help": "Steps of growing learning rate; 4,000 in the paper (section 5.3). Default: a tenth of the "
            "planned steps, at most 4,000."
        },
    )
    learning_rate_scale: float | None = field(
        default=None,
        metadata={
            "help": "Factor of the learning rate of equation 3. Not in the paper. Default: 1, or less after a default "
            "warm-up below 2,000 steps, so that the peak is not higher than after 2,000."
        },
    )
    learning_rate: float | None = field(
        default=None,
        metadata={"help": "Peak of every schedule except noam, whose peak follows from equation 3."},
    )
    adam_beta1: float = field(default=0.9, metadata={"help": "β₁ of section 5.3."})
    adam_beta2: float = field(default=0.98, metadata={"help": "β₂ of section 5.3."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "ε of section 5.3."})
    label_smoothing: float = field(default=0.1, metadata={"help": "ε of section 5.4."})
    alignment_layer: int | None = field(
        default=None,
        metadata={
            "help": "With --train_alignments: the decoder layer, from 0, whose first head learns to align. Default: "
            "the last but one, or the last of two."
        },
    )
    alignment_weight: float = field(
        default=0.3, metadata={"help": "With --train_alignments: factor of the alignment loss."}
    )
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Batches per process and step."})
    max_grad_norm: float | None = field(
        default=None, metadata={"help": "Clip gradient to this norm. Not in the paper."}
    )
    ema_decay: float | None = field(
        default=None,
        metadata={"help": "Also keep an exponential moving average of the weights, such as 0.999. Not in the paper."},
    )
    fsdp: bool = field(
        default=False, metadata={"help": "Shard parameters and optimizer state over the processes (FSDP2)."}
    )
    fsdp_reshard_after_forward: bool = field(
        default=True,
        metadata={
            "help": "With --fsdp: free gathered parameters after the forward pass. False is faster (ZeRO stage 2)."
        },
    )
    compile: bool = field(default=False, metadata={"help": "Compile the model with torch.compile."})
    mixed_precision: str | None = field(
        default=None,
        metadata={
            "help": "Autocast: no, bf16 or fp16; or fp8, which is bf16 with linear layers in 8 bits, by torchao. "
            "Default: that of `accelerate launch`, otherwise no.",
            "choices": ["no", "bf16", "fp16", "fp8"],
        },
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "Attention: sdpa, eager, varlen (flash attention without the source's padding, on a GPU), or "
            "another implementation of transformers. Default: sdpa; in bf16 on a CPU eager, which is faster there, "
            "unless sources are longer than 512 tokens."
        },
    )
    dataloader_num_workers: int | None = field(
        default=None,
        metadata={
            "help": "Processes that prepare batches ahead of time, for each process of the run. Default: 1 with a "
            "GPU; 0 on a CPU, where all cores train."
        },
    )
    seed: int = field(default=0, metadata={"help": "Seed of parameters, dropout and batch order."})
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many validations without a new best. Not in the paper."}
    )


@dataclass
class OutputArguments:
    """Where and how often results are written."""

    output_dir: str = field(default="", metadata={"help": "Folder for the model, its checkpoints and metrics."})
    overwrite_output_dir: bool = field(
        default=False,
        metadata={
            "help": "Replace a finished model, or a run of another recipe. An unfinished run of this recipe resumes."
        },
    )
    logging_steps: int = field(default=50, metadata={"help": "Steps between lines of metrics.jsonl."})
    eval_steps: int = field(default=1000, metadata={"help": "Steps between validations."})
    save_steps: int | None = field(
        default=None, metadata={"help": "Steps between checkpoints; 1000 unless --save_minutes is given."}
    )
    save_minutes: float | None = field(
        default=None, metadata={"help": "Minutes between checkpoints, instead of --save_steps; the paper uses 10."}
    )
    average_checkpoints: int = field(
        default=5, metadata={"help": "Number of last checkpoints whose mean is the final model (section 6.1)."}
    )
    keep_last: int | None = field(
        default=None, metadata={"help": "Number of last checkpoints to keep; by default as many as are averaged."}
    )
    allow_changed_data: bool = field(
        default=False, metadata={"help": "Resume although texts or tokenizer have changed since the run began."}
    )
    sharded_checkpoints: bool = field(
        default=False, metadata={"help": "Let each process write its shards of the optimizer state; only with --fsdp."}
    )
    keep_best: int = field(default=1, metadata={"help": "Number of best models to keep, beside the last checkpoints."})
    best_metric: str = field(
        default="bleu",
        metadata={
            "help": "Metric that ranks the models: bleu, chrf or loss.",
            "choices": ["bleu", "chrf", "loss"],
        },
    )
    report_to: str | None = field(
        default=None, metadata={"help": "Trackers of Accelerate, such as tensorboard or tensorboard,wandb."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Print the size and time of the run, and write nothing."})

    def __post_init__(self) -> None:
        if self.save_steps is None and self.save_minutes is None:
            self.save_steps = 1000
        if self.keep_last is None:
            self.keep_last = self.average_checkpoints


KEEP, EXTEND, REPLACE = "keep", "extend", "replace"
FROZEN_PARTS = ("encoder", "decoder", "embeddings")


@dataclass
class FineTuningArguments:
    """Where a run starts if not from random weights. None of this is in the paper."""

    init_from: str | None = field(
        default=None,
        metadata={
            "help": "Start from the weights, the architecture and the tokenizer of this folder or Hub name: a model "
            "of this package, Marian (OPUS-MT), FSMT, M2M-100 or NLLB. Dropout is the recipe's."
        },
    )
    init_vocabulary: str = field(
        default=KEEP,
        metadata={
            "help": "With --init_from: keep the vocabulary of the model; extend it to --vocab_size entries by the "
            "text; or replace it by --tokenizer or one that is trained on the text. New entries start as the mean of "
            "the former ones that spell them.",
            "choices": [KEEP, EXTEND, REPLACE],
        },
    )
    init_encoder_layers: list[int] | str | None = field(
        default=None,
        metadata={"help": "With --init_from: start with these layers of its encoder, from 0, such as 0,2; or all."},
    )
    init_decoder_layers: list[int] | str | None = field(
        default=None, metadata={"help": "The same of its decoder; a student with one layer starts well with layer 0."}
    )
    freeze: list[str] | str | None = field(
        default=None,
        metadata={"help": f"With --init_from: parts that are not trained, of {', '.join(FROZEN_PARTS)}."},
    )

    lora_rank: int | None = field(
        default=None,
        metadata={
            "help": "With --init_from: train adapters of this rank (LoRA) in all layers, by peft, and nothing else. "
            "They are merged into the models that are saved."
        },
    )

    def __post_init__(self) -> None:
        if isinstance(self.freeze, str):
            self.freeze = as_list(self.freeze)
        for name in ("init_encoder_layers", "init_decoder_layers"):
            value = getattr(self, name)
            if isinstance(value, str):
                setattr(self, name, _as_numbers(name, as_list(value)))


def as_list(text: str) -> list[str]:
    """Return the words of a list in a flag, with or without brackets and quotation marks."""
    return [word.strip("\"' ") for word in text.strip("[] ").split(",")]


def _as_numbers(name: str, words: Sequence[str]) -> list[int]:
    if not all(word.isdecimal() for word in words):
        raise ValueError(f"`{name}` must be numbers of layers, such as 0,2, got {','.join(words) or 'none'}.")
    return [*map(int, words)]


@dataclass
class Recipe:
    """Everything that one run needs. No two parts share a field name, so that a recipe is one flat file.

    Raises:
        ValueError: a value cannot work; the text names the field, the value and the rule.
    """

    data: DataArguments
    model: Any  # ModelArguments
    long: Any  # LongArguments
    optimization: OptimizationArguments
    output: OutputArguments
    fine_tuning: FineTuningArguments = field(default_factory=FineTuningArguments)

    def __post_init__(self) -> None:
        check_recipe(self)


RECIPE_PARTS = (
    DataArguments,
    ModelArguments,
    LongArguments,
    OptimizationArguments,
    OutputArguments,
    FineTuningArguments,
)


def parse_recipe(arguments: Sequence[str], program: str | None = None) -> Recipe:
    """Parse `[recipe.yaml] [--flag value …]`. Flags override the recipe, the recipe overrides the defaults.

    Raises:
        ValueError: an unknown flag or key (the text names the nearest known one, or its new name), or values that
            cannot work together.
        OSError: the recipe cannot be read.
    """
    return parse_recipe_with(None, arguments, program)[0]


def parse_recipe_with(
    further: type[Any] | None, arguments: Sequence[str], program: str | None = None
) -> tuple[Recipe, Any]:
    """Parse a recipe that may also have the fields of `further`, a dataclass. See [`parse_recipe`]."""
    parts = RECIPE_PARTS if further is None else (*RECIPE_PARTS, further)
    parser = Parser(parts, prog=program, usage="%(prog)s [RECIPE.yaml] [--flag value ...]")
    rest = list(arguments)
    recipe = read_recipe(rest.pop(0)) if rest and not rest[0].startswith("-") else {}
    flags = [flag[2:].split("=")[0] for flag in rest if flag.startswith("--") and flag != "--help"]
    known = {item.name for part in parts for item in fields(part)}
    check_renamed(recipe, "recipe key")
    check_renamed(flags, "flag")
    check_names(recipe, known, "recipe key")
    check_names(flags, known, "flag")
    # A recipe is parsed as flags, so that both obey the same rules. Later flags override earlier ones.
    parsed = parser.parse([*as_flags(recipe), *rest])
    return Recipe(*parsed[: len(RECIPE_PARTS)]), parsed[-1]


def flatten(recipe: Recipe) -> dict[str, Any]:
    """Return all values of a recipe by name."""
    return {name: value for part in asdict(recipe).values() for name, value in part.items()}


# Arguments that decide how long a run lasts, what it records and where it computes, but not what it computes. The
# batches of a step are processes × accumulation, which `RunFolder.restore` reports when they change.
_MAY_CHANGE = {"output_dir", "overwrite_output_dir", "logging_steps", "eval_steps", "save_steps", "save_minutes"}
_MAY_CHANGE |= {"keep_last", "keep_best", "best_metric", "average_checkpoints", "report_to", "max_minutes"}
_MAY_CHANGE |= {
    "early_stopping_patience",
    "compile",
    "attn_implementation",
    "dataloader_num_workers",
    "fsdp",
    "sharded_checkpoints",
}
_MAY_CHANGE |= {
    "fsdp_reshard_after_forward",
    "gradient_accumulation_steps",
    "max_steps",
    "num_train_epochs",
    "dry_run",
    "allow_changed_data",
}
_LARGEST_NUMBER = 10**12
# Arguments that are derived where a recipe does not give them.
DERIVED = ("max_steps", "warmup_steps", "learning_rate_scale")
# Arguments that end a run.
LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "early_stopping_patience")


def check_same_run(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that a run with the flat recipe `now` can resume one with `before`, and log all changes.

    A name that `before` lacks, because it is newer than the run, had its default.

    Raises:
        ValueError: a change would make it a different run; the text names each value before and now.
    """
    before = {item.name: item.default for part in RECIPE_PARTS for item in fields(part)} | before
    names = sorted(name for name in before.keys() | now.keys() if not _is_same(name, before, now))
    needs_max_steps = now.get("lr_scheduler") in NEED_MAX_STEPS or any(
        UNTIL_SHARE in stage for stage in now.get("stages") or ()
    )
    allowed = _MAY_CHANGE - ({"max_steps", "num_train_epochs"} if needs_max_steps else set())
    refused = [name for name in names if name not in allowed]
    if refused:
        raise ValueError(
            f"The run in {now['output_dir']} cannot resume with different values of "
            f"{_list_changes(refused, before, now)}. Restore them, choose another --output_dir, or start over with "
            "--overwrite_output_dir."
        )
    if names:
        logger.info("Changed since the run began: %s.", _list_changes(names, before, now))


def has_same_limits(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a run with the flat recipe `now` ends as one with `before`."""
    return all(_is_same(name, before, now) for name in LIMITS)


def _is_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a value is the same, or is derived and has been derived before."""
    return before.get(name) == now.get(name) or (name in DERIVED and now.get(name) is None)


def _list_changes(names: list[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    return ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names)


def check_recipe(recipe: Recipe) -> None:
    """Refuse values that cannot work, before anything is read or written.

    Raises:
        ValueError: the text names the field, the value and the rule.
    """
    _check_numbers(recipe)
    _check_optimization(recipe.optimization)
    check_data_arguments(recipe.data)
    if recipe.data.stages is not None and recipe.optimization.max_steps is None:
        raise ValueError("`stages` must be given with `max_steps`, got it without. Add it.")
    stages(recipe.data, recipe.optimization.max_steps or PAPER_MAX_STEPS)
    _check_guided_alignment(recipe)
    _check_fine_tuning(recipe)
    _check_trackers(recipe.output.report_to)
    if not recipe.output.output_dir:
        raise ValueError("`output_dir` must be given: a folder for the model, such as --output_dir runs/my-model.")
    if (recipe.output.keep_last or 0) < recipe.output.average_checkpoints:
        raise ValueError(
            f"`keep_last` must be at least `average_checkpoints`={recipe.output.average_checkpoints}, got "
            f"{recipe.output.keep_last}: checkpoints are averaged at the end."
        )
    if recipe.output.sharded_checkpoints and not recipe.optimization.fsdp:
        raise ValueError(
            "`sharded_checkpoints` must be given with `fsdp` only, got it without: every process has the full model, "
            "and the main process writes it. Add --fsdp, or leave it out."
        )


def _check_numbers(recipe: Recipe) -> None:
    for part in (recipe.data, recipe.optimization, recipe.output):
        for item in fields(part):
            value = getattr(part, item.name)
            if item.type not in (int, int | None, float, float | None) or value is None:
                continue
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"`{item.name}` must be a finite number, got {value}.")
            if value < 0:
                raise ValueError(f"`{item.name}` must not be negative, got {value}.")
            if value > _LARGEST_NUMBER:
                raise ValueError(f"`{item.name}` must be at most {_LARGEST_NUMBER:,}, got {value}.")
    if recipe.optimization.seed >= 2**32:
        raise ValueError(f"`seed` must be below 2**32, got {recipe.optimization.seed}.")
    for part, names in (
        (recipe.data, ("max_tokens", "pad_to_multiple_of")),
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
    if not 0.0 <= options.label_smoothing < 1.0:
        raise ValueError(f"`label_smoothing` must be in [0, 1), got {options.label_smoothing}.")
    if options.ema_decay is not None and not 0.0 < options.ema_decay < 1.0:
        raise ValueError(f"`ema_decay` must be in (0, 1), got {options.ema_decay}.")
    if options.num_train_epochs == 0:
        raise ValueError("`num_train_epochs` must be above 0, got 0.0.")
    known = [NOAM, *(item.value for item in SchedulerType)]
    if options.lr_scheduler not in known:
        raise ValueError(f"`lr_scheduler` must be one of {', '.join(known)}, got {options.lr_scheduler!r}.")
    if (options.lr_scheduler == NOAM) != (options.learning_rate is None):
        raise ValueError(
            "`learning_rate` must be given with every `lr_scheduler` except noam, whose peak is "
            "(d_model · warmup_steps)^-0.5 times `learning_rate_scale`. Got "
            f"lr_scheduler={options.lr_scheduler} and learning_rate={options.learning_rate}."
        )
    if options.fsdp and options.mixed_precision == "fp16":
        raise ValueError(
            "`fsdp` needs `mixed_precision` bf16 or no, got fp16: processes that share a gradient would scale their "
            "losses differently. Use bf16."
        )


def given_architecture(recipe: Recipe) -> dict[str, Any]:
    """Return the values of a recipe that describe the architecture and are not the defaults."""
    parts = ((recipe.model, ModelArguments()), (recipe.long, LongArguments()))
    values = {name: value for part, default in parts for name, value in asdict(part).items() - asdict(default).items()}
    return {name: values[name] for name in sorted(values.keys() - set(DROPOUTS))}


def _check_fine_tuning(recipe: Recipe) -> None:
    options = recipe.fine_tuning
    if options.init_from is None:
        names = ("freeze", "lora_rank", "init_encoder_layers", "init_decoder_layers")
        given: dict[str, Any] = {name: getattr(options, name) for name in names}
        given["init_vocabulary"] = None if options.init_vocabulary == KEEP else options.init_vocabulary
        for name, value in (given | {"forgetting_source": recipe.data.forgetting_source}).items():
            if value is not None:
                raise ValueError(f"`{name}` must be given with `init_from`, got it without. Leave it out.")
        return
    if recipe.data.forgetting_source is not None and not (recipe.data.validation_source or recipe.data.dataset):
        raise ValueError("`forgetting_source` must be given with `validation_source`, got it without. Add the latter.")
    if recipe.data.tokenizer is not None and options.init_vocabulary != REPLACE:
        raise ValueError(
            "Give either `init_from`, which brings its tokenizer, or `tokenizer`, got both. To change the tokenizer, "
            "set `init_vocabulary` to replace."
        )
    for part in options.freeze or ():
        if part not in FROZEN_PARTS:
            raise ValueError(f"`freeze` must name parts of {', '.join(FROZEN_PARTS)}, got {part!r}.")
    if set(options.freeze or ()) == set(FROZEN_PARTS):
        raise ValueError("`freeze` must leave a part that is trained, got all of them.")
    with_tokens = _token_keys(recipe)
    if with_tokens and "embeddings" in (options.freeze or ()):
        raise ValueError(
            f"{with_tokens[0]} adds tokens, so `freeze` must not name embeddings, got both. Leave one of them out."
        )
    if options.lora_rank is not None:
        _check_lora(recipe)


def _token_keys(recipe: Recipe) -> list[str]:
    """Return the given keys that add tokens to the vocabulary, as messages name them."""
    given = [f"`{name}` of `augment`" for name in augmentations(recipe.data) if name in TOKEN_AUGMENTATIONS]
    return given + (["`source_tags`"] if recipe.data.source_tags else [])


def _check_lora(recipe: Recipe) -> None:
    options, rank = recipe.optimization, recipe.fine_tuning.lora_rank
    if rank is not None and rank < 1:
        raise ValueError(f"`lora_rank` must be at least 1, got {rank}.")
    others = [name for name in ("ema_decay", "fsdp", "compile") if getattr(options, name)]
    others += ["freeze"] if recipe.fine_tuning.freeze else []
    others += ["train_alignments"] if recipe.data.train_alignments else []
    others += _token_keys(recipe)
    others += ["mixed_precision: fp8"] if options.mixed_precision == "fp8" else []
    if others:
        raise ValueError(f"`lora_rank` must be given without {others[0]}, got both. Take one of them out.")


def _check_guided_alignment(recipe: Recipe) -> None:
    options, layers = recipe.optimization, recipe.model.decoder_layers
    if recipe.data.train_alignments is None:
        if options.alignment_layer is not None:
            raise ValueError("`alignment_layer` must be given with `train_alignments`, got it without. Leave it out.")
        return
    if options.alignment_layer is not None and options.alignment_layer >= layers:
        rule = f"below `decoder_layers`={layers}, counted from 0"
        raise ValueError(f"`alignment_layer` must be {rule}, got {options.alignment_layer}.")
    others = [name for name in ("compile", "fsdp") if getattr(options, name)]
    others += ["mixed_precision: fp8"] if options.mixed_precision == "fp8" else []
    if options.attn_implementation not in (None, "sdpa", "eager"):  # masks of others are of other kinds
        others.append(f"attn_implementation: {options.attn_implementation}")
    others += [] if recipe.long == LongArguments() else ["the keys of models for long sequences"]
    if others:
        rule = f"must be given without {others[0]}, got both"
        raise ValueError(f"`train_alignments` {rule}. Take one of them out of the recipe.")


def _check_trackers(report_to: str | None) -> None:
    """Refuse a tracker that is unknown or not installed, which Accelerate would ignore."""
    if not report_to:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known, installed = ["all", *LOGGER_TYPE_TO_CLASS], ["all", *map(str, get_available_trackers())]
    for name in report_to.split(","):
        if name not in known:
            raise ValueError(f"`report_to` must name trackers of {', '.join(known)}, got {name!r}.")
        if name not in installed:
            raise ValueError(f"`report_to` names {name}, which must be installed and is not. Install or leave it out.")
