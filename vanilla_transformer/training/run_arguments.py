"""
The keys of a recipe by their sections: types, defaults, help, and whether a resumed run may change
them.

The section of the data stands in `data_arguments`. No module here imports torch, since `--help`
must not wait for it.
"""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vanilla_transformer.data.data_arguments import DataArguments, Vocabulary, changeable, fixed
from vanilla_transformer.evaluation.metric_labels import LOWER_IS_BETTER
from vanilla_transformer.user_input.schemas import Auto, Input, Numbers, Schema, Words

from .lr_scheduler import NOAM, SCHEDULES, Schedule, ScheduleName

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
_Steps = Annotated[int, Field(ge=1, le=10**12)]
_Positive = Annotated[float, Field(gt=0)]
_Weight = Annotated[float, Field(ge=0)]
_Width = Annotated[int, Field(ge=0, le=2**16)]
_Layers = Annotated[int, Field(ge=0, le=1_000)]
_Ffn = Annotated[int, Field(ge=0, le=10**6)]


class _Section(Schema, frozen=True):
    noun = "recipe key"


class ArchitectureArguments(_Section):
    """Architecture and dropout of the model; `VanillaTransformerConfig` has the same fields."""

    tie_word_embeddings: bool = fixed(
        True,
        "The output projection is the target embedding (section 3.4). `False` unties all matrices.",
    )
    d_model: Annotated[int, Field(ge=1, le=2**16)] = fixed(
        512, "Width of the residual stream, 512 in section 3.1. Must be even for sinusoids."
    )
    activation_function: str = fixed(
        "relu", "Between the two projections of equation 2, ReLU in section 3.3."
    )
    dropout: float = fixed(
        0.1,
        "Dropout on the output of sub-layers and on embeddings with positions, 0.1 in section 5.4.",
    )
    attention_dropout: float = fixed(0.0, "Dropout on attention probabilities. Not in the paper.")
    activation_dropout: float = fixed(
        0.0, "Dropout after the activation of feed-forward layers. Not in the paper."
    )
    attention_key_dim: _Width | None = fixed(
        None,
        "Width of queries and keys of a head, d_k = 64 of section 3.2.2. By default `d_model / h`.",
    )
    attention_value_dim: _Width | None = fixed(
        None, "Width of values of a head, d_v = 64 of section 3.2.2. By default `d_model / h`."
    )
    normalize_before: bool = fixed(
        False,
        "`False`: `LayerNorm(x + Sublayer(x))`, section 3.1. `True`: `x + Sublayer(LayerNorm(x))` "
        "and one more normalization after each stack (pre-norm). Not in the paper.",
    )
    layer_norm_eps: float = fixed(1e-6, "1e-6 is Tensor2Tensor's value; the paper gives none.")
    position_embedding_type: Literal["sinusoidal", "learned", "none"] = fixed(
        "sinusoidal",
        '`"sinusoidal"` (section 3.5), `"learned"` (table 3, row E), or `"none"`: without '
        "positions, a permuted "
        "source gives permuted states. Not in the paper.",
    )
    sinusoid_layout: Literal["interleaved", "halves", "tensor2tensor"] = fixed(
        "interleaved",
        'Sines and cosines in turns (section 3.5), or first all sines: `"halves"`, as in '
        '`MarianMTModel`, or `"tensor2tensor"`, with exponents from 0 to 1, as in Tensor2Tensor '
        "and Marian.",
    )
    max_position_embeddings: Vocabulary = fixed(
        1024, "Number of learned positions; sinusoids have no limit."
    )
    chunk_size_feed_forward: int = fixed(
        0, "Positions per chunk of feed-forward layers, recomputed in the backward pass; 0: all."
    )
    encoder_layers: _Layers = fixed(6, "Layers of the encoder, N = 6 of section 3.1.")
    encoder_attention_heads: _Width = fixed(8, "Heads of the encoder, h = 8 of section 3.2.2.")
    encoder_ffn_dim: _Ffn = fixed(
        2048, "Inner width of the encoder's feed-forward layers, d_ff = 2048 of section 3.3."
    )
    decoder_layers: _Layers = fixed(6, "Layers of the decoder, N = 6 of section 3.1.")
    decoder_attention_heads: _Width = fixed(
        8, "Heads of the decoder's self-attention and cross-attention, h = 8."
    )
    decoder_ffn_dim: _Ffn = fixed(
        2048, "Inner width of the decoder's feed-forward layers, d_ff = 2048."
    )


