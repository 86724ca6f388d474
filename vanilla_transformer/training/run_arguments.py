"""
Arguments of a training run: architecture, optimization, results and start.

Types, defaults and help of the architecture are read from the source text of the configurations, since importing those
imports torch, and `--help` must not wait for it.
"""

import ast
import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal

from .lr_scheduler import NOAM, SCHEDULES

# Old names of flags and recipe keys, and what they are called now.
RENAMED = {
    "attention": "layer_types",
    "cross_attention": "cross_attention_type",
    "lsh_rounds": "num_hashes",
    "lsh_buckets": "num_buckets",
    "lsh_chunk": "lsh_attn_chunk_length",
    "memory_length": "mem_len",
    "feed_forward_chunk": "chunk_size_feed_forward",
    "torch_compile": "compile",
}
# Former flags and recipe keys: the value that training has used since, which was the default, and what to do.
_CONFIGURATION = "It remains a field of the configuration, for converted models. Leave it out"
REMOVED: dict[str, tuple[Any, str]] = {
    "hash_seed": (0, "Set `seed` for other runs"),
    "lsh_seed": (0, "Set `seed` for other runs"),
    "lm_head_bias": (False, _CONFIGURATION),
    "scale_embedding": (True, _CONFIGURATION),
    "sinusoid_layout": ("interleaved", _CONFIGURATION),
    "source_eos": (True, _CONFIGURATION),
    "stream": (False, "Text of any size is mapped into memory from the disk. Leave it out"),
    "stream_window": (1_000_000, "Leave it out, as `stream`"),
}
# Fields of the configuration that follow from the tokenizer and the corpus, or that training does not use.
_DERIVED = {"vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "max_source_length"}
_DERIVED |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "is_encoder_decoder"}
_DERIVED |= {"use_cache", *REMOVED}


def _model_arguments(name: str, module: str, unused: Collection[str], **defaults: Any) -> Any:
    """Create a dataclass of the fields that the classes of a configuration's module declare.

    Args:
        module: It documents all of its fields in the class `VanillaTransformer…Config`, the first with this ending.
        unused: Fields that are left out.
        defaults: By field, where a run has another default than the configuration.
    """
    source = Path(__file__).parents[1].joinpath(f"{module}.py").read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    text = next(ast.get_docstring(each) or "" for each in classes if re.fullmatch(r"\w+r(Long)?Config", each.name))
    added = []
    for node in (node for each in classes for node in each.body if isinstance(node, ast.AnnAssign)):
        assert isinstance(node.target, ast.Name) and node.value is not None
        key, default = node.target.id, ast.literal_eval(node.value)
        if key not in unused:
            kind = eval(ast.unparse(node.annotation), {"Literal": Literal})
            # A flag reads 0 as 0.0, and takes one type for all layers.
            kind = {float | int: float, str | list[str]: str}.get(kind, kind)
            metadata = {"help": _help(text, key)}
            added.append((key, kind, field(default=defaults.get(key, default), metadata=metadata)))
    return make_dataclass(name, added, frozen=True)


def _help(text: str, name: str) -> str:
    """Return the sentences about a field in the `Args` of a docstring."""
    found = re.search(rf"^    {name}(?: \(.*?\))?:((?:.|\n     +)*)", text, re.MULTILINE)
    assert found is not None, f"{name} is not documented"
    return " ".join(found[1].split())


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
ModelArguments = _model_arguments("ModelArguments", "configuration_vanilla_transformer", _DERIVED)
LongArguments = _model_arguments(
    "LongArguments", "configuration_vanilla_transformer_long", REMOVED, layer_types="full_attention"
)


def _refuse_fp8(name: str) -> str:
    if name == "fp8":
        raise ArgumentTypeError("fp8 is gone, since its gain was never measured. Use bf16")
    return name


