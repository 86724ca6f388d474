"""The options and features of an engine's search, from a request; and hypotheses without repeated
n-grams.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError, TranslationOptions

from .drafts import Drafts
from .phrase_constraints import NO_CONTINUATIONS, PhraseConstraints, WordContinuations
from .sampling import SamplingOptions
from .search_options import SearchFeature, SearchOptions
from .target_prefix import ForcedToken, TargetPrefix
from .top_k import UNLIKELY

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

    from .search_state import SearchState


@dataclass(frozen=True)
class NoRepeatedNgrams(SearchFeature):
    """
    Forbid tokens that complete an n-gram that the hypothesis already has; the start symbol is its
    first token.

    As in the library, scores stay the model's log-probabilities, which are not renormalized. A
    token that another feature forces, such as a prefix's, may repeat an n-gram.

    Args:
        size: n.
    """

    size: int

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: tuple[()]
    ) -> Tensor:
        # (B, N, R)
        written = state.tokens.gather(2, state.ancestors.transpose(1, 2)).transpose(1, 2)
        places, now = (
            torch.arange(written.shape[2], device=written.device),
            state.time[:, None, None],
        )
        # The tokens of each hypothesis; those at later places mean nothing. Each beam descends from
        # itself now.
        history = torch.where(places == now, state.last_tokens[..., None], written)
        # An n-gram of the history ends at each place. Its last token is forbidden if its others are
        # the latest ones.
        repeats = (places >= self.size - 1) & (places <= now)
        for back in range(1, self.size):
            latest = (now + 1 - back).clamp(min=0).expand(-1, history.shape[1], -1)
            repeats = repeats & (
                history[:, :, (places - back).clamp(min=0)] == history.gather(2, latest)
            )
        is_forced = logits.isfinite().sum(dim=2, keepdim=True) <= 1  # (B, N, 1)
        penalties = torch.where(repeats & ~is_forced, -torch.inf, 0.0)
        return logits.scatter_add(2, history, penalties.to(logits.dtype))


@dataclass(frozen=True)
class ForbiddenTokens(SearchFeature):
    """Forbid tokens everywhere, such as padding.

    As in the library, scores are not renormalized by that alone.
    """

    tokens: tuple[int, ...]

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: tuple[()]
    ) -> Tensor:
        vocabulary = torch.arange(logits.shape[2], device=logits.device)
        # (V,)
        is_forbidden = reduce(torch.logical_or, (vocabulary == token for token in self.tokens))
        return logits.masked_fill(is_forbidden, -torch.inf)


def search_options(
    model: "DecodedModel",
    options: TranslationOptions,
    constraint_tokens: int = 0,
    word_continuations: WordContinuations = NO_CONTINUATIONS,
    features: tuple[SearchFeature, ...] = (),
) -> SearchOptions:
    """Return the options of the engine's search for a request, with the features that it asks for
    and further ones.
    """
    beams, bos = options.num_beams or 1, options.forced_bos_token_id
    eos = options.eos_token_id
    eos = tuple(eos) if isinstance(eos, list) else (eos,)
    known: list[SearchFeature] = []
    # EOS is never forbidden, as in the library.
    words = {*chain.from_iterable(options.bad_words_ids or ())} - {*eos}
    forbidden = words | {*(options.suppress_tokens or ())}
    if forbidden:
        known.append(ForbiddenTokens(tuple(sorted(forbidden))))
    if bos is not None:
        if options.is_prefixed or not model.config.is_encoder_decoder:
            raise OptionError(
                "`forced_bos_token_id` needs a model with an encoder, and no target prefixes."
            )
        known.append(ForcedToken(bos))
    penalties = None
    if word_continuations:
        entries = len(model.get_output_embeddings().weight)
        penalties = torch.zeros(entries)
        continuations = [token for token in word_continuations if token < entries]
        penalties[continuations] = UNLIKELY
        penalties = penalties.to(model.device)
    if options.is_prefixed:
        known.append(TargetPrefix(word_continuations, penalties))
    if options.no_repeat_ngram_size:
        if not model.config.is_encoder_decoder:
            raise OptionError("`no_repeat_ngram_size` needs a model with an encoder.")
        # It comes after features that force tokens.
        known.append(NoRepeatedNgrams(options.no_repeat_ngram_size))
    if constraint_tokens:
        known.append(
            PhraseConstraints(constraint_tokens, beams, eos, word_continuations, penalties)
        )
    if options.is_drafted:
        if beams > 1:
            raise OptionError(f"A `draft` needs `num_beams=1`, got {beams}.")
        known.append(Drafts())
    if options.forced_eos_token_id is not None:
        known.append(ForcedToken(options.forced_eos_token_id, is_last=True))
    penalty = options.length_penalty
    sampling = SamplingOptions.from_options(vars(options)) if options.do_sample else None
    return SearchOptions(
        num_beams=beams,
        eos_token_ids=eos,
        length_penalty=1.0 if penalty is None else float(penalty),
        length_penalty_type=options.length_penalty_type or "power",
        early_stopping=options.early_stopping or False,
        min_new_tokens=options.min_new_tokens or 0,
        sampling=sampling,
        features=(*known, *features),
        renormalizes=options.renormalize_logits and beams > 1,
    )
