"""Train with transformers' `Trainer`, with the paper's batches and learning rate.

Evaluation, callbacks, reports and resuming are the library's own. `TokenBudgetTrainerMixin`
precedes any trainer class in the bases; `VanillaSeq2SeqTrainer` combines it with `Seq2SeqTrainer`.
On a GPU of CUDA, it packs the batches of this package's model and compiles its layers, as the
package's own loop does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow.compute
import torch
import transformers
from packaging.version import Version
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)

from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler
from vanilla_transformer.data.batches import IGNORED_LABEL, Batch, BatchShape, is_packed
from vanilla_transformer.data.packing import find_rows, pack_pairs
from vanilla_transformer.data.readers import read_text_files
from vanilla_transformer.data.tokenized_corpus import encode_pairs, to_dataset
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.attention import without_cudnn_attention
from vanilla_transformer.machine.cores import limit_onednn_cache
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .compilation import compile_regions, should_compile, uncompiled
from .device_batch import BatchPreparation, should_pack
from .loss import ModelWithLoss, cross_entropy
from .lr_scheduler import noam_lambda

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class TokenBudgetTrainingArguments(Seq2SeqTrainingArguments):
    """The library's arguments with the paper's values (section 5) as defaults, and four more.

    The library's AdamW equals the paper's Adam, since `weight_decay` is 0 by default.
    `per_device_train_batch_size` is ignored in favor of `max_tokens`.
    """

    max_tokens: int = field(
        default=25000,
        metadata={"help": "Padded tokens on either side of a batch, per process (section 5.1)."},
    )
    paper_schedule: bool = field(
        default=True,
        metadata={
            "help": (
                "Use the learning rate of equation 3; otherwise `learning_rate` and "
                "`lr_scheduler_type`."
            )
        },
    )
    learning_rate_scale: float = field(
        default=1.0,
        metadata={"help": "Factor of the learning rate of equation 3. Not in the paper."},
    )
    warmup_steps: float = field(
        default=4000,
        metadata={
            "help": "Steps of growing learning rate (section 5.3); below 1, a share of all steps."
        },
    )
    adam_beta2: float = field(default=0.98, metadata={"help": "β₂ of section 5.3."})
    adam_epsilon: float = field(default=1e-9, metadata={"help": "ε of section 5.3."})
    label_smoothing_factor: float = field(default=0.1, metadata={"help": "ε of section 5.4."})
    max_grad_norm: float = field(
        default=0.0, metadata={"help": "Clip gradients to this norm; the paper does not (0)."}
    )
    packing: bool | None = field(
        default=None,
        metadata={
            "help": "Put several pairs into each row of a batch, and compile the layers on a GPU. "
            "By default in one process on a GPU of CUDA, for this package's model and the loss of "
            "section 5.4."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < 1:
            raise UserError(f"`max_tokens` must be at least 1, got {self.max_tokens}.")
        if self.auto_find_batch_size:
            raise UserError(
                "`auto_find_batch_size` cannot change batches of `max_tokens`. Lower `max_tokens` "
                "instead."
            )
        if not self.paper_schedule and self.learning_rate_scale != 1.0:
            raise UserError(
                "`learning_rate_scale` belongs to `paper_schedule`, which is off, got "
                f"{self.learning_rate_scale}. Give `learning_rate` instead."
            )
        if self.paper_schedule and self.warmup_steps <= 0:
            raise UserError(
                f"`warmup_steps` must be above 0 for the paper's schedule, got {self.warmup_steps}."
            )
        for item in fields(TrainingArguments) if self.paper_schedule else ():
            value = getattr(self, item.name)
            if item.name in ("learning_rate", "lr_scheduler_type") and value != item.default:
                raise UserError(
                    f"`{item.name}` has no effect beside `paper_schedule`, got "
                    f"{getattr(value, 'value', value)}. Turn `paper_schedule` off, or change its "
                    "rate by `warmup_steps` and `learning_rate_scale`."
                )


class _EpochLoader(DataLoader):
    """Pass the epoch that `Trainer` sets on to the batch sampler."""

    def set_epoch(self, epoch: int) -> None:
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class TokenBudgetTrainerMixin:
    """Add batches of `args.max_tokens` (section 5.1) and the learning rate of equation 3 to a
    `Trainer` class.

    The training data have a length and the columns `input_ids` and `labels`. Processes share them
    by data parallelism. `args` are [`TokenBudgetTrainingArguments`]. The model is any
    encoder-decoder of transformers, and the collator gives it `decoder_input_ids`, as
    `DataCollatorForSeq2Seq(tokenizer, model=model)` does.

    The loss is the mean over all target tokens of a step, whatever batches they are in. Without
    label smoothing, `Trainer` itself takes the mean of the means of batches for models without
    `num_items_in_batch`, such as Marian's.

    A resumed run continues with the same batches, given the same data, `max_tokens`, seed,
    `packing` and number of batches per step (processes × accumulation).
    """

    # Attributes of the trainer class.
    args: Any
    model: "PreTrainedModel"
    optimizer: Any
    lr_scheduler: Any
    train_dataset: Any
    accelerator: Any
    compute_loss_func: Any
    data_collator: Any

    def __init__(self, *args: Any, **kwargs: Any):
        limit_onednn_cache()
        if Version(transformers.__version__) < Version("5.17"):
            problem = (
                f"transformers {transformers.__version__} counts labels wrongly. Install it, "
                "or use `train`"
            )
            raise UserError(
                "Batches of `max_tokens` need the `Trainer` of transformers 5.17 or later: "
                f"{problem}."
            )
        super().__init__(*args, **kwargs)
        if not isinstance(self.args, TokenBudgetTrainingArguments):
            raise UserError(
                "`args` must be `TokenBudgetTrainingArguments`, which have `max_tokens`, got "
                f"{type(self.args).__name__}."
            )
        self._packed_model = self._create_packed_model()
        if self.compute_loss_func is None:
            self.compute_loss_func = self._mean_loss

    def _create_packed_model(self) -> ModelWithLoss | None:
        """Return the model with its loss for packed batches, compiled on a GPU, or None if batches
        are padded.
        """
        choice, device = self.args.packing, self.args.device
        obstacles = {
            "a model of another package": not isinstance(
                self.model, VanillaTransformerForConditionalGeneration
            ),
            "`compute_loss_func`": self.compute_loss_func is not None,
            "a `data_collator` other than `DataCollatorForSeq2Seq`": type(self.data_collator)
            is not DataCollatorForSeq2Seq,
            "several processes or GPUs": self.args.world_size > 1 or self.args.n_gpu > 1,
            "`torch_compile`": self.args.torch_compile,
        }
        obstacle = next((name for name, applies in obstacles.items() if applies), None)
        if obstacle is not None:
            if choice:
                raise UserError(
                    f"`packing` must be given without {obstacle}. Leave one of them out."
                )
            return None
        compiled = should_compile(None, self.model.config, device)
        if not should_pack(choice, self.model, compiled, device):
            return None
        packed_model = ModelWithLoss(self.model, self.args.label_smoothing_factor)
        if compiled:
            compile_regions(packed_model, device, packing=True)
        return packed_model

    def compute_loss(
        self,
        model: "PreTrainedModel",
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a batch as `Trainer` does; that of a packed one has no outputs."""
        if not is_packed(inputs):
            with without_cudnn_attention():  # batches have many shapes
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[misc]
        assert self._packed_model is not None and not return_outputs
        with self.accelerator.autocast():  # which Accelerate adds to the model's `forward` alone
            loss = self._packed_model(inputs)
        return loss.smoothed / _count_tokens(inputs["labels"], num_items_in_batch)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate on padded batches, whose many shapes are not compiled."""
        with uncompiled(self.model):
            return super().evaluation_loop(*args, **kwargs)  # type: ignore[misc]

    def _mean_loss(
        self,
        outputs: Any,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Return the loss of section 5.4, as a mean over the target tokens of the step, or of the
        batch alone.
        """
        loss = cross_entropy(outputs["logits"], labels, self.args.label_smoothing_factor)
        return loss.smoothed / _count_tokens(labels, num_items_in_batch)

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of this process, packed, or padded by the trainer's collator."""
        # Take columns and workers from the library's loader. Accelerate must not prepare the new
        # one: it would split batches that are already this process's own, into unequal numbers.
        # `Trainer` moves them to the device.
        stock = super().get_train_dataloader()  # type: ignore[misc]
        lengths = (column_lengths(self.train_dataset, column) for column in ("input_ids", "labels"))
        sampler = TokenBudgetBatchSampler(
            PairLengths(*lengths),
            self.args.max_tokens,
            self.args.seed if self.args.data_seed is None else self.args.data_seed,
            self.args.gradient_accumulation_steps,
            self.args.world_size,
            self.args.process_index,
            packing=self._packed_model is not None,
        )
        collate = stock.collate_fn
        if sampler.packed_shape is not None:
            assert self._packed_model is not None
            in_graph = self._packed_model.loss_in_graph is not None
            prepare = BatchPreparation.for_model(self.model, loss_in_graph=in_graph)
            collate = PackingCollator(sampler.packed_shape, self.model.config.pad_token_id, prepare)
        names = (
            "num_workers",
            "pin_memory",
            "worker_init_fn",
            "multiprocessing_context",
            "prefetch_factor",
        )
        options: dict[str, Any] = {
            name: getattr(stock, name) for name in (*names, "persistent_workers")
        }
        return _EpochLoader(stock.dataset, batch_sampler=sampler, collate_fn=collate, **options)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Create the schedule of equation 3 for every parameter group, or the library's if
        `paper_schedule` is off.
        """
        if self.lr_scheduler is not None or not self.args.paper_schedule:
            return super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        optimizer = self.optimizer if optimizer is None else optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = 1.0  # the schedule yields the rate itself
        # `Trainer` advances it once per step. Prepared by Accelerate it would advance once per
        # process.
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            noam_lambda(
                self.accelerator.unwrap_model(self.model).config.d_model,
                self.args.get_warmup_steps(num_training_steps),
                self.args.learning_rate_scale,
            ),
        )
        # Another `train()` restarts the schedule, as in the library.
        self._created_lr_scheduler = True
        return self.lr_scheduler


class VanillaSeq2SeqTrainer(TokenBudgetTrainerMixin, Seq2SeqTrainer):
    """`Seq2SeqTrainer` with the paper's batches and learning rate, which predicts by an engine
    where one can.
    """

    _engines: EnginePool | None = None

    def prediction_step(
        self,
        model: "PreTrainedModel",
        inputs: Batch,
        prediction_loss_only: bool,
        ignore_keys: Any = None,
        **gen_kwargs: Any,
    ) -> Any:
        """Return loss, tokens and labels as `Seq2SeqTrainer` does."""
        if self.args.predict_with_generate and not prediction_loss_only:
            gen_kwargs = dict(gen_kwargs or getattr(self, "_gen_kwargs", {}))
            # `model_init` may have made another model.
            if self._engines is None or self._engines.model is not self.model:
                self._engines = EnginePool(self.model, compile=False)
            search = {name: value for name, value in gen_kwargs.items() if name != "synced_gpus"}
            engine = self._engines.find(
                TranslationOptions.resolve(search, None, self.model.generation_config)
            )
            gen_kwargs |= {} if engine is None else {"custom_generate": engine}
        return super().prediction_step(
            model, inputs, prediction_loss_only, ignore_keys, **gen_kwargs
        )


def _count_tokens(
    labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
) -> torch.Tensor | int:
    """Return the target tokens of a step or, if they are not given, of a batch."""
    return (labels != IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch


@dataclass(frozen=True)
class PackingCollator:
    """Pack rows of a dataset with `input_ids` and `labels`, which are in the order of a packed
    batch.

    Args:
        shape: The shape of the batch.
        pad_token_id: The padding of sources.
        prepare: Adds the tensors that the loss needs.
    """

    shape: BatchShape
    pad_token_id: int
    prepare: BatchPreparation

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Return the tensors of [`pack_pairs`], prepared."""
        source = _join([row["input_ids"] for row in rows])
        target = _join([row["labels"] for row in rows])
        places = find_rows(source[1], target[1], self.shape)
        arrays, _, _ = pack_pairs(source, target, places, self.shape, self.pad_token_id)
        return self.prepare({name: torch.from_numpy(array) for name, array in arrays.items()})


