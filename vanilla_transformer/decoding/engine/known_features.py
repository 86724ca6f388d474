"""The features of the engine's search, by the options of a generation config."""

from collections.abc import Sequence
from typing import Any

from transformers import GenerationConfig

from vanilla_transformer.decoding.options import OptionError

from .coverage import CoveragePenalty, coverage_of
from .phrase_constraints import PhraseConstraints, WordContinuations, continuation_penalties
from .repeated_ngrams import NoRepeatedNgrams
from .search_features import SearchFeature
from .search_options import search_options
from .static_decoder import AlignmentHeads
from .target_prefix import BiasedPrefix, ForcedBos, TargetPrefix


def features_of(
    model: Any,
    config: GenerationConfig,
    prefixed: bool,
    constraint_tokens: int,
    word_continuations: WordContinuations,
) -> tuple[SearchFeature, ...]:
    """Return the features that the options of a search ask for.

    Args:
        prefixed, constraint_tokens, word_continuations: See [`Engine`].

    Raises:
        ValueError: An option is out of range, or not for this model.
    """
    features: list[SearchFeature] = []
    bias, coverage = (getattr(config, name, None) for name in ("prefix_bias", "coverage_penalty"))
    if bias is not None and not prefixed:
        raise OptionError("`prefix_bias` needs target prefixes, which it prefers instead of forcing them.")
    bos = config.forced_bos_token_id
    if bos is not None:
        if prefixed or not model.config.is_encoder_decoder:
            raise OptionError("`forced_bos_token_id` needs a model with an encoder, and no target prefixes.")
        features.append(ForcedBos(bos))
    if prefixed:
        features.append(TargetPrefix() if bias is None else BiasedPrefix(bias))
    if config.no_repeat_ngram_size:
        if not model.config.is_encoder_decoder:
            raise OptionError("`no_repeat_ngram_size` needs a model with an encoder.")
        features.append(NoRepeatedNgrams(config.no_repeat_ngram_size))  # after features that force tokens
    if coverage:
        features.append(coverage_of(model, coverage))
    if constraint_tokens:
        options = search_options(config)
        entries = model.get_output_embeddings().weight.shape[0]
        penalties = continuation_penalties(word_continuations, entries, model.device)
        search = options.num_beams, options.eos_token_ids
        features.append(PhraseConstraints(constraint_tokens, *search, word_continuations, penalties))
    return tuple(features)


def kept_heads(features: Sequence[SearchFeature]) -> AlignmentHeads:
    """Return the heads of cross-attention whose queries some features need."""
    return [head for feature in features if isinstance(feature, CoveragePenalty) for head in feature.heads]


__all__ = ["features_of", "kept_heads"]
