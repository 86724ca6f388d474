# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
What transformers asks of a model beside the paper: guards against wrong arguments, damaged files
and other releases, loading under the class that saved a model, and vocabularies of another size.
"""

import copy
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import __version__
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import is_flash_attention_requested

from .errors import UserError, UserFileError

# The name of a cache in this release of transformers, as an argument and in outputs. It was renamed
# in 5.24.
CACHE = "cache" if "cache" in signature(create_causal_mask).parameters else "past_key_values"
# Releases of transformers that `make test-releases` passed, and of torch that `make test-oldest`,
# `make test` and `make test-newest` passed. In another one, a short search is checked before the
# first of a process.
TESTED_RELEASES = ("5.12", "5.17", "5.20", "5.23", "5.24")
TESTED_TORCH = ("2.11", "2.13", "2.15")
TOKENIZER_HINT = (
    "Does the tokenizer fit the model? `model.resize_token_embeddings(len(tokenizer))` adds tokens."
)
# Arguments that reach every layer on purpose: the loss and the library's decorators use them.
PASSED_ON = {
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_cache",
}
FLASH_ARGUMENTS = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"}  # packed rows
# Continuous batching passes all of them, with a cache that holds the texts by pages.
PAGED_ARGUMENTS = FLASH_ARGUMENTS | {
    "block_table",
    "is_causal",
    "logits_indices",
    "logits_processor_args",
    "read_index",
    "write_index",
}
# Arguments of `from_pretrained` that say where the files are.
FILE_ARGUMENTS = {"cache_dir", "local_files_only", "proxies", "revision", "subfolder", "token"}


def check_ids(name: str, ids: Tensor, size: int, hint: str = TOKENIZER_HINT) -> None:
    """Check that all `ids` are in `[0, size)`. Only on the CPU: a GPU would have to synchronize."""
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or ids.numel() == 0:
        return
    lowest, highest = (int(bound) for bound in ids.aminmax())
    if lowest < 0 or highest >= size:
        raise UserError(
            f"`{name}` must be from 0 to {size - 1}, got {lowest if lowest < 0 else highest}. "
            f"{hint}"
        )


def check_inputs(
    name: str, input_ids: Tensor | None, inputs_embeds: Tensor | None, size: int
) -> None:
    """Check that exactly one of ids, of a vocabulary of that size, and embeddings is given."""
    if (input_ids is None) == (inputs_embeds is None):
        found = "neither" if input_ids is None else "both"
        raise UserError(f"Give exactly one of `{name}_ids` and `{name}s_embeds`, got {found}.")
    if input_ids is not None:
        check_ids(f"{name}_ids", input_ids, size)


def check_source(encoder_hidden_states: Tensor | None) -> None:
    if encoder_hidden_states is None:  # cross-attention would attend to the target
        raise UserError(
            "`encoder_hidden_states` must be given: every decoder layer attends to them."
        )


def check_arguments(model: PreTrainedModel, arguments: dict[str, Any]) -> None:
    """Refuse further keyword arguments of `forward` that nothing uses, and remove those that are
    None.
    """
    flash = FLASH_ARGUMENTS if is_flash_attention_requested(model.config) else set()
    known = PASSED_ON | (PAGED_ARGUMENTS if "read_index" in arguments else flash)
    unused = [name for name in arguments if name not in known]
    unknown = [name for name in unused if arguments[name] is not None]
    if unknown:
        raise TypeError(
            f"`{type(model).__name__}.forward` must get arguments that it uses, got "
            f"{', '.join(sorted(unknown))}. Leave them out."
        )
    for name in unused:  # a parameter of a stack may have this name
        del arguments[name]


def accept_past_key_values(forward: Callable) -> Callable:
    """
    Let `forward` take its `cache` by the name `past_key_values`, too: the name of releases before
    5.24.

    PEFT's prefix tuning passes its prefix so, beside the cache of `generate()`. The prefix replaces
    an empty cache; later it is ignored, as in the library.
    """
    renamed = (
        deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")(forward)
        if CACHE == "cache"
        else forward
    )

    @wraps(forward)
    def forward_with_cache(*args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache")
        if "past_key_values" in kwargs and (cache is None or cache.get_seq_length() == 0):
            kwargs.pop("cache", None)
        if CACHE in kwargs:
            kwargs.setdefault("cache", kwargs.pop(CACHE))
        return renamed(*args, **kwargs)

    shown = signature(forward)  # where `generate()` looks the name up
    names = [
        entry.replace(name=CACHE) if entry.name == "cache" else entry
        for entry in shown.parameters.values()
    ]
    forward_with_cache.__signature__ = shown.replace(parameters=names)  # type: ignore[attr-defined]
    return forward_with_cache


def count_positions(mask: Tensor | None, length: int, past: int | Tensor, like: Tensor) -> Tensor:
    """
    Compute the positions of the last `length` tokens, on the device of `like`.

    Without a padding mask `(B, past + L)` they are `(1, L)`. With one they are `(B, L)`, and
    padding is not counted.
    """
    if mask is None or mask.dim() != 2:
        return (torch.arange(length, device=like.device) + past).unsqueeze(0)
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, -length:]


def classes_by_name(base: Any) -> dict[str, Any]:
    """Return a class and all classes that derive from it, by their names."""
    classes = {base.__name__: base}
    for derived in base.__subclasses__():
        classes |= classes_by_name(derived)
    return classes


class CompatibleGenerationMixin(GenerationMixin):
    """`generate()` that takes its `cache` by this name in any release."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        check_release(self)
        if "cache" in kwargs:
            kwargs[CACHE] = kwargs.pop("cache")
        return super().generate(*args, **kwargs)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        # Its cache holds keys and values, and requests have no source.
        layer_type = getattr(self.config, "layer_type", "full_attention")
        if self.config.is_encoder_decoder or layer_type != "full_attention":
            raise UserError(
                "Continuous batching must have a decoder-only model with full attention, "
                f"got {type(self).__name__} with {layer_type}. Call `generate()`."
            )
        return super().init_continuous_batching(*args, **kwargs)

    def _beam_search(self, *args: Any, **kwargs: Any) -> Any:
        """Search in the target's vocabulary; releases before 5.20 take the size of the source's."""
        size, searched = getattr(self.config, "decoder_vocab_size", None), self
        if size not in (None, self.config.vocab_size):
            searched, searched.config = copy.copy(self), copy.copy(self.config)
            searched.config.vocab_size = size
        return super(CompatibleGenerationMixin, searched)._beam_search(*args, **kwargs)


