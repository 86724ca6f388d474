"""The sources or prompts that an engine may read, the tokens that attention sees, and the limits of their targets."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.errors import UserError

from .phrase_constraints import ConstraintError, PhraseConstraints, Phrases, check_phrases
from .prefill import Prefilled, prefill
from .requests import SearchRequest
from .search_options import SearchOptions


class SourceRules:
    """
    Check sources of a model, and derive how many tokens may be generated for each.

    Args:
        model: The model that reads them.
        options: The options of the request.
        search: The options of its search.
    """

    def __init__(self, model: Any, options: TranslationOptions, search: SearchOptions):
        margin = options.max_new_tokens_beyond_source
        self.has_encoder = model.config.is_encoder_decoder
        if margin is not None and not self.has_encoder:
            raise UserError("`max_new_tokens_beyond_source` needs a model with an encoder. Give `max_new_tokens`.")
        if margin is None and options.max_new_tokens is None and options.max_length is None:
            limits = "`max_new_tokens`, `max_new_tokens_beyond_source` or `max_length`"
            raise UserError(f"One of {limits} must limit the number of new tokens. Give one of them.")
        self._model, self._options, self._margin, self._eos = model.config, options, margin, search.eos_token_ids
        self._target_tokens = {*range(len(model.get_output_embeddings().weight))} - {*self._eos}
        self._phrase_room = max([0, *(each.room for each in search.features if isinstance(each, PhraseConstraints))])

    def check(self, position: int, source: Sequence[int]) -> None:
        """Check a source."""
        entries, name = self._model.vocab_size, "source" if self.has_encoder else "prompt"
        wrong = [token for token in source if not 0 <= token < entries]
        if wrong:
            raise UserError(f"Token ids must be from 0 to {entries - 1}, got {wrong[0]} in {name} {position}.")
        longest, reason = len(source), ""
        if self._model.position_embedding_type == "learned":
            longest, reason = self._model.max_position_embeddings, ", as many as learned positions"
        most = self._options.max_length
        if not self.has_encoder and self._options.max_new_tokens is None and most is not None and most <= longest:
            longest, reason = most - 1, " before `max_length`"
        length = len(source if self.has_encoder else self.seen(source))
        if not 1 <= length <= max(1, longest):
            rule = "at least 1 token" if not source else f"at most {longest} tokens{reason}"
            raise OptionError(f"A {name} must have {rule}, got {length} in {name} {position}.")

    def check_target(self, position: int, source: Sequence[int], prefix: Sequence[int], phrases: Phrases) -> None:
        """Check what the target of a source must begin with, and what it must contain."""
        limit = self.limit(source)
        last = {*prefix[-1:]} & {*self._eos}  # with which a target may be complete
        wrong = [token for token in prefix if token not in self._target_tokens and token not in last]
        if wrong or len(last & {*prefix[:-1]}):
            rule = "token ids of the vocabulary, and EOS only at its end"
            raise ConstraintError(f"A target prefix must have {rule}, got {[*prefix]} for source {position}.")
        if len(prefix) - len(last) >= limit:
            found = f"{len(prefix)} tokens for source {position}"
            raise ConstraintError(
                f"A target prefix must be shorter than the {limit} tokens of the limit, got {found}."
            )
        check_phrases(phrases, self._phrase_room, limit - len(prefix), self._target_tokens)

    def seen(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that attention may see."""
        if not self.has_encoder:
            return list(source[:-1] if len(source) > 1 and source[-1] in self._eos else source)
        if self._model.source_eos:
            return list(source)
        eos = self._model.eos_token_id
        return [token for token in source if token not in (eos if isinstance(eos, list) else [eos])]

    def limit(self, source: Sequence[int]) -> int:
        """Return how many tokens may be generated for a source. `max_length` counts all of a prompt, also its EOS."""
        options, seen = self._options, len(self.seen(source))
        if self._margin is not None:
            limit = seen + self._margin
        elif options.max_new_tokens is not None:
            limit = options.max_new_tokens
        else:
            assert options.max_length is not None
            limit = options.max_length - (1 if self.has_encoder else len(source))
        if self._model.position_embedding_type == "learned":
            longest = self._model.max_position_embeddings  # the last token of a text has no position
            limit = min(limit, longest - 1 if self.has_encoder else longest + 1 - seen)
        return max(1, limit)


class PrefilledSource(NamedTuple):
    """
    A source that the model has read: its request, its length, its row in a batch, and what the batch leaves in slots.

    `limit` is the number of tokens that may be generated.
    """

    request: SearchRequest
    length: int
    limit: int
    row: int
    batch: Prefilled


class SourceQueue:
    """
    Hold sources, and let the model read some of them ahead.

    Args:
        model: Reads the sources.
        rules: Rules of the model's sources.
        together: Sources that the model reads at once, at most.
    """

    def __init__(self, model: Any, rules: SourceRules, together: int):
        self._model, self._rules, self._together = model, rules, together
        self._unread: deque[tuple[list[SearchRequest], Sequence[int]]] = deque()
        self._prefilled: deque[PrefilledSource] = deque()

    def __bool__(self) -> bool:
        return bool(self._unread or self._prefilled)

    def __len__(self) -> int:
        """Return the number of sources or, once the model has read them, of searches and samples."""
        return len(self._unread) + len(self._prefilled)

    @property
    def requests(self) -> int:
        """The number of searches and samples."""
        return sum(len(requests) for requests, _ in self._unread) + len(self._prefilled)

    def add(self, requests: list[SearchRequest], source: Sequence[int]) -> None:
        """Add the requests for a source that the model has not read."""
        self._unread.append((requests, source))

    def add_batch(self, batch: Prefilled, sources: Sequence[tuple[list[SearchRequest], int, int]]) -> None:
        """Add the sources of a batch that the model has read, given the requests, the length and the limit of each."""
        for row, (requests, length, limit) in enumerate(sources):
            self._prefilled.extend(PrefilledSource(request, length, limit, row, batch) for request in requests)

    def read_ahead(self) -> None:
        """Let the model read sources, unless others that it has read still wait."""
        if self._unread and not self._prefilled:
            self._read()

    def take(self, most: int) -> list[PrefilledSource]:
        """Remove and return up to `most` sources that the model has read in one batch."""
        self.read_ahead()
        together = [each for each in self._prefilled if each.batch is self._prefilled[0].batch][:most]
        return [self._prefilled.popleft() for _ in together]

    def clear(self) -> None:
        """Remove all sources."""
        self._unread.clear()
        self._prefilled.clear()

    def _read(self) -> None:
        sentences = [self._unread.popleft() for _ in range(min(self._together, len(self._unread)))]
        seen = [self._rules.seen(source) for _, source in sentences]
        read = [tokens or source[:1] for tokens, (_, source) in zip(seen, sentences, strict=True)]
        batch = prefill(self._model, read, [*map(len, seen)])
        lengths = [
            (len(tokens), self._rules.limit(source)) for tokens, (_, source) in zip(read, sentences, strict=True)
        ]
        self.add_batch(batch, [(requests, *each) for (requests, _), each in zip(sentences, lengths, strict=True)])
