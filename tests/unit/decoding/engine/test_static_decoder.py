"""Decoder steps of static shape with every attention: no looks at values, and memory that stays in
its places.
"""

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.devices import NoHostReads
from tests.sweeps import rare
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model
from vanilla_transformer.decoding.engine.prefill import prefill
from vanilla_transformer.decoding.engine.requests import DecodeRequest, Search
from vanilla_transformer.decoding.engine.search_options import SearchOptions
from vanilla_transformer.decoding.engine.slot_buffers import SlotBuffers, SlotSize
from vanilla_transformer.decoding.engine.sources import PrefilledSource
from vanilla_transformer.decoding.engine.static_decoder import StaticDecoder
from vanilla_transformer.decoding.engine.static_search import SearchStep

LSH = {"layer_types": "lsh_attention", "num_hashes": 2, "num_buckets": 4}
REVERSIBLE = {"reversible": True, "normalize_before": True}
MODELS = {
    "prompts": (tiny_causal_lm, {}),
    "full": (tiny_long_model, {"layer_types": "full_attention"}),
    "linear": (tiny_long_model, {"cross_attention_type": "linear_attention"}),
    "linear-prompts": (tiny_long_causal_lm, REVERSIBLE),
    "lsh": (tiny_long_model, LSH | REVERSIBLE),
    "lsh-prompts": (tiny_long_causal_lm, LSH),
}


@pytest.mark.parametrize(("build", "fields"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("beams", [3, rare(1)])
@torch.inference_mode()
def test_steps_look_at_no_values_and_keep_places(build, fields, beams):
    model = build(vocab_size=40, decoder_layers=2, **fields)
    options = SearchOptions(beams, (2,), 0.6, "power", "never")
    step = SearchStep([StaticDecoder(model)], options).eval()
    buffers = SlotBuffers(model, SearchOptions(beams, (2,)), SlotSize(3, 16))
    texts = [[7, 8, 9], [9, 5, 6]]
    batch = prefill(model, texts, [3, 3])
    sources = []
    for row, limit in enumerate((9, 14)):
        search = Search(DecodeRequest(texts[row]), 0)
        sources.append(PrefilledSource(search, 3, limit, row, batch))
    buffers.enter([0, 1], sources, 1)

    def places():
        tensors = pytree.tree_leaves(buffers.arguments)
        return [(tensor.data_ptr(), tensor.shape, tensor.dtype) for tensor in tensors]

    before = places()
    with NoHostReads():
        for _ in range(16):
            step(*buffers.arguments)
    assert places() == before
    assert buffers.state.done.all()
    assert buffers.state.finished_lengths[:2, 0].all()
