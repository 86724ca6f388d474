"""What a training run can be told, by a YAML recipe, by flags, or by a recipe with flags on top."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import yaml

from vanilla_transformer.data.readers import CorpusSpec
from vanilla_transformer.tokenization_vanilla_transformer import TOKENIZER_MODELS

from .model_arguments import LongArguments, ModelArguments
from .recipe import Parser, as_flags, check_names, read_recipe

PAPER_SCHEDULE = "noam"  # as Tensor2Tensor calls it


@dataclass
class DataArguments:
    """The corpus: text files, a dataset with a `translation` column, or a mix of corpora; and how it is cleaned."""

    train_source: str | None = field(
        default=None, metadata={"help": "Training text, source side, one sentence a line."}
    )
    train_target: str | None = field(default=None, metadata={"help": "Training text, target side, line by line."})
    corpora: list[dict[str, Any]] | str | None = field(
        default=None,
        metadata={
            "help": "In place of files: a list of corpora (as a flag, in JSON), each with `source` and `target` (text "
            "files), `file` (.tsv, .jsonl, .parquet) or `dataset` (and `split`), with a `weight`, and with "
            "`source_language` and `target_language` where they are not those of the recipe."
        },
    )
    validation_source: str | None = field(default=None, metadata={"help": "Validation text, source side."})
    validation_target: str | None = field(default=None, metadata={"help": "Validation text, target side."})
    test_source: str | None = field(
        default=None, metadata={"help": "Test text, source side, to report how much of it is in the training text."}
    )
    test_target: str | None = field(default=None, metadata={"help": "Test text, target side."})
    dataset: str | None = field(
        default=None,
        metadata={"help": "In place of files: a folder of save_to_disk, or NAME[:CONFIGURATION] for load_dataset."},
    )
    source_language: str | None = field(default=None, metadata={"help": "Code of the source language, such as en."})
    target_language: str | None = field(default=None, metadata={"help": "Code of the target language, such as de."})
    tokenizer: str | None = field(
        default=None, metadata={"help": "Folder or Hub name of a tokenizer. By default one is trained on the corpus."}
    )
    tokenizer_model: str = field(
        default="bpe",
        metadata={
            "help": "bpe, unigram or wordpiece: of a tokenizer that is trained on the corpus (section 5.1).",
            "choices": list(TOKENIZER_MODELS),
        },
    )
    bpe_dropout: float = field(
        default=0.0,
        metadata={"help": "Probability p in [0, 1) of leaving out a merge, anew in each epoch. Not in the paper."},
    )
    vocab_size: int = field(default=37000, metadata={"help": "Entries of the joint vocabulary (section 5.1)."})
    max_tokens: int = field(
        default=25000, metadata={"help": "Padded tokens on either side of a batch, per process (section 5.1)."}
    )
    drop_empty: bool = field(
        default=False, metadata={"help": "Leave out pairs without text on one side. By default they are an error."}
    )
    drop_invalid_unicode: bool = field(
        default=False, metadata={"help": "Leave out pairs that are not valid Unicode. By default they are an error."}
    )
    drop_identical: bool = field(
        default=False, metadata={"help": "Leave out pairs whose translation is the source itself."}
    )
    drop_duplicates: bool = field(
        default=False, metadata={"help": "Leave out pairs that an earlier one repeats, over all corpora."}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Leave out pairs with more tokens on a side, EOS counted."}
    )
    max_length_ratio: float | None = field(
        default=None, metadata={"help": "Leave out pairs with a side so many times longer than the other, in tokens."}
    )
    stream: bool = field(
        default=False, metadata={"help": "Read corpora that outgrow the disk as they are needed, window by window."}
    )
    stream_window: int = field(
        default=1_000_000, metadata={"help": "Pairs of a stream that are read, cleaned and shuffled at a time."}
    )
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of cleaned and tokenised text and of trained tokenizers, shared by all processes of a "
            "run. By default in that of `datasets`."
        },
    )

    def __post_init__(self) -> None:
        if isinstance(self.corpora, str):
            self.corpora = _parse_corpora(self.corpora)

    @property
    def languages(self) -> dict[str, Any]:
        """Those of every corpus that does not name its own, as keywords of `CorpusSpec`."""
        return {"source_language": self.source_language, "target_language": self.target_language}


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


def _parse_corpora(text: str) -> list[dict[str, Any]]:
    """The value of `--corpora`: YAML, of which JSON is a part."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"`corpora` must be a list in YAML or JSON: {error}") from error


