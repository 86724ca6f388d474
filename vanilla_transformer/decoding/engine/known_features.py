"""The features of the engine's search, by the options of a request; and no n-gram twice in a hypothesis."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError, TranslationOptions

from .phrase_constraints import NO_CONTINUATIONS, PhraseConstraints, WordContinuations, continuation_penalties
from .search_options import SearchFeature, search_options
from .target_prefix import ForcedBos, TargetPrefix


@dataclass(frozen=True)
class NoRepeatedNgrams(SearchFeature):
    """
    Forbid tokens that complete an n-gram that the hypothesis already has; the start symbol is its first token.

    As in the library, scores stay the model's log-probabilities, which are not renormalized. A token that another
    feature forces, such as a prefix's, may repeat an n-gram.

    Args:
        size: n.
    """

    size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise OptionError(f"`no_repeat_ngram_size` must be an integer of 0 or more, got {self.size!r}.")

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: tuple[()]) -> Tensor:
        history, now = _histories(state), state.time[:, None, None]  # (B, N, R), (B, 1, 1)
        places = torch.arange(history.shape[2], device=history.device)
        # An n-gram of the history ends at each place. Its last token is forbidden if its others are the latest ones.
        repeats = (places >= self.size - 1) & (places <= now)
        for back in range(1, self.size):
            latest = (now + 1 - back).clamp(min=0).expand(-1, history.shape[1], -1)
            repeats = repeats & (history[:, :, (places - back).clamp(min=0)] == history.gather(2, latest))
        is_forced = logits.isfinite().sum(dim=2, keepdim=True) <= 1  # (B, N, 1)
        penalties = torch.where(repeats & ~is_forced, -torch.inf, 0.0)
        return logits.scatter_add(2, history, penalties.to(logits.dtype))


def _histories(state: Any) -> Tensor:
    """Return the tokens of the running hypotheses, `(B, N, R)`; those after `state.time` mean nothing."""
    written = state.tokens.gather(2, state.ancestors.transpose(1, 2)).transpose(1, 2)
    is_now = torch.arange(written.shape[2], device=written.device) == state.time[:, None, None]
    return torch.where(is_now, state.last_tokens[..., None], written)  # each beam descends from itself now


def features_of(
    model: Any,
    options: TranslationOptions,
    constraint_tokens: int = 0,
    word_continuations: WordContinuations = NO_CONTINUATIONS,
) -> tuple[SearchFeature, ...]:
    """Return the features that the options of a search ask for."""
    features: list[SearchFeature] = []
    bos = options.forced_bos_token_id
    if bos is not None:
        if options.is_prefixed or not model.config.is_encoder_decoder:
            raise OptionError("`forced_bos_token_id` needs a model with an encoder, and no target prefixes.")
        features.append(ForcedBos(bos))
    if options.is_prefixed:
        features.append(TargetPrefix())
    if options.no_repeat_ngram_size:
        if not model.config.is_encoder_decoder:
            raise OptionError("`no_repeat_ngram_size` needs a model with an encoder.")
        features.append(NoRepeatedNgrams(options.no_repeat_ngram_size))  # after features that force tokens
    if constraint_tokens:
        entries = model.get_output_embeddings().weight.shape[0]
        penalties = continuation_penalties(word_continuations, entries, model.device)
        search = search_options(options)
        features.append(
            PhraseConstraints(constraint_tokens, search.num_beams, search.eos_token_ids, word_continuations, penalties)
        )
    return tuple(features)
