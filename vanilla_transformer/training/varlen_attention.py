"""`attn_implementation: varlen`: PyTorch's flash attention, which skips the padding of sources, for training on a GPU.

SDPA's flash kernel takes no mask. This one takes the keys of a batch in one row, and where each sentence begins.
`flash_attention_2` of transformers does so, too, but where targets attend to the source, it removes the padding of the
source from the targets as well (transformers 5.23).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel

from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

VARLEN = "varlen"
# Arguments of the model that attention gets, see `pack_source`.
PACKING = ("source_places", "source_bounds")
_LEAST_CAPABILITY = (8, 0)  # Ampere
_LARGEST_HEAD, _HEAD_UNIT = 256, 8


def check_varlen(model: PreTrainedModel, mixed_precision: str | None) -> None:
    """Refuse a device, a precision or a model that the kernel does not support.

    Raises:
        ValueError: the text names the requirement and the value found.
    """
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    config = model.config
    heads = config.encoder_attention_heads, config.decoder_attention_heads
    width = {dim for number in heads for dim in config.head_dims(number)}
    for holds, rule, found in (
        (
            capability is not None and capability >= _LEAST_CAPABILITY,
            "a GPU of compute capability 8.0 or higher",
            "no GPU of CUDA" if capability is None else ".".join(map(str, capability)),
        ),
        (mixed_precision in ("bf16", "fp16", "fp8"), "`mixed_precision` bf16, fp16 or fp8", mixed_precision or "no"),
        (type(model) is VanillaTransformerForConditionalGeneration, "softmax attention in all layers", "other layers"),
        (not config.attention_dropout, "`attention_dropout` 0", config.attention_dropout),
        (
            all(size % _HEAD_UNIT == 0 and size <= _LARGEST_HEAD for size in width),
            f"heads of a multiple of {_HEAD_UNIT} up to {_LARGEST_HEAD}",
            " and ".join(map(str, sorted(width))),
        ),
    ):
        if not holds:
            raise ValueError(f"`attn_implementation` varlen needs {rule}, got {found}. Use sdpa, or leave it out.")


def pack_source(seen: Tensor) -> dict[str, Tensor]:
    """Return where a mask `(B, S)` has tokens, on the CPU.

    Returns:
        `source_places`, the indices of all tokens in the flattened mask, and `source_bounds`, of shape `(B + 1,)`: the
        first token of each sentence among them, and the end.
    """
    ends = nn.functional.pad(seen.sum(dim=1).cumsum(dim=0), (1, 0))
    return dict(zip(PACKING, (seen.flatten().nonzero().flatten(), ends.int()), strict=True))


def varlen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    source_places: Tensor | None = None,
    source_bounds: Tensor | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Compute attention to the whole target before each position, or to the tokens of the source.

    Args:
        query, key, value (`torch.Tensor` of shape `(B, H, T, K)`, `(B, H, S, K)` and `(B, H, S, K)`)
        attention_mask: Always None; transformers prepares no mask for this implementation.
        source_places, source_bounds: From [`pack_source`]; without them the source has no padding.

    Returns:
        The output `(B, T, H, K)`, and None, since there are no attention probabilities.
    """
    (batch_size, _, queries, _), keys = query.shape, key.shape[2]
    query, key, value = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))  # (B · L, H, K)
    bounds = _equal_bounds(batch_size, keys, key.device)
    if source_places is not None and source_bounds is not None and not module.is_causal:
        key, value = key.index_select(0, source_places), value.index_select(0, source_places)
        bounds = source_bounds
    output: Any = varlen_attn(
        query,
        key,
        value,
        _equal_bounds(batch_size, queries, query.device),
        bounds,
        queries,
        keys,
        scale=scaling,
        window_size=(-1, 0 if module.is_causal else -1),
    )
    return output.view(batch_size, queries, *output.shape[1:]), None


def _equal_bounds(batch_size: int, length: int, device: torch.device) -> Tensor:
    return torch.arange(0, batch_size * length + 1, length, dtype=torch.int32, device=device)


@contextmanager
def sdpa_for_varlen(model: PreTrainedModel) -> Iterator[None]:
    """Use SDPA within the block, which decodes in every precision, instead of `varlen`."""
    attention = model.config._attn_implementation
    if attention == VARLEN:
        model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        if attention == VARLEN:
            model.set_attn_implementation(attention)


AttentionInterface.register(VARLEN, varlen_attention)