_checked_classes = set[type]()


def check_release(model: Any) -> None:
    """
    Check a release of transformers or torch that is not tested yet, once in a process for each
    class of models.

    A model of a few random weights searches with a cache and without one, greedily and with two
    beams. `forward` must give the same logits and scores for the whole target, and for each source
    without padding.
    """
    libraries = (
        ("transformers", __version__, TESTED_RELEASES),
        ("torch", torch.__version__, TESTED_TORCH),
    )
    untested = [
        library for library in libraries if ".".join(library[1].split(".")[:2]) not in library[2]
    ]
    if not untested or type(model) in _checked_classes:
        return
    _checked_classes.add(type(model))
    cause = None
    try:
        if compare_search(model):
            return
    except Exception as error:  # whatever a renamed argument or a lost method leads to
        cause = error
    _checked_classes.discard(type(model))
    name, version, (oldest, *_, newest) = untested[0]
    raise UserError(
        f"Models must be used with a tested release of {name} ({oldest} to {newest}): {version} "
        f"computes something else. Install {name} {newest}."
    ) from cause


@torch.no_grad()
def compare_search(model: Any) -> bool:
    """Tell whether `generate()` of a tiny model finds the logits (greedily) and scores (of beams)
    of `forward`.
    """
    config = copy.deepcopy(model.config)
    config.d_model = 8
    for side in ("encoder", "decoder"):
        for name, size in {"layers": 1, "attention_heads": 1, "ffn_dim": 8}.items():
            setattr(config, f"{side}_{name}", size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tiny = type(model)(config).eval()
    is_seq2seq, pad = config.is_encoder_decoder, config.pad_token_id or 0
    tokens = [token for token in range(12) if token not in (pad, 0, 1, 2)]
    rows = [tokens[:4], tokens[4:6] if is_seq2seq else tokens[2:6]]
    inputs = {"input_ids": torch.tensor([row + [pad] * (4 - len(row)) for row in rows])}
    options: dict[str, Any] = {
        "max_new_tokens": 4,
        "min_new_tokens": 4,
        "do_sample": False,
        "length_penalty": 1.0,
    }
    options |= {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    penalty = 4.0
    if is_seq2seq:
        inputs["attention_mask"] = inputs["input_ids"].ne(pad).long()
        options["length_penalty_type"], penalty = "wu", (5 + 4) / 6
    for beams in (1, 2):
        cached, plain = (
            tiny.generate(**inputs, **options, num_beams=beams, use_cache=use)
            for use in (True, False)
        )
        if not torch.equal(cached.sequences, plain.sequences):
            return False
        for index, (row, target) in enumerate(zip(rows, cached.sequences, strict=True)):
            whole = {"input_ids": torch.tensor([row]), "decoder_input_ids": target[None]}
            logits = tiny(
                **(whole if is_seq2seq else {"input_ids": target[None]}), use_cache=False
            ).logits[0, -5:-1]
            searched, expected = torch.stack(cached.logits)[:, index], logits
            if beams > 1:
                searched = cached.sequences_scores[index] * penalty
                expected = logits.log_softmax(dim=-1).gather(-1, target[-4:, None]).sum()
            if not torch.allclose(searched, expected, atol=1e-4):
                return False
    return True


class CompatibleModel(PreTrainedModel):
    """Features of transformers that the models support, and loading under the class that saved a
    model.
    """

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # No flash attention: where targets attend to a source, transformers removes its padding from
    # them too (5.23).
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """
        Load a model as `PreTrainedModel` does, and as the subclass that saved it if that is
        defined.

        Raises:
            ValueError: The class that saved it is not defined in this process: another one may
                compute otherwise.
            OSError: A weights file is truncated or corrupt.
        """
        name, config = pretrained_model_name_or_path, kwargs.get("config")
        if isinstance(config, PreTrainedConfig):
            architectures = config.architectures
        else:
            places = {key: kwargs[key] for key in FILE_ARGUMENTS & kwargs.keys()}
            architectures = PreTrainedConfig.get_config_dict(config or name, **places)[0].get(
                "architectures"
            )
        saved = next(iter(architectures or []), cls.__name__)
        classes = classes_by_name(CompatibleModel) | {cls.__name__: cls}
        if saved not in classes:
            hint = (
                f"import the module of `{saved}` first; commands take it as `--user_module FILE.py`"
            )
            raise UserError(
                f"{name} must be loaded as its class `{saved}`, but no such class is defined: "
                f"{hint}."
            )
        loaded: Any = classes[saved] if issubclass(classes[saved], cls) else cls
        try:
            return super(CompatibleModel, loaded).from_pretrained(name, *args, **kwargs)
        except SafetensorError as error:
            damage = f"a file is truncated or corrupt ({error}). Copy it again."
            raise UserFileError(f"Cannot load the weights of {name}: {damage}") from error

    def post_init(self) -> None:
        """Keep the plans of the configuration off a stack of an encoder-decoder: they name modules
        of the whole.
        """
        super().post_init()
        if self.config.is_encoder_decoder and hasattr(self, "layers"):
            for plan in ("_tp_plan", "_ep_plan", "_pp_plan", "_fsdp_plan"):
                setattr(self, plan, {})


class SourceVocabulary:
    """Mixin for a model with two stacks: the source's vocabulary, and the target's if both share
    their embeddings.
    """

    base_model: Any
    config: Any

    def get_input_embeddings(self) -> nn.Embedding:
        return self.base_model.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.base_model.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings and self.config.tie_word_embeddings:
            self.base_model.decoder.embed_tokens = value

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the source vocabulary, and the target's if both share their embeddings."""
        shared = self.config.share_encoder_decoder_embeddings
        resized: Any = super() if shared else self.base_model.encoder
        embeddings: nn.Embedding = resized.resize_token_embeddings(*args, **kwargs)
        # The library sets it on the resized module only.
        self.vocab_size = embeddings.num_embeddings
        if shared and not self.config.tie_word_embeddings:
            self.base_model.decoder.resize_token_embeddings(*args, **kwargs)
        self.config.decoder_vocab_size = (
            embeddings.num_embeddings if shared else self.config.decoder_vocab_size
        )
        return embeddings


class TargetVocabulary(SourceVocabulary):
    """Mixin for a model with an output projection: vocabularies of both sides, and prompts of its
    `generate()`.
    """

    lm_head: nn.Linear
    tie_weights: Callable

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize a separate target vocabulary.

        New rows of the output projection start as the mean of the old ones.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise UserError(
                "This model shares its embeddings. Call `resize_token_embeddings` instead."
            )
        source_vocab_size = self.config.vocab_size
        embeddings = self.base_model.decoder.resize_token_embeddings(new_num_tokens)
        self.config.vocab_size, self.config.decoder_vocab_size = source_vocab_size, new_num_tokens
        for name, old in list(self.lm_head.named_parameters()):  # weight and bias
            added = old.mean(dim=0, keepdim=True).expand(
                max(0, new_num_tokens - len(old)), *old.shape[1:]
            )
            resized = torch.cat([old, added])[:new_num_tokens].detach().clone()
            setattr(self.lm_head, name, nn.Parameter(resized, requires_grad=old.requires_grad))
        self.lm_head.out_features = new_num_tokens
        self.tie_weights()
        return embeddings

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Count positions from the mask of a padded prompt here, before static caches turn it into
        a 4D mask.
        """
        kwargs.pop("tokenizer", None)  # of `stop_strings`, which the library passes on
        mask = kwargs.get("decoder_attention_mask")
        if mask is not None and kwargs.get("decoder_position_ids") is None:
            kwargs["decoder_position_ids"] = count_positions(mask, mask.shape[-1], 0, input_ids)
        return super().prepare_inputs_for_generation(input_ids, *args, **kwargs)  # type: ignore[misc]
