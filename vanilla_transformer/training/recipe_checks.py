"""Rules that the values of a recipe must keep, by themselves and to resume a run."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from vanilla_transformer.data.data_arguments import (
    NORMALIZED,
    TOKEN_AUGMENTATIONS,
    DataArguments,
    augmentations,
    check_data_arguments,
    stages,
    validation_specs,
)
from vanilla_transformer.data.stages import UNTIL_SHARE
from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.reasons import Reasons
from vanilla_transformer.user_input.user_modules import find_object

from .lr_scheduler import NEED_MAX_STEPS, NOAM, PAPER_MAX_STEPS, UNUSED
from .run_arguments import (
    CHANGEABLE,
    DERIVED,
    EXTEND,
    FROZEN_PARTS,
    OF_NEW_TOKENIZERS,
    PADDING,
    REPLACE,
    LongArguments,
    Recipe,
    default_values,
)

logger = logging.getLogger(__name__)


def check_recipe(recipe: Recipe) -> None:
    """Refuse values that cannot work, before anything is read or written."""
    with Reasons() as reasons:
        with reasons.collect():
            _check_empty_values(recipe)
        with reasons.collect():
            _check_optimization(recipe)
        with reasons.collect():
            check_data_arguments(recipe.data)
        with reasons.collect("stages"):
            _check_stages(recipe)
        with reasons.collect():
            _check_partners(recipe)
        with reasons.collect():
            _check_fine_tuning(recipe)
        with reasons.collect():
            _check_effects(recipe)
        for position, function_name in enumerate(recipe.optimization.loss_terms or ()):
            with reasons.collect("loss_terms", position):
                find_loss_term(function_name)
        with reasons.collect():
            _check_output(recipe)


def _check_empty_values(recipe: Recipe) -> None:
    """Refuse empty text, which would name the current folder. Where it is the default, a key must
    be given, and its own rule says what for.
    """
    defaults = default_values()
    with Reasons() as reasons:
        for section in (recipe.data, recipe.fine_tuning, recipe.classes):
            for name, value in section:
                if value == "" != defaults[name]:
                    problem = "got '', perhaps from a variable of the shell that is not set"
                    reasons.add(
                        f"`{name}` must not be empty, {problem}. Set it, or leave it out.", name
                    )


def _check_optimization(recipe: Recipe) -> None:
    options = recipe.optimization
    with Reasons() as reasons:
        if (options.lr_scheduler == NOAM) != (options.learning_rate is None):
            reasons.add(
                "`learning_rate` must be given with every `lr_scheduler` except noam, whose peak "
                "is (d_model · warmup_steps)^-0.5 times `learning_rate_scale`. Got "
                f"lr_scheduler={options.lr_scheduler} and learning_rate={options.learning_rate}.",
                "lr_scheduler" if options.learning_rate is None else "learning_rate",
            )
        if options.fsdp and options.mixed_precision == "fp16":
            reasons.add(
                "`fsdp` needs `mixed_precision` bf16 or no, got fp16: processes that share a "
                "gradient would scale their losses differently. Use bf16.",
                "mixed_precision",
            )
        if options.fsdp and options.gradient_compression is not None:
            reasons.add(
                "`gradient_compression` must be left out with `fsdp`, whose gradients are summed "
                f"in float32, got {options.gradient_compression}. Leave one of them out.",
                "gradient_compression",
            )
        if recipe.fine_tuning.init_from is None and options.alignment_layer is not None:
            with reasons.collect("alignment_layer"):
                check_alignment_layer(options.alignment_layer, recipe.model.decoder_layers)


def _check_stages(recipe: Recipe) -> None:
    max_steps = recipe.optimization.max_steps
    if recipe.data.stages is not None and max_steps is None:
        raise UserError("`stages` must be given with `max_steps`, got it without. Add it.")
    stages(recipe.data, max_steps or PAPER_MAX_STEPS)


def _check_output(recipe: Recipe) -> None:
    output = recipe.output
    with Reasons() as reasons:
        if output.report_to:  # Accelerate would ignore a tracker that is unknown or not installed
            with reasons.collect("report_to"):
                _check_trackers(output.report_to.split(","))
        if not output.output_dir:
            reasons.add(
                "`output_dir` must be given: a folder for the model, such as --output_dir "
                "runs/my-model.",
                "output_dir",
            )
        if (output.keep_last or 0) < output.average_checkpoints:
            reasons.add(
                f"`keep_last` must be at least `average_checkpoints`={output.average_checkpoints}, "
                f"got {output.keep_last}: checkpoints are averaged at the end.",
                "keep_last",
            )


def _check_trackers(names: Sequence[str]) -> None:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = ["all", *LOGGER_TYPE_TO_CLASS]
    installed = ["all", *map(str, get_available_trackers())]
    with Reasons() as reasons:
        for name in names:
            if name not in known:
                reasons.add(f"`report_to` must name trackers of {', '.join(known)}, got {name!r}.")
            elif name not in installed:
                reasons.add(
                    f"`report_to` names {name}, which must be installed and is not. Install or "
                    "leave it out."
                )


def find_loss_term(function_name: str) -> Callable[[Recipe, Any], Any]:
    """Return the function that `loss_terms` names, which returns a term of the loss."""
    return find_object(
        function_name,
        "`loss_terms` must be places of functions, such as my_module:small_embeddings",
    )


def check_alignment_layer(layer: int, layers: int) -> None:
    """Refuse a layer that a decoder with so many layers does not have."""
    if layer >= layers:
        raise UserError(
            f"`alignment_layer` must be below `decoder_layers`={layers}, counted from 0, got "
            f"{layer}."
        )


def _check_partners(recipe: Recipe) -> None:
    """Refuse keys without another one that they need, and keys that exclude each other."""
    options = recipe.optimization
    tuning = recipe.fine_tuning
    alignments = recipe.data.train_alignments
    of_models = {
        "freeze": tuning.freeze,
        "lora_rank": tuning.lora_rank,
        "init_encoder_layers": tuning.init_encoder_layers,
        "init_decoder_layers": tuning.init_decoder_layers,
        "init_vocabulary": tuning.init_vocabulary if "init_vocabulary" in recipe.given else None,
        "forgetting` of `validation": validation_specs(recipe.data, forgetting=True) or None,
    }
    needed = {}
    if tuning.init_from is None:
        needed = {name: "init_from" for name, value in of_models.items() if value is not None}
    if alignments is None and options.alignment_layer is not None:
        needed["alignment_layer"] = "train_alignments"
    excluded = []
    if tuning.lora_rank is not None:
        reason = (
            "the embeddings of new tokens must be trained, and adapters leave embeddings as "
            "they are"
        )
        excluded += [("lora_rank", name, reason) for name in _token_keys(recipe)]
        if tuning.freeze:
            reason = "only adapters are trained, in all layers, and all other weights are frozen"
            excluded.append(("lora_rank", "freeze", reason))
        if options.fsdp:
            reason = "adapters are merged into whole weights, of which each process has a shard"
            excluded.append(("lora_rank", "fsdp", reason))
    if alignments is not None and options.attn_implementation not in (None, "sdpa", "eager"):
        reason = "the head that learns to align needs the mask that sdpa and eager have"
        excluded.append(
            ("train_alignments", f"attn_implementation: {options.attn_implementation}", reason)
        )
    if alignments is not None and recipe.long != LongArguments():
        reason = (
            "their attention to the source may have no softmax, and reversible layers "
            "compute it twice"
        )
        excluded.append(("train_alignments", "the keys of models for long sequences", reason))
    with Reasons() as reasons:
        for name, partner in needed.items():
            reasons.add(
                f"`{name}` must be given with `{partner}`, got it without. Leave it out.",
                name.partition("`")[0],
            )
        for name, other, reason in excluded:
            reasons.add(
                f"`{name}` must be given without {other}, got both: {reason}. Take one of them "
                "out.",
                name,
            )


def _check_fine_tuning(recipe: Recipe) -> None:
    options = recipe.fine_tuning
    if options.init_from is None:
        return
    frozen = options.freeze or ()
    with Reasons() as reasons:
        with reasons.collect("validation"):
            _check_forgetting(recipe.data)
        if recipe.data.tokenizer is not None and options.init_vocabulary != REPLACE:
            reasons.add(
                "Give either `init_from`, which brings its tokenizer, or `tokenizer`, got both. To "
                "change the tokenizer, set `init_vocabulary` to replace.",
                "tokenizer",
            )
        for part in frozen:
            if part not in FROZEN_PARTS:
                reasons.add(
                    f"`freeze` must name parts of {', '.join(FROZEN_PARTS)}, got {part!r}.",
                    "freeze",
                )
        if set(frozen) == set(FROZEN_PARTS):
            reasons.add("`freeze` must leave a part that is trained, got all of them.", "freeze")
        with_tokens = _token_keys(recipe)
        if with_tokens and "embeddings" in frozen:
            reasons.add(
                f"{with_tokens[0]} adds tokens, whose embeddings must be trained, so `freeze` must "
                "not name embeddings, got both. Leave one of them out.",
                "freeze",
            )


def _check_forgetting(data: DataArguments) -> None:
    """Refuse text of the former domain beside validation text of several directions."""
    if not validation_specs(data, forgetting=True):
        return
    directions = {spec.direction for spec in validation_specs(data)}
    if len(directions) + bool(data.validation_source or data.dataset) != 1:
        raise UserError(
            "`forgetting` of `validation` must be beside validation text of one direction, got it "
            f"beside {' and '.join(map(str, directions)) or 'none'}. Change the other text, or "
            "take it out."
        )


def _token_keys(recipe: Recipe) -> list[str]:
    """Return the given keys that add tokens to the vocabulary, as messages name them."""
    keys = [
        f"`{name}` of `augment`"
        for name in augmentations(recipe.data)
        if name in TOKEN_AUGMENTATIONS
    ]
    keys += ["`source_tags`"] if recipe.data.source_tags else []
    return keys + (
        ["`init_vocabulary: extend`"] if recipe.fine_tuning.init_vocabulary == EXTEND else []
    )


def _check_effects(recipe: Recipe) -> None:
    """Refuse keys that are given and change nothing beside the others."""
    tuning = recipe.fine_tuning
    tokenizer = recipe.data.tokenizer
    reasons = dict[str, str]()
    if tokenizer is not None:
        reasons = dict.fromkeys(
            OF_NEW_TOKENIZERS, f"`tokenizer` is {tokenizer}, and none is trained on the text"
        )
    elif tuning.init_from is not None and tuning.init_vocabulary != REPLACE:
        names = ("tokenizer_model", "tokenizer_pattern", "normalization")
        reasons = dict.fromkeys(
            names, f"`init_vocabulary: {tuning.init_vocabulary}` keeps the model's tokenizer"
        )
    elif recipe.data.tokenizer_model not in NORMALIZED:
        reason = f"`tokenizer_model` is {recipe.data.tokenizer_model}, which has its own or none"
        reasons = {"normalization": reason}
    if recipe.model.position_embedding_type != "learned":
        reasons["max_position_embeddings"] = (
            f"positions are {recipe.model.position_embedding_type}, without a limit"
        )
    if (
        recipe.model.position_embedding_type != "sinusoidal"
        and recipe.long.layer_types != "transfo_xl_attention"
    ):
        reasons["sinusoid_layout"] = f"positions are {recipe.model.position_embedding_type}"
    scheduler = recipe.optimization.lr_scheduler
    reasons |= dict.fromkeys(UNUSED[scheduler], f"`lr_scheduler` is {scheduler}")
    if recipe.data.train_data is None:
        reasons |= dict.fromkeys(("window_shards", "verify_data"), "there is no `train_data`")
    if recipe.data.train_alignments is None:
        reasons["alignment_weight"] = "there are no `train_alignments`"
    if recipe.long.layer_types != "lsh_attention":
        lsh = ("num_hashes", "num_buckets", "lsh_attn_chunk_length")
        reasons |= dict.fromkeys(
            lsh, f"`layer_types` is {recipe.long.layer_types}, which does not hash"
        )
    with Reasons() as refused:
        for name, reason in reasons.items():
            if name in recipe.given:
                refused.add(
                    f"`{name}` must be left out, since it would change nothing: {reason}.", name
                )


# Keys that end a run.
_LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "early_stopping_patience")


def check_same_run(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that a run with the flat recipe `now` can resume one with `before`, and log all
    changes.

    A name that `before` lacks, because it is newer than the run, had its default.
    """
    before = default_values() | before
    names = sorted(name for name in before.keys() | now.keys() if not _is_same(name, before, now))
    needs_max_steps = now.get("lr_scheduler") in NEED_MAX_STEPS or any(
        UNTIL_SHARE in stage for stage in now.get("stages") or ()
    )
    allowed = CHANGEABLE - ({"max_steps", "num_train_epochs"} if needs_max_steps else set())
    if before["max_tokens"] == now["max_tokens"]:
        allowed |= {"tokens_per_step"}
    elif now["tokens_per_step"] is not None and before["tokens_per_step"] == now["tokens_per_step"]:
        allowed |= {"max_tokens"}  # of another number of processes
    refused = [name for name in names if name not in allowed]
    if refused:
        raise UserError(
            f"The run in {now['output_dir']} cannot resume with different values of "
            f"{_list_changes(refused, before, now)}. Restore them, choose another --output_dir, or "
            "start over with --overwrite_output_dir."
        )
    if names:
        logger.info("Changed since the run began: %s.", _list_changes(names, before, now))


def has_same_limits(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a run with the flat recipe `now` ends as one with `before`."""
    return all(_is_same(name, before, now) for name in _LIMITS)


def _is_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a value is the same, or is derived and has been derived before."""
    return before.get(name) == now.get(name) or (
        name in (*DERIVED, PADDING) and now.get(name) is None
    )


def _list_changes(names: list[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    return ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names)
