"""The sources or prompts that an engine may read, the tokens that attention sees, and the limits of
their targets.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.errors import UserError

from .phrase_constraints import ConstraintError, PhraseConstraints, check_phrases
from .prefill import Prefilled, prefill, read_states
from .requests import DecodeRequest, Search
from .search_options import SearchOptions

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel


class SourceRules:
    """
    Check sources of a model, and derive how many tokens may be generated for each.

    Args:
        model: The model that reads them.
        options: The options of the request.
        search: The options of its search.
    """

    def __init__(self, model: "DecodedModel", options: TranslationOptions, search: SearchOptions):
        margin = options.max_new_tokens_beyond_source
        self.has_encoder = model.config.is_encoder_decoder
        if margin is not None and not self.has_encoder:
            requirement = "`max_new_tokens_beyond_source` needs a model with an encoder"
            raise UserError(f"{requirement}. Give `max_new_tokens`.")
        limits = (margin, options.max_new_tokens, options.max_length)
        if limits == (None, None, None):
            names = "`max_new_tokens`, `max_new_tokens_beyond_source` or `max_length`"
            requirement = f"One of {names} must limit the number of new tokens"
            raise UserError(f"{requirement}. Give one of them.")
        self._model, self._options = model.config, options
        self._margin, self._eos = margin, search.eos_token_ids
        entries = len(model.get_output_embeddings().weight)
        self._target_tokens = {*range(entries)} - {*self._eos}
        self._prefixed, self._drafted = options.is_prefixed, options.is_drafted
        self._phrase_room = 0
        for feature in search.features:
            if isinstance(feature, PhraseConstraints):
                self._phrase_room = max(self._phrase_room, feature.room)

    def check(self, position: int, request: DecodeRequest) -> None:
        """Check a request: its source, the prefix of its target, and the phrases in it."""
        source, limit = request.source, self.limit(request)
        name = "source" if self.has_encoder else "prompt"
        if not isinstance(source, Tensor):
            entries = self._model.vocab_size
            wrong = [token for token in source if not 0 <= token < entries]
            if wrong:
                requirement = f"Token ids must be from 0 to {entries - 1}"
                raise UserError(f"{requirement}, got {wrong[0]} in {name} {position}.")
            longest, reason = len(source), ""
            if self._model.position_embedding_type == "learned":
                longest = self._model.max_position_embeddings
                reason = ", as many as learned positions"
            most = self._options.max_length
            has_limit = self._options.max_new_tokens is not None or request.limit is not None
            is_limited = not self.has_encoder and not has_limit
            if is_limited and most is not None and most <= longest:
                longest, reason = most - 1, " before `max_length`"
            length = len(source if self.has_encoder else self.seen(request))
            if not 1 <= length <= max(1, longest):
                requirement = "at least 1 token"
                if source:
                    requirement = f"at most {longest} tokens{reason}"
                problem = f"got {length} in {name} {position}"
                raise OptionError(f"A {name} must have {requirement}, {problem}.")
        # With EOS at its end, a prefix may be a complete target.
        prefix = request.prefix
        last = {*prefix[-1:]} & {*self._eos}
        if prefix and not self._prefixed:
            raise UserError("A prefix needs an engine with `target_prefix`.")
        known = self._target_tokens
        wrong = [token for token in prefix if token not in known and token not in last]
        if wrong or len(last & {*prefix[:-1]}):
            requirement = "token ids of the vocabulary, and EOS only at its end"
            problem = f"got {[*prefix]} for source {position}"
            raise ConstraintError(f"A target prefix must have {requirement}, {problem}.")
        if len(prefix) - len(last) >= limit:
            size = f"{len(prefix)} tokens for source {position}"
            requirement = f"shorter than the {limit} tokens of the limit"
            raise ConstraintError(f"A target prefix must be {requirement}, got {size}.")
        if len(request.draft) and not self._drafted:
            raise UserError("A draft needs an engine with `draft`.")
        wrong = [token for token in request.draft if token not in known and token not in self._eos]
        if wrong:
            raise UserError(f"A draft must have token ids of the vocabulary, got {wrong[0]}.")
        check_phrases(request.phrases, self._phrase_room, limit - len(prefix), known)

    def cut_draft(self, request: DecodeRequest) -> DecodeRequest:
        """Return a request whose draft ends before EOS and at the limit of its target."""
        if not len(request.draft):
            return request
        tokens = takewhile(lambda token: token not in self._eos, request.draft)
        return request._replace(draft=tuple(islice(tokens, self.limit(request))))

    def seen(self, request: DecodeRequest) -> Sequence[int] | Tensor:
        """Return the tokens that attention may see."""
        source = request.source
        if request.limit is not None or isinstance(source, Tensor):
            return source
        if not self.has_encoder:
            has_eos = len(source) > 1 and source[-1] in self._eos
            return source[:-1] if has_eos else source
        if self._model.source_eos:
            return source
        eos = self._model.eos_token_id
        if not isinstance(eos, list):
            eos = [eos]
        return [token for token in source if token not in eos]

    def limit(self, request: DecodeRequest) -> int:
        """Return how many tokens may be generated.

        `max_length` counts all of a prompt, also its EOS.
        """
        options, seen = self._options, len(self.seen(request))
        if request.limit is not None:
            return request.limit
        if self._margin is not None:
            limit = seen + self._margin
        elif options.max_new_tokens is not None:
            limit = options.max_new_tokens
        else:
            assert options.max_length is not None
            limit = options.max_length - (1 if self.has_encoder else len(request.source))
        if self._model.position_embedding_type == "learned":
            # The last token of a text has no position.
            longest = self._model.max_position_embeddings
            limit = min(limit, longest - 1 if self.has_encoder else longest + 1 - seen)
        return max(1, limit)


class PrefilledSource(NamedTuple):
    """
    A source that the model has read, its length, its row in a batch, and what the batch leaves in
    slots.

    `limit` is the number of tokens that may be generated.
    """

    search: Search
    length: int
    limit: int
    row: int
    batch: Prefilled


class SourceQueue:
    """
    Hold sources, and let the model read some of them ahead.

    Its length is the number of searches and samples that wait.

    Args:
        model: Reads the sources.
        rules: Rules of the model's sources.
        together: Sources that the model reads at once, at most.
    """

    def __init__(self, model: "DecodedModel", rules: SourceRules, together: int):
        self._model, self._rules, self._together = model, rules, together
        self._unread = deque[list[Search]]()
        self._prefilled = deque[PrefilledSource]()
        self._unread_searches = 0

    def __len__(self) -> int:
        return self._unread_searches + len(self._prefilled)

    def extend(self, searches: Sequence[list[Search]]) -> None:
        """Add the searches of each source."""
        self._unread.extend(searches)
        self._unread_searches += sum(map(len, searches))

    def read_ahead(self) -> None:
        """Let the model read sources, unless others that it has read still wait."""
        if not self._unread or self._prefilled:
            return
        together = [self._unread.popleft() for _ in range(min(self._together, len(self._unread)))]
        self._unread_searches -= sum(map(len, together))
        requests = [searches[0].request for searches in together]
        seen = [self._rules.seen(request) for request in requests]
        read = [
            tokens if len(tokens) else request.source[:1]
            for tokens, request in zip(seen, requests, strict=True)
        ]
        if isinstance(read[0], Tensor):
            states = nn.utils.rnn.pad_sequence(read, batch_first=True)  # type: ignore[arg-type]
            batch = read_states(self._model, states, [*map(len, read)])
        else:
            batch = prefill(self._model, read, [*map(len, seen)])  # type: ignore[arg-type]
        for row, (searches, source) in enumerate(zip(together, read, strict=True)):
            limit = self._rules.limit(searches[0].request)
            self._prefilled.extend(
                PrefilledSource(search, len(source), limit, row, batch) for search in searches
            )

    def take(self, most: int) -> list[PrefilledSource]:
        """Remove and return up to `most` sources that the model has read in one batch."""
        self.read_ahead()
        together = [
            source for source in self._prefilled if source.batch is self._prefilled[0].batch
        ][:most]
        return [self._prefilled.popleft() for _ in together]

    def clear(self) -> None:
        """Remove all sources."""
        self._unread.clear()
        self._prefilled.clear()
        self._unread_searches = 0