class LongArguments(_Section):
    """Architecture of models for long sequences; `VanillaTransformerLongConfig` has the same
    fields.
    """

    layer_types: str = fixed(
        "full_attention",
        "Type of self-attention, the same in all layers: a string, or a list with one entry per "
        "decoder layer. "
        '`"linear_attention"` (Katharopoulos et al., 2020) takes time linear in the length, and '
        'constant time per generated token. `"lsh_attention"` (Kitaev et al., 2020) attends to '
        'keys similar to the query. `"transfo_xl_attention"` (Dai et al., 2019) is softmax '
        "attention with relative positions and a memory of "
        "earlier segments in the decoder; the encoder keeps full attention. "
        '`"full_attention"` is the softmax attention of the base model, for use with reversible '
        "layers.",
    )
    num_hashes: int = fixed(4, "Hashing rounds of LSH attention.")
    num_buckets: int = fixed(
        32,
        "Buckets per round: an even number, or 1 for no hashing. Reformer uses twice the length "
        "divided by `lsh_attn_chunk_length`.",
    )
    lsh_attn_chunk_length: int = fixed(
        64,
        "Positions per chunk, which attends to itself and to the previous one.",
    )
    mem_len: int | None = fixed(
        None,
        "Maximum number of earlier positions in a Transformer-XL memory; by default there is no "
        "limit.",
    )
    reversible: bool = fixed(
        False,
        "Recompute activations in the backward pass instead of storing them. Needs "
        "`normalize_before`, since a branch must not be normalized together with the stream that "
        "it is added to.",
    )
    cross_attention_type: Literal["full_attention", "linear_attention"] = fixed(
        "full_attention", '`"full_attention"` or `"linear_attention"`.'
    )


class OptimizationArguments(_Section):
    """Optimization.

    Every default is the paper's value (section 5), unless the help says otherwise.
    """

    max_steps: _Steps | None = changeable(
        None,
        "Optimizer steps; 100,000 in the paper (section 5.2, base model). Default: see --dry_run.",
    )
    num_train_epochs: _Positive | None = changeable(None, "Limit in epochs. Not in the paper.")
    max_minutes: _Weight | None = changeable(None, "Limit in minutes. Not in the paper.")
    lr_scheduler: ScheduleName = fixed(
        NOAM,
        f"{NOAM} is equation 3. Not in the paper: {', '.join(SCHEDULES[1:])}, which transformers "
        "has, and which all except constant warm up to --learning_rate.",
    )
    warmup_steps: _Steps | None = fixed(
        None,
        "Steps of growing learning rate; 4,000 in the paper (section 5.3). Default: a tenth of the "
        "planned steps, at most 4,000; with noam from scratch at least 2,000 or three tenths, "
        "whichever is less.",
    )
    learning_rate_scale: _Weight | None = fixed(
        None,
        "Factor of the learning rate of equation 3. Not in the paper. Default: 1, or less after a "
        "default warm-up below 2,000 steps, for a peak that is not above that of 2,000 steps.",
    )
    learning_rate: _Weight | None = fixed(
        None, "Peak of every schedule except noam, whose peak follows from equation 3."
    )
    label_smoothing: float = fixed(0.1, "ε of section 5.4.", ge=0, lt=1)
    r_drop_weight: _Weight = fixed(
        0.0,
        "α of R-Drop (Liang et al., 2021), such as 5: each batch passes twice, with different "
        "dropout, and both predictions are trained to agree. A step takes twice as long. Not in "
        "the paper.",
    )
    loss_terms: Words | None = fixed(
        None,
        "Terms to add to the loss: places of functions, such as my_module:small_embeddings, which "
        "return a `LossTerm` for a recipe and the configuration of a model. Not in the paper.",
    )
    alignment_layer: _Layers | None = fixed(
        None,
        "With --train_alignments: the decoder layer, from 0, whose first head learns to align. "
        "Default: the last but one, or the last of two.",
    )
    alignment_weight: _Weight = fixed(0.3, "With --train_alignments: factor of the alignment loss.")
    gradient_accumulation_steps: _Steps = changeable(1, "Batches per process and step.")
    max_grad_norm: _Positive | None = fixed(
        None, "Clip the gradient to this norm. Default: no clipping, as in the paper."
    )
    gradient_compression: Literal["bf16"] | None = fixed(
        None,
        "With several processes: send gradients as bf16, in half the bytes, and sum them in it. "
        "For networks that are slower than the GPUs. Not in the paper.",
    )
    ema_decay: float | None = fixed(
        None,
        "Also keep an exponential moving average of the weights, such as 0.999. Not in the paper.",
        gt=0,
        lt=1,
    )
    fsdp: bool = changeable(
        False, "Shard parameters, optimizer state and checkpoints of it over the processes (FSDP2)."
    )
    compile: Auto = changeable(
        None,
        "Compile the layers of the model and the loss with torch.compile. The default, auto, does "
        "so on a GPU of CUDA, if the layers can be compiled.",
    )
    packing: Auto = changeable(
        None,
        "Put several sentence pairs in each row of a batch, so that all batches have one shape. "
        "The default, auto, does so on a GPU of CUDA, if the model is compiled and has softmax "
        "attention.",
    )
    mixed_precision: Literal["no", "bf16", "fp16", "auto"] = fixed(
        "no",
        "Autocast: no, bf16 or fp16; or auto, which is bf16 where the device has instructions for "
        "it, and no elsewhere. Default: that of `accelerate launch`, otherwise no.",
    )
    attn_implementation: str | None = changeable(
        None,
        "Attention: sdpa, eager or another implementation of transformers. Default: sdpa; in bf16 "
        "on a CPU eager, which is faster there, unless sources are longer than 512 tokens.",
    )
    dataloader_num_workers: Annotated[int, Field(ge=0, le=256)] | None = changeable(
        None,
        "Processes that prepare batches ahead of time, for each process of the run. Default: 1 "
        "with a GPU; 0 on a CPU, where all cores train.",
    )
    threads: int | None = changeable(
        None,
        "Threads that compute, in each process of the run. Default: one for each core. Fewer are "
        "faster where other programs use some of the cores.",
    )
    seed: int = fixed(0, "Seed of parameters, dropout and batch order.", ge=0, le=2**32 - 1)
    early_stopping_patience: _Steps | None = changeable(
        None, "Stop after this many validations without a new best. Not in the paper."
    )