@dataclass(frozen=True)
class OptimizationArguments:
    """Optimization. Every default is the paper's value (section 5), unless the help says otherwise."""

    max_steps: int | None = field(
        default=None,
        metadata={"help": "Optimizer steps; 100,000 in the paper (section 5.2, base model). Default: see --dry_run."},
    )
    num_train_epochs: float | None = field(default=None, metadata={"help": "Limit in epochs. Not in the paper."})
    max_minutes: float | None = field(default=None, metadata={"help": "Limit in minutes. Not in the paper."})
    lr_scheduler: str = field(
        default=NOAM,
        metadata={
            "help": f"{NOAM} is equation 3. Not in the paper: {', '.join(SCHEDULES[1:])}, which transformers has, and "
            "which all except constant warm up to --learning_rate."
        },
    )
    warmup_steps: int | None = field(
        default=None,
        metadata={
            "help": "Steps of growing learning rate; 4,000 in the paper (section 5.3). Default: a tenth of the "
            "planned steps, at most 4,000; with noam from scratch at least 2,000 or three tenths, whichever is less."
        },
    )
    learning_rate_scale: float | None = field(
        default=None,
        metadata={
            "help": "Factor of the learning rate of equation 3. Not in the paper. Default: 1, or less after a default "
            "warm-up below 2,000 steps, for a peak that is not above that of 2,000 steps."
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
    r_drop_weight: float = field(
        default=0.0,
        metadata={
            "help": "α of R-Drop (Liang et al., 2021), such as 5: each batch passes twice, with different dropout, "
            "and both predictions are trained to agree. A step takes twice as long. Not in the paper."
        },
    )
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
        default=None, metadata={"help": "Clip the gradient to this norm. Default: no clipping, as in the paper."}
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
        metadata={"help": "With --fsdp: free gathered parameters after the forward pass. False is faster."},
    )
    compile: bool | None = field(
        default=None,
        metadata={
            "help": "Compile the layers of the model and the loss with torch.compile. The default, auto, does so on "
            "a GPU of CUDA, if the layers can be compiled."
        },
    )
    packing: bool | None = field(
        default=None,
        metadata={
            "help": "Put several sentence pairs in each row of a batch, so that all batches have one shape. "
            "The default, auto, does so on a GPU of CUDA, if the model is compiled and has softmax attention."
        },
    )
    mixed_precision: str | None = field(
        default=None,
        metadata={
            "help": "Autocast: no, bf16 or fp16; or auto, which is bf16 where the device has instructions for it, and "
            "no elsewhere. Default: that of `accelerate launch`, otherwise no.",
            "type": _refuse_fp8,
            "choices": ["no", "bf16", "fp16", "auto"],
        },
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "Attention: sdpa, eager or another implementation of transformers. Default: sdpa; in bf16 on a "
            "CPU eager, which is faster there, unless sources are longer than 512 tokens."
        },
    )
    dataloader_num_workers: int | None = field(
        default=None,
        metadata={
            "help": "Processes that prepare batches ahead of time, for each process of the run. Default: 1 with a "
            "GPU; 0 on a CPU, where all cores train."
        },
    )
    threads: int | None = field(
        default=None,
        metadata={
            "help": "Threads that compute, in each process of the run. Default: one for each core. Fewer are faster "
            "where other programs use some of the cores."
        },
    )
    seed: int = field(default=0, metadata={"help": "Seed of parameters, dropout and batch order."})
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many validations without a new best. Not in the paper."}
    )


@dataclass(frozen=True)
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
    eval_steps: int | None = field(
        default=None, metadata={"help": "Steps between validations; by default a tenth of the run, at most 1000."}
    )
    save_steps: int | None = field(
        default=None,
        metadata={"help": "Steps between checkpoints; by default as --eval_steps, unless --save_minutes is given."},
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
            "help": "Metric that ranks the models: bleu, chrf, loss, comet (or comet:MODEL), a metric of the "
            "evaluate library, or a function of sources, hypotheses and references, such as package.module:name."
        },
    )
    greater_is_better: bool | None = field(
        default=None,
        metadata={
            "help": "Whether a greater `best_metric` is better; by default not for loss, ter, wer, cer, perplexity."
        },
    )
    report_to: str | None = field(
        default=None, metadata={"help": "Trackers of Accelerate, such as tensorboard or tensorboard,wandb."}
    )
    dry_run: bool = field(default=False, metadata={"help": "Print the size and time of the run, and write nothing."})

    def __post_init__(self) -> None:
        if self.keep_last is None:
            object.__setattr__(self, "keep_last", self.average_checkpoints)


KEEP, EXTEND, REPLACE = "keep", "extend", "replace"
FROZEN_PARTS = ("encoder", "decoder", "embeddings")


@dataclass(frozen=True)
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
            object.__setattr__(self, "freeze", as_list(self.freeze))
        for name in ("init_encoder_layers", "init_decoder_layers"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, _as_numbers(name, as_list(value)))


def as_list(text: str) -> list[str]:
    """Return the words of a list in a flag, with or without brackets and quotation marks."""
    return [word.strip("\"' ") for word in text.strip("[] ").split(",")]


def _as_numbers(name: str, words: Sequence[str]) -> list[int]:
    if not all(word.isdecimal() for word in words):
        raise ValueError(f"`{name}` must be numbers of layers, such as 0,2, got {','.join(words) or 'none'}.")
    return [*map(int, words)]