def corpus_specs(data: DataArguments) -> list[CorpusSpec]:
    """
    The corpora of the training text: those that `corpora` lists, or the one that files or `dataset` name.

    Raises:
        ValueError: an entry of `corpora` has a key that does not exist (with the nearest that does), or names no
            corpus.
    """
    if data.dataset is not None:
        return [CorpusSpec(dataset=data.dataset, **data.languages)]
    if data.corpora is None:
        return [CorpusSpec(source=data.train_source, target=data.train_target)]
    if not isinstance(data.corpora, list) or not data.corpora:
        raise ValueError(f"`corpora` must be a list with a corpus in it, got {data.corpora!r}.")
    return [_corpus_spec(entry, data.languages) for entry in data.corpora]


def _corpus_spec(entry: Any, languages: dict[str, Any]) -> CorpusSpec:
    if not isinstance(entry, dict):
        raise ValueError(f"Each corpus of `corpora` must be a mapping, such as {{file: a.tsv}}, got {entry!r}.")
    known = {item.name for item in fields(CorpusSpec)}
    check_names([str(name) for name in entry], known, "key of a corpus", exactly=True)
    return CorpusSpec(**(languages | {name: value for name, value in entry.items() if value is not None}))


def check_recipe(recipe: Recipe) -> None:
    """
    Refuses values that cannot work, before anything is read or written.

    Raises:
        ValueError: naming the field, the value and the rule.
    """
    _check_numbers(recipe)
    _check_optimization(recipe.optimization)
    _check_data(recipe.data)
    _check_tokenizer(recipe.data)
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


def _check_data(data: DataArguments) -> None:
    kinds = ("corpora", "dataset", "train_source", "train_target")
    named = [kind for kind in kinds if getattr(data, kind) is not None]
    if named not in (["corpora"], ["dataset"], ["train_source", "train_target"]):
        if len(named) > 1:
            raise ValueError(f"Give either `dataset` or text files or `corpora`, got `{named[0]}` and `{named[1]}`.")
        missing = "train_target" if named else "train_source"
        raise ValueError(f"`{missing}` must be given (or a `dataset`, or `corpora`): the path of a text file.")
    for name in ("source_language", "target_language"):
        if data.dataset is not None and getattr(data, name) is None:
            raise ValueError(f"`{name}` must be given with a `dataset`: its key in the `translation` column.")
    for part in ("validation", "test"):
        if (getattr(data, f"{part}_source") is None) != (getattr(data, f"{part}_target") is None):
            raise ValueError(f"`{part}_source` and `{part}_target` must be given together, got only one of them.")
    corpus_specs(data)
    _check_cleaning(data)


def _check_cleaning(data: DataArguments) -> None:
    for name in ("max_length", "max_length_ratio", "stream_window"):
        value = getattr(data, name)
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    if data.stream and data.drop_duplicates:
        raise ValueError(
            "`drop_duplicates` needs to see all corpora before training, which `stream` does not, got both. Take one "
            "of them out of the recipe."
        )


def _check_tokenizer(data: DataArguments) -> None:
    if data.tokenizer is not None and data.tokenizer_model != "bpe":
        raise ValueError(
            f"Give either `tokenizer` or `tokenizer_model`, got {data.tokenizer} and {data.tokenizer_model}: the "
            "latter is for a tokenizer that is trained on the corpus."
        )
    if not 0.0 <= data.bpe_dropout < 1.0:
        raise ValueError(f"`bpe_dropout` must be in [0, 1), got {data.bpe_dropout}.")
    if data.bpe_dropout and data.tokenizer_model != "bpe":
        raise ValueError(
            f"`bpe_dropout` must be 0 where `tokenizer_model` is not bpe, got {data.bpe_dropout} with "
            f"{data.tokenizer_model}: it leaves out merges, which only bpe has."
        )