class OutputArguments(_Section):
    """Where and how often results are written."""

    output_dir: str = changeable("", "Folder for the model, its checkpoints and metrics.")
    overwrite_output_dir: bool = changeable(
        False,
        "Replace a finished model, or a run of another recipe. An unfinished run of this recipe "
        "resumes.",
    )
    logging_steps: _Steps = changeable(50, "Steps between lines of metrics.jsonl.")
    eval_steps: _Steps | None = changeable(
        None, "Steps between validations; by default a tenth of the run, at most 1000."
    )
    eval_examples: Annotated[int, Field(ge=0)] = changeable(
        0, "Number of first validation pairs to log with their translations, at each validation."
    )
    save_steps: _Steps | None = changeable(
        None,
        "Steps between checkpoints; by default as --eval_steps, unless --save_minutes is given.",
    )
    save_minutes: _Weight | None = changeable(
        None, "Minutes between checkpoints, instead of --save_steps; the paper uses 10."
    )
    average_checkpoints: _Steps = changeable(
        5, "Number of last checkpoints whose mean is the final model (section 6.1)."
    )
    keep_last: int | None = changeable(
        None, "Number of last checkpoints to keep; by default as many as are averaged."
    )
    allow_changed_data: bool = changeable(
        False, "Resume although texts or tokenizer have changed since the run began."
    )
    best_metric: str = changeable(
        "bleu",
        "Metric that ranks the models, of which the best one is kept: bleu, chrf, loss, accuracy, "
        "comet (or comet:MODEL), a metric of the evaluate library, or a function of sources, "
        "hypotheses and references, such as package.module:name. Greater is better, except for "
        f"{', '.join(LOWER_IS_BETTER)}.",
    )
    report_to: str | None = changeable(
        None, "Trackers of Accelerate, such as tensorboard or tensorboard,wandb."
    )
    dry_run: bool = changeable(False, "Print the size and time of the run, and write nothing.")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        averaged = cls.model_fields["average_checkpoints"]
        kept = values.get("keep_last")
        if kept is None:
            kept = values.get("average_checkpoints", averaged.default)
        return {**values, "keep_last": kept}


KEEP, EXTEND, REPLACE = "keep", "extend", "replace"
FROZEN_PARTS = ("encoder", "decoder", "embeddings")


