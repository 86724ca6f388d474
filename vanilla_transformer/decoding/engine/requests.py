"""The requests of an engine, and the seeds of samples, which depend on the sentence only and not on
its batch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.errors import UserError

from .sampling import LARGEST_SEED

Phrases = Sequence[Sequence[int]]


class DecodeRequest(NamedTuple):
    """
    A source to translate, or a prompt to continue.

    Attributes:
        source: Token ids, which end in EOS for a translation, or the encoder's outputs `(S, D)` for
            a source.
        prefix: Token ids with which the target begins, for an engine with `target_prefix`.
        phrases: Token ids of each phrase that the target contains, for an engine with
            `constraint_tokens`.
        seed: Seed of the samples of this source; by default it follows from the one of the call.
        draft: Token ids that the target may turn out to have, for an engine with `draft`.
        draft_bias: Preference for them, or for each, from 0 to 0.5, see [`Drafts`].
        limit: Tokens that the target may have, for a source that is read as it is. By default the
            options limit the target, and an EOS is not read at the end of a prompt, nor in a source
            without `config.source_eos`.
    """

    source: Sequence[int] | Tensor
    prefix: Sequence[int] = ()
    phrases: Phrases = ()
    seed: int | None = None
    limit: int | None = None
    draft: Sequence[int] = ()
    draft_bias: float | Sequence[float] = 0.0


class Search(NamedTuple):
    """
    What one slot decodes: a search, or one sample of a request.

    Attributes:
        position: Place of the request in its call.
        number: Number of the sample, from 0.
        seed: Seed of the sample.
        hypotheses: Number of hypotheses of the search that are returned, the best ones.
    """

    request: DecodeRequest
    position: int
    number: int = 0
    seed: int = 0
    hypotheses: int = 1


class SentenceSeeds:
    """
    Derive the seed of each sentence from the seed of a request.

    It depends on the sentence, and on how often the same sentence came before: a repeated sentence
    has other samples, and inserting or reordering other sentences changes nothing.

    Args:
        seed: Any integer; by default one is drawn from torch's generator, as in `generate()`.
        repeats_differ: A repeated sentence has other samples; False gives it the same ones.
    """

    def __init__(self, seed: int | None = None, repeats_differ: bool = True):
        self._repeats_differ = repeats_differ
        self._seed = int(torch.randint(2**63 - 1, ())) if seed is None else check_seed(seed)
        self._counts = Counter[int]()

    def __call__(self, sentence: str) -> int:
        """Return the seed of the next sentence."""
        key = hash(sentence)
        self._counts[key] += 1
        count = self._counts[key] if self._repeats_differ else 1
        return hash_seed(f"{self._seed} {count} {sentence}")


def share_seed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for several requests that count repeated sentences together, if there is a
    seed.
    """
    seed = options.get("seed")
    is_shared = seed is None or isinstance(seed, SentenceSeeds)
    return dict(options) if is_shared else {**options, "seed": SentenceSeeds(seed)}


def check_seed(seed: object) -> int:
    """Return a seed."""
    if type(seed) is not int:
        raise UserError(f"`seed` must be an integer, got {seed!r}.")
    return seed


def hash_seed(content: str) -> int:
    """Return a seed that depends on a text in a random way."""
    digest = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") & LARGEST_SEED
