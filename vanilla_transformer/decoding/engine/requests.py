"""The samples of sentences, and their seeds, which depend on the sentence only and not on its batch."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import torch

from vanilla_transformer.errors import UserError

from .phrase_constraints import Phrases
from .sampling import LARGEST_SEED
from .search_state import Hypothesis

Seeds = int | Iterable[int] | None  # of a request, of each of its sentences, or neither


class SearchRequest(NamedTuple):
    """
    What one slot decodes: a search, or one sample of a sentence.

    Attributes:
        position: Position of the sentence in its stream.
        number: Number of the sample, from 0.
        seed: Seed of the sample.
        hypotheses: Number of hypotheses of the search that are returned, the best ones.
        phrases: Token ids of each phrase that the translation must contain.
        prefix: Token ids with which the translation must begin.
    """

    position: int
    number: int = 0
    seed: int = 0
    hypotheses: int = 1
    phrases: Phrases = ()
    prefix: Sequence[int] = ()


class Answers:
    """
    Request a search for each sentence of a stream.

    Args:
        count: Hypotheses of each sentence.
    """

    def __init__(self, count: int):
        self.beams = count

    def request(self, position: int, source: Sequence[int]) -> list[SearchRequest]:
        """Return the one request for a sentence."""
        return [SearchRequest(position, hypotheses=self.beams)]

    def gather(
        self, taken: Iterable[tuple[SearchRequest, list[Hypothesis]]]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the position and the hypotheses of each sentence."""
        return ((request.position, hypotheses) for request, hypotheses in taken)


class SentenceSeeds:
    """
    Derive the seed of each sentence from the seed of a request.

    It depends on the sentence, and on how often the same sentence came before: a repeated sentence has other samples,
    and inserting or reordering other sentences changes nothing.

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
        return _hash(f"{self._seed} {count} {sentence}")


class Samples:
    """
    Request the samples of the sentences of a stream, and gather them.

    Args:
        count: Samples of each sentence.
        seed: An integer for all sentences, see [`SentenceSeeds`], or the seed of each one.
    """

    beams = 1  # hypotheses of each request

    def __init__(self, count: int, seed: Seeds = None):
        if type(count) is not int or count < 1:
            raise UserError(f"`num_return_sequences` must be an integer of 1 or more, got {count!r}.")
        self._count = count
        self._given = iter(seed) if isinstance(seed, Iterable) and not isinstance(seed, str) else None
        self._seeds = None if self._given is not None else SentenceSeeds(seed)  # type: ignore[arg-type]
        self._found: dict[int, dict[int, Hypothesis]] = {}

    def request(self, position: int, source: Sequence[int]) -> list[SearchRequest]:
        """Return the requests for a sentence, one for each sample."""
        seed = self._seeds(repr(list(source))) if self._seeds is not None else self._next_given(position)
        return [SearchRequest(position, number, _hash(f"{seed} {number}")) for number in range(self._count)]

    def gather(
        self, taken: Iterable[tuple[SearchRequest, list[Hypothesis]]]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the samples of each sentence in the order of their numbers, once the last one is there."""
        for request, (hypothesis,) in taken:
            found = self._found.setdefault(request.position, {})
            found[request.number] = hypothesis
            if len(found) == self._count:
                del self._found[request.position]
                yield request.position, [found[number] for number in range(self._count)]

    def _next_given(self, position: int) -> int:
        seed: Any = next(self._given, None)  # type: ignore[arg-type]
        if seed is None:
            raise UserError(f"There must be a seed for each source, but there is none for source {position}.")
        return check_seed(seed)


def share_seed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for several requests that count repeated sentences together, if there is a seed."""
    seed = options.get("seed")
    is_own = seed is None or isinstance(seed, SentenceSeeds)
    return dict(options) if is_own else {**options, "seed": SentenceSeeds(seed)}


def check_seed(seed: Any) -> int:
    """Return a seed."""
    if type(seed) is not int:
        raise UserError(f"`seed` must be an integer, got {seed!r}.")
    return seed


def _hash(content: str) -> int:
    """Return a seed that depends on a text in a random way."""
    digest = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") & LARGEST_SEED