def _join(sentences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of sentences, one after another, and the number of tokens of each."""
    return np.concatenate([*map(np.asarray, sentences)]), np.array([*map(len, sentences)])


def encoded_dataset(
    tokenizer: PreTrainedTokenizerBase, source_file: str | Path, target_file: str | Path
) -> datasets.Dataset:
    """Tokenize two parallel text files into a dataset for any trainer: `input_ids` and `labels`,
    both with EOS.

    `DataCollatorForSeq2Seq` pads them and adds masks.
    """
    return to_dataset(encode_pairs(tokenizer, read_text_files(source_file, target_file)))


def column_lengths(dataset: Any, column: str) -> Sequence[int]:
    """Return the number of tokens in each row of a column."""
    if isinstance(dataset, IterableDataset | datasets.IterableDataset):
        raise UserError(
            "Batches of `max_tokens` need a dataset with a length, to know the length of every "
            f"pair, got a stream ({type(dataset).__name__})."
        )
    if isinstance(dataset, datasets.Dataset) and column in dataset.column_names:
        # Arrow stores the lengths. As Python lists, millions of rows would take minutes.
        table = dataset.select_columns([column]).with_format("arrow")[:]
        return pyarrow.compute.list_value_length(table[column]).to_numpy()
    try:
        return [len(row[column]) for row in dataset]
    except KeyError:
        raise UserError(
            f"The training data must have the columns `input_ids` and `labels`, but {column!r} is "
            "missing."
        ) from None