class FineTuningArguments(_Section):
    """Where a run starts if not from random weights. None of this is in the paper."""

    init_from: str | None = fixed(
        None,
        "Start from the weights, the architecture and the tokenizer of this folder or Hub name: a "
        "model of this package, Marian (OPUS-MT), FSMT, M2M-100 or NLLB. Dropout is the recipe's.",
    )
    init_vocabulary: Literal["keep", "extend", "replace"] = fixed(
        KEEP,
        "With --init_from: keep the vocabulary of the model; extend it to --vocab_size entries by "
        "the text; or replace it by --tokenizer or one that is trained on the text. New entries "
        "start as the mean of the former ones that spell them.",
    )
    init_encoder_layers: Numbers | None = fixed(
        None,
        "With --init_from: start with these layers of its encoder, from 0, such as 0,2; or all.",
    )
    init_decoder_layers: Numbers | None = fixed(
        None, "The same of its decoder; a student with one layer starts well with layer 0."
    )
    freeze: Words | None = fixed(
        None, f"With --init_from: parts that are not trained, of {', '.join(FROZEN_PARTS)}."
    )

    lora_rank: _Steps | None = fixed(
        None,
        "With --init_from: train adapters of this rank (LoRA) in all layers, by peft, and nothing "
        "else. They are merged into the models that are saved.",
    )


class ClassArguments(_Section):
    """A custom class of the model."""

    user_module: Input | None = changeable(
        None, "Import this file of Python first, which defines classes of models."
    )
    model_class: str | None = fixed(
        None,
        "Class of the model, such as one that --user_module defines, which derives from one of "
        "this package. Default: the package's own, or the class of the model that --init_from "
        "names.",
    )


class Recipe(BaseModel):
    """Everything that one run needs, as `parse_recipe` resolves it from YAML, flags and launcher,
    and checks it.

    Nothing replaces it afterwards: what follows from the corpus is the [`Schedule`]. No two parts
    share a field name, so that a recipe may be one flat file. `given` has the names of the keys and
    flags, as others have their defaults.
    """

    model_config = ConfigDict(frozen=True)

    data: DataArguments
    model: ArchitectureArguments
    long: LongArguments
    optimization: OptimizationArguments
    output: OutputArguments
    fine_tuning: FineTuningArguments = FineTuningArguments()
    classes: ClassArguments = ClassArguments()
    given: frozenset[str] = frozenset()

    def replace(self, section: str, **values: Any) -> "Recipe":
        """Return a recipe with other values of a section."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update=values)})


# The keys of a recipe by its sections, in which they may stand.
SECTIONS: dict[str, tuple[type[Schema], ...]] = {
    "data": (DataArguments,),
    "model": (ArchitectureArguments, LongArguments),
    "optimization": (OptimizationArguments,),
    "output": (OutputArguments,),
    "fine_tuning": (FineTuningArguments,),
    "classes": (ClassArguments,),
}
KEYS = {
    name: field
    for parts in SECTIONS.values()
    for part in parts
    for name, field in part.model_fields.items()
}
# Keys that a resumed run may change.
CHANGEABLE = {
    name for name, field in KEYS.items() if field.json_schema_extra == {"may_change": True}
}
# The size of a step, and of a batch, which follows from the former and the number of processes
# where it is given.
BATCH_SIZES = ("tokens_per_step", "max_tokens")
# Keys about a tokenizer that is trained on the corpus.
OF_NEW_TOKENIZERS = (
    "vocab_size",
    "tokenizer_model",
    "tokenizer_pattern",
    "normalization",
    "vocabulary_sentences",
)
# Keys that are derived where a recipe does not give them.
DERIVED = tuple(item.name for item in fields(Schedule))
PADDING = "pad_to_multiple_of"  # is no key, but recorded: a resumed run keeps it


def flatten(recipe: Recipe) -> dict[str, Any]:
    """Return all values of a recipe by name."""
    return {
        name: value
        for part in vars(recipe).values()
        if isinstance(part, Schema)
        for name, value in part
    }


def default_values() -> dict[str, Any]:
    """Return the default of each key of a recipe, by name."""
    return {name: field.default for name, field in KEYS.items()}


def given_architecture(recipe: Recipe) -> dict[str, Any]:
    """Return the values that a recipe gives and that describe the architecture."""
    values = {**vars(recipe.model), **vars(recipe.long)}
    return {
        name: value
        for name, value in values.items()
        if name in recipe.given and name not in DROPOUTS
    }
