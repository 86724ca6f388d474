"""
A recurrent encoder-decoder with attention, after Wu et al. (2016), the strongest single system
before the paper.

It is a [`VanillaTransformerForConditionalGeneration`], with its embeddings, output projection, loss
and search, whose encoder and decoder are torch's own LSTMs. Padding must be on the right. A recipe
of `vanilla-transformer train` trains it, with the Transformer's tokenizer, batches, loss, optimizer
and search; sizes of attention have no effect:

    python examples/reproduction/recurrent_model.py --train_source train.en \\
        --train_target train.de --validation_source val.en --validation_target val.de \\
        --d_model 320 --encoder_layers 3 --decoder_layers 3 --max_minutes 30 --output_dir runs/lstm

Letters in shapes: B batch, S source length, T target length, L length of either, D d_model, N
layers.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from vanilla_transformer.cli import run as run_command
from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.evaluation.scores import evaluator_for
from vanilla_transformer.generation_vanilla_transformer import source_mask
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerEmbedding,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


class RecurrentConfig(VanillaTransformerConfig):
    """Sizes of the recurrent model: `vocab_size`, `d_model`, `encoder_layers`, `decoder_layers` and
    `dropout`.
    """

    model_type = "recurrent_baseline"
    _auto_class: Any = None
    remote_code = dict[str, Any]()
    base_model_tp_plan: Any = None
    base_model_pp_plan: Any = None
    base_model_fsdp_plan: Any = None

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save `config.json` alone: these models do not carry their code."""
        PreTrainedConfig.save_pretrained(self, save_directory, *args, **kwargs)


class RecurrentCache(Cache):
    """The states of a decoder's LSTMs after the tokens so far: by name a pair of tensors
    `(N, B, D)`.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.states: dict[str, tuple[Tensor, Tensor]] = {}
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select the rows of a batch that beam search keeps."""
        self.states = {
            name: (hidden.index_select(1, beam_idx), cell.index_select(1, beam_idx))
            for name, (hidden, cell) in self.states.items()
        }


class RecurrentStack(VanillaTransformerPreTrainedModel):
    """Embeddings, dropout, and the layers above the first one, with a residual connection around
    them.
    """

    def __init__(self, config: RecurrentConfig, vocab_size: int, num_layers: int):
        super().__init__(config)
        width = config.d_model
        self.embed_tokens = VanillaTransformerEmbedding(config, vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        between = config.dropout if num_layers > 2 else 0.0
        self.upper: nn.LSTM | None = None
        if num_layers > 1:
            self.upper = nn.LSTM(width, width, num_layers - 1, batch_first=True, dropout=between)

    def embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Return embeddings after dropout, `(B, L, D)`."""
        return self.dropout(
            self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        )

    def run_upper(self, states: Tensor, cache: RecurrentCache | None = None) -> Tensor:
        """Apply the upper layers, `(B, L, D)` to `(B, L, D)`."""
        return (
            states
            if self.upper is None
            else states + self.dropout(run("upper", self.upper, states, cache))
        )


def run(name: str, lstm: nn.LSTM, states: Tensor, cache: RecurrentCache | None) -> Tensor:
    """Apply an LSTM to `(B, L, D)`, from the state that the cache has, which is updated in
    place.
    """
    outputs, state = lstm(states, None if cache is None else cache.states.get(name))
    if cache is not None:
        cache.states[name] = state
    return outputs


class RecurrentEncoder(RecurrentStack):
    """A layer that reads the source in both directions, then layers that read it forward."""

    def __init__(self, config: RecurrentConfig):
        super().__init__(config, config.vocab_size, config.encoder_layers)
        self.ahead, self.back = (
            nn.LSTM(config.d_model, config.d_model // 2, batch_first=True) for _ in range(2)
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode source tokens `(B, S)`, given their padding mask `(B, S)`."""
        states, mask = (
            self.embed(input_ids, inputs_embeds),
            source_mask(self.config, input_ids, attention_mask),
        )
        order = reversed_order(mask, states)
        back = self.back(states.take_along_dim(order, dim=1))[0].take_along_dim(order, dim=1)
        states = self.dropout(torch.cat([self.ahead(states)[0], back], dim=-1))  # (B, S, D)
        return BaseModelOutput(last_hidden_state=self.run_upper(states))


def reversed_order(mask: Tensor | None, states: Tensor) -> Tensor:
    """Return the indices that reverse each source and leave the padding after it in place,
    `(B, S, 1)`.
    """
    length = states.shape[1]
    places = torch.arange(length, device=states.device).expand(states.shape[0], length)
    lengths = length if mask is None else mask.long().sum(dim=1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)[..., None]


class RecurrentDecoder(RecurrentStack):
    """An LSTM whose states attend to the source (Luong et al., 2015), then layers over what it
    found.
    """

    def __init__(self, config: RecurrentConfig):
        super().__init__(
            config, config.decoder_vocab_size or config.vocab_size, config.decoder_layers
        )
        self.lower = nn.LSTM(config.d_model, config.d_model, batch_first=True)
        self.query = nn.Linear(config.d_model, config.d_model, bias=False)
        self.join = nn.Linear(2 * config.d_model, config.d_model)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Any = None,
        encoder_attention_mask: Tensor | None = None,
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode target tokens `(B, T)`, given the encoder output `(B, S, D)` and its padding mask
        `(B, S)`.
        """
        if use_cache and cache is None:
            cache = RecurrentCache()
        states = self.dropout(run("lower", self.lower, self.embed(input_ids, inputs_embeds), cache))
        scores = (
            self.query(states) @ encoder_hidden_states.transpose(1, 2) / self.config.d_model**0.5
        )  # (B, T, S)
        if encoder_attention_mask is not None:
            scores = scores.masked_fill(
                encoder_attention_mask[:, None] == 0, torch.finfo(scores.dtype).min
            )
        weights = scores.softmax(dim=-1)
        # (B, T, D)
        found = self.join(torch.cat([states, weights @ encoder_hidden_states], dim=-1)).tanh()
        states = self.run_upper(self.dropout(found), cache)
        if cache is not None:
            cache.length += states.shape[1]
        return BaseModelOutputWithPastAndCrossAttentions(
            states, cache, cross_attentions=(weights[:, None],)
        )


class RecurrentModel(VanillaTransformerModel):
    """Encoder and decoder, without the output projection."""

    config_class = RecurrentConfig
    encoder_class: Any = RecurrentEncoder
    decoder_class: Any = RecurrentDecoder
    _auto_class: Any = None


class RecurrentForConditionalGeneration(VanillaTransformerForConditionalGeneration):
    """The recurrent model with the projection to the target vocabulary.

    `generate()` is the paper's search.
    """

    config_class = RecurrentConfig
    model_class = RecurrentModel
    _auto_class: Any = None

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the decoder creates its own


AutoConfig.register(RecurrentConfig.model_type, RecurrentConfig, exist_ok=True)
AutoModelForSeq2SeqLM.register(RecurrentConfig, RecurrentForConditionalGeneration, exist_ok=True)


def main(words: Sequence[str]) -> None:
    """Train the model by the flags of a recipe."""
    recipe = parse_recipe(list(words))
    evaluate = evaluator_for(recipe.output.best_metric)
    folder = train(recipe, evaluate=evaluate, model_class=RecurrentForConditionalGeneration)
    print(f"The model is in {folder}.")


if __name__ == "__main__":
    sys.exit(run_command(main))
