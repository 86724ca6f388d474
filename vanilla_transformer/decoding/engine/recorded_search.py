"""
A search of one source that records every hypothesis that it compares, as a feature of the engine's
search.

The feature looks at values, so its steps run eagerly.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.errors import UserError
from vanilla_transformer.generation_vanilla_transformer import length_penalty

from .engine import Engine
from .engine_pool import find_problem
from .known_features import search_options
from .search_options import SearchFeature, SearchOptions
from .search_state import SearchState
from .supported_models import SUPPORTED, kind_of
from .top_k import UNLIKELY, top_continuations

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

_NEVER = UNLIKELY / 2  # the scores of hypotheses that must not be chosen are lower


class RecordedHypothesis(NamedTuple):
    """
    A hypothesis that was compared with others in one step of the search.

    Attributes:
        tokens: The generated tokens.
        log_probability: Log-probability of all of them, in nats.
        state: `"kept"` if the search continued it, `"finished"`, `"dropped"`, or `"unfinished"` if
            the search ended before.
        score: `log_probability` divided by the length penalty.
    """

    tokens: tuple[int, ...]
    log_probability: float
    state: str
    score: float


class RecordedSearch(NamedTuple):
    """
    A search, step by step.

    Attributes:
        steps: The candidates of each step, best first.
        best: The finished candidates that the search returns, best first.
    """

    steps: list[list[RecordedHypothesis]]
    best: list[RecordedHypothesis]


def record_search(model: "DecodedModel", source: Sequence[int], **options: Any) -> RecordedSearch:
    """
    Translate one source as `generate()` does, and return all hypotheses that greedy or beam search
    compares.

    Args:
        model: A sequence-to-sequence model that an [`Engine`] decodes.
        source: Token ids, as the model was trained: usually with EOS at the end.
        options: Keyword arguments of `generate()`.
    """
    resolved = TranslationOptions.from_levels([options, vars(model.generation_config)])
    if resolved.do_sample:
        raise UserError(
            "Only greedy and beam search can be recorded, but the options ask for `do_sample`."
        )
    problem = find_problem(model, resolved)
    if not Engine.supports(model):
        problem = f"the model must be {SUPPORTED}, got {kind_of(model)}."
    if problem is not None:
        raise OptionError(f"To record a search, {problem}")
    recorder = _Recorder(search_options(model, resolved))
    engine = Engine(model, resolved, slots=1, compile=False, features=(recorder,))
    ((*hypotheses,),) = engine.decode([source], resolved.num_beams or 1)
    finished = dict[tuple[int, ...], RecordedHypothesis]()
    for candidate in chain.from_iterable(recorder.steps):
        if candidate.state == "finished":
            finished[candidate.tokens] = candidate
    returned = []
    for hypothesis in hypotheses:
        tokens = tuple(hypothesis.tokens)
        if tokens in finished:
            returned.append(finished[tokens])
    return RecordedSearch(recorder.steps, returned)


class _Recorder(SearchFeature):
    """
    Record the candidates of each step of a search with one slot.

    Args:
        options: Options of the search, without this feature.
    """

    def __init__(self, options: SearchOptions):
        self.steps: list[list[RecordedHypothesis]] = []
        self._options, self._is_done = options, False
        self._running: list[tuple[int, ...]] = [()] * options.num_beams
        self._compared: list[tuple[float, int, int]] = []  # score, beam and token

    def observe(self, logits: Tensor, log_scale: Tensor, state: SearchState) -> None:
        best = top_continuations(logits, log_scale, self._options.candidates)
        self._compared = [*zip(*(values[0].tolist() for values in best), strict=True)]

    def follow(self, state: SearchState, memory: object, parents: Tensor, tokens: Tensor) -> None:
        if self._is_done:
            return
        self._is_done = bool(state.done[0])
        at_limit = len(self._running[0]) + 1 >= int(state.limits[0])
        chosen = zip(parents[0].tolist(), tokens[0].tolist(), strict=True)
        kept = [(*self._running[parent], token) for parent, token in chosen]
        step = []
        for rank, (score, parent, token) in enumerate(self._compared):
            hypothesis = (*self._running[parent], token)
            if score < _NEVER:
                continue
            state_of = "dropped"
            if token in self._options.eos_token_ids or at_limit:
                state_of = "finished" if rank < self._options.num_beams else "dropped"
            elif hypothesis in kept:
                state_of = "unfinished" if self._is_done else "kept"
            divisor = length_penalty(
                len(hypothesis), self._options.length_penalty, self._options.length_penalty_type
            )
            step.append(RecordedHypothesis(hypothesis, score, state_of, score / divisor))
        self.steps.append(step)
        self._running = kept
