"""What a run is made of, read and built as its recipe says. Nothing is written here."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.corpus import Corpus
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenizer_training import (
    check_tokenizer_fits,
    load_or_train_tokenizer,
    special_token_ids,
)
from vanilla_transformer.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import LongArguments, Recipe
from .averaging import load_weights
from .checkpoint import TrainingState, check_output_dir, latest_resumable, load_model_weights, load_training_state
from .resuming import check_same_run, flatten


@dataclass
class RunParts:
    """
    What a run begins with. Where it goes on with an earlier one, `state` is what that one saved beside its model, and
    model and tokenizer are of the same checkpoint.
    """

    recipe: Recipe
    accelerator: Accelerator
    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus
    validation_pairs: Sequence[SentencePair]
    state: TrainingState | None = None


def build_parts(recipe: Recipe) -> RunParts:
    """
    Reads and builds all that a run needs; from the last checkpoint of the recipe's folder, where there is one.

    Raises:
        ValueError, OSError: something in the recipe or its files cannot work.
    """
    checkpoint = _find_checkpoint(recipe)
    state = None if checkpoint is None else load_training_state(checkpoint)
    if state is not None:
        check_same_run(state.progress.recipe, flatten(recipe))
    accelerator = _make_accelerator(recipe)
    set_seed(recipe.optimization.seed)
    texts = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(texts, checkpoint)
    corpus = tokenize(texts, tokenizer, recipe.optimization.seed)
    model = build_model(recipe, tokenizer, corpus.max_source_length)
    if recipe.optimization.attn_implementation is not None:
        model.set_attn_implementation(recipe.optimization.attn_implementation)
    if checkpoint is not None:
        load_weights(model, load_model_weights(checkpoint))
    return RunParts(recipe, accelerator, model, tokenizer, corpus, texts.validation, state)


def _find_checkpoint(recipe: Recipe) -> Path | None:
    output = recipe.output
    check_output_dir(output.output_dir, output.overwrite_output_dir)
    return None if output.overwrite_output_dir else latest_resumable(output.output_dir)


def _make_accelerator(recipe: Recipe) -> Accelerator:
    options, output = recipe.optimization, recipe.output
    on_cpu = not torch.accelerator.is_available()
    if options.mixed_precision == "fp16" and on_cpu:  # Accelerate would train in float32 without a word
        raise ValueError("`mixed_precision` fp16 needs a GPU, got a CPU. Use bf16, or leave it out.")
    if options.fsdp and "RANK" not in os.environ:
        raise ValueError(
            "`fsdp` needs processes to spread the model over, got one that nothing has launched. Start the training "
            "with `torchrun --nproc_per_node 2 scripts/train.py …`, or leave `fsdp` out."
        )
    return Accelerator(
        cpu=on_cpu,  # or Accelerate passes over the other processes of `torchrun`
        mixed_precision=options.mixed_precision,
        log_with=output.report_to.split(",") if output.report_to else None,
        project_dir=output.output_dir,
        dynamo_plugin=TorchDynamoPlugin(backend="inductor", dynamic=True) if options.torch_compile else None,
    )


def build_model(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, max_source_length: int
) -> VanillaTransformerForConditionalGeneration:
    """
    A model of the recipe's shape for the vocabulary of `tokenizer`, which decodes as the paper does. It is the paper's
    model, unless the recipe wants something for long sequences.
    """
    fields: dict[str, Any] = asdict(recipe.model) | special_token_ids(tokenizer)
    fields |= {"vocab_size": len(tokenizer), "max_source_length": max_source_length}
    model: VanillaTransformerForConditionalGeneration
    if recipe.long == LongArguments():
        model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))
    else:
        model = _long_model(fields | asdict(recipe.long))
    config = model.config
    check_tokenizer_fits(tokenizer, config)
    model.generation_config = paper_generation_config(
        config.pad_token_id, config.eos_token_id, config.decoder_start_token_id
    )
    return model


def _long_model(fields: dict[str, Any]) -> VanillaTransformerForConditionalGeneration:
    from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
    from vanilla_transformer.modeling_vanilla_transformer_long import VanillaTransformerLongForConditionalGeneration

    return VanillaTransformerLongForConditionalGeneration(VanillaTransformerLongConfig(**fields))
