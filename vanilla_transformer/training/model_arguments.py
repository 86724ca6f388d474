"""
The flags of the model. They are fields of the configurations, written down once more, and compared by a test: a class
itself takes a second to import, since the library's base class imports torch, and `--help` should not.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass
class ModelArguments:
    """Shape and regularisation of the model: fields of `VanillaTransformerConfig`, with its defaults."""

    tie_word_embeddings: bool = field(
        default=True, metadata={"help": "The output projection is the target embedding (section 3.4)."}
    )
    d_model: int = field(default=512, metadata={"help": "Width of the residual stream (section 3.1)."})
    encoder_layers: int = field(default=6, metadata={"help": "N of section 3.1, of the encoder."})
    decoder_layers: int = field(default=6, metadata={"help": "N of section 3.1, of the decoder."})
    encoder_attention_heads: int = field(default=8, metadata={"help": "h of section 3.2.2, of the encoder."})
    decoder_attention_heads: int = field(default=8, metadata={"help": "h of section 3.2.2, of the decoder."})
    encoder_ffn_dim: int = field(default=2048, metadata={"help": "d_ff of section 3.3, of the encoder."})
    decoder_ffn_dim: int = field(default=2048, metadata={"help": "d_ff of section 3.3, of the decoder."})
    activation_function: str = field(
        default="relu", metadata={"help": "Of the feed-forward layers (section 3.3), by its name in transformers."}
    )
    dropout: float = field(
        default=0.1, metadata={"help": "On sub-layers and on embeddings with positions (section 5.4)."}
    )
    attention_dropout: float = field(default=0.0, metadata={"help": "On attention probabilities. Not in the paper."})
    activation_dropout: float = field(
        default=0.0, metadata={"help": "Within the feed-forward layers. Not in the paper."}
    )
    attention_bias: bool = field(
        default=False, metadata={"help": "Biases in attention projections. Not in the paper."}
    )
    lm_head_bias: bool = field(default=False, metadata={"help": "A bias on the logits. Not in the paper."})
    normalize_before: bool = field(
        default=False, metadata={"help": "Normalise inputs of sub-layers (pre-norm). Not in the paper."}
    )
    layer_norm_eps: float = field(default=1e-6, metadata={"help": "ε of normalisation."})
    scale_embedding: bool = field(default=True, metadata={"help": "Multiply embeddings by √d_model (section 3.4)."})
    position_embedding_type: Literal["sinusoidal", "learned"] = field(
        default="sinusoidal", metadata={"help": "Section 3.5, or table 3, row E."}
    )
    sinusoid_layout: Literal["interleaved", "halves"] = field(
        default="interleaved", metadata={"help": "Sines and cosines in turns (section 3.5), or all sines first."}
    )
    max_position_embeddings: int = field(
        default=1024, metadata={"help": "Rows of learned positions; sinusoids have no limit."}
    )
    source_eos: bool = field(default=True, metadata={"help": "The EOS of a source is seen by the model."})
    init_std: float | None = field(
        default=None, metadata={"help": "Standard deviation of all initial weights; by default Glorot's."}
    )
    use_cache: bool = field(default=True, metadata={"help": "Keep keys and values while generating."})


@dataclass
class LongArguments:
    """For long sequences: fields of `VanillaTransformerLongConfig`, where one of them is not as it stands here."""

    attention: Literal["softmax", "linear", "lsh", "relative"] = field(
        default="softmax", metadata={"help": "Self-attention: the paper's softmax, or what came after it."}
    )
    cross_attention: Literal["softmax", "linear"] = field(
        default="softmax", metadata={"help": "From decoder to encoder."}
    )
    num_hashes: int = field(default=4, metadata={"help": "Rounds of hashing of lsh."})
    num_buckets: int = field(default=32, metadata={"help": "Buckets of a round of lsh: even, or 1."})
    lsh_attn_chunk_length: int = field(default=64, metadata={"help": "Positions of a chunk of lsh."})
    hash_seed: int = field(default=0, metadata={"help": "Of the rotations of lsh."})
    mem_len: int | None = field(
        default=None, metadata={"help": "The most positions that relative remembers in a cache."}
    )
    reversible: bool = field(default=False, metadata={"help": "Recompute activations; needs --normalize_before."})
    chunk_size_feed_forward: int = field(
        default=0, metadata={"help": "Positions at a time in the feed-forward layers; 0 for all."}
    )
