"""The engines of one model, and which requests they decode."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from transformers.utils import logging

from vanilla_transformer.decoding.options import (
    CONFIG,
    FILTERS,
    OptionError,
    TranslationOptions,
    options_of,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import limit_onednn_cache

from .compiled_steps import check_compile
from .device_profile import usual_slots
from .engine import Engine
from .model_watch import ModelWatch
from .precision import cast, check_precision, precision_of, resolve_precision
from .supported_models import SUPPORTED, kind_of

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

logger = logging.get_logger(__name__)
_MOST_ENGINES = 4
LENGTH_LIMITS = ("max_new_tokens_beyond_source", "max_new_tokens", "max_length")


def convert_for_engine(model: Any) -> Any:
    """Return a model that an engine may decode: the model itself, or a translation model of
    transformers as one of this package, which shares its weights.

    Raises:
        UserError: The model would compute something else.
    """
    if Engine.supports(model):
        return model
    from vanilla_transformer.extensions.conversion.from_transformers import convert_in_memory

    return convert_in_memory(model)


class EnginePool:
    """
    Keep the engines of a model for the last kinds of requests, and make new ones when its weights
    have changed.

    Whether an engine decodes the model is decided when the first engine is made, and again after
    each change.

    Args:
        precision: See [`Engine`].
        converts: Whether models of transformers are decoded after a conversion in memory, see
            [`load_converted`].
    """

    def __init__(
        self,
        model: "DecodedModel",
        precision: str | None = None,
        compile: bool | str = "auto",
        converts: bool = False,
    ):
        check_compile(compile)
        if precision is not None:
            check_precision(precision)
        limit_onednn_cache()  # also for what `generate()` decodes
        self.model, self.precision = model, precision
        self.compile, self.converts = compile, converts
        self._decoded = model  # or its conversion, or None if that would not be exact
        self._engines = OrderedDict[str, Engine]()
        self._watch = ModelWatch(model)
        self._problem: str | None = None
        self._cast: Any = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies make their own engines.
        return EnginePool, (self.model, self.precision, self.compile, self.converts)

    @property
    def supports_model(self) -> bool:
        with self._lock:
            self._notice_changes()
            return self._problem is None

    def find(
        self,
        options: TranslationOptions,
        required_by: str | None = None,
        longest_source: int = 0,
        **constraints: Any,
    ) -> Engine | None:
        """Return the engine of a request, or None if `generate()` decodes it.

        Args:
            required_by: The name of an option that only an engine follows, if there is one.
            longest_source: Tokens for which a converted model needs positions; the original
                computes any number.
            constraints: `constraint_tokens` and `word_continuations`, see [`Engine`].
        """
        with self._lock:
            self._notice_changes()
            is_converted = self._decoded is not self.model
            problem = self._problem
            if problem is None:
                longest = longest_source if is_converted else 0
                problem = find_problem(self._decoded, options, longest)
            if problem is None:
                return self._take(options, constraints)
        for name, is_given in ((required_by, required_by), ("precision", self.precision)):
            if is_given:
                hint = f"Leave `{name}` out to decode by `generate()`."
                raise OptionError(f"With `{name}`, {problem} {hint}")
        if is_converted:
            kind = type(self.model).__name__
            message = f"`generate()` decodes {kind} instead of the engine"
            logger.warning_once(f"{message}: {problem}")
        if self.compile is True:
            logger.warning_once(
                "`generate()` decodes without compiled steps what the engine does not support."
            )
        return None

    def _take(self, options: TranslationOptions, constraints: dict[str, Any]) -> Engine:
        """Return the engine for a kind of requests, and drop the one that was longest unused."""
        key = _search_key(options, constraints)
        if key not in self._engines:
            self._engines[key] = self._make(options, constraints)
        self._engines.move_to_end(key)
        while len(self._engines) > _MOST_ENGINES:
            self._engines.popitem(last=False)
        return self._engines[key]

    def _make(self, options: TranslationOptions, constraints: dict[str, Any]) -> Engine:
        precision = resolve_precision(self._decoded, self.precision)
        # Engines share the weights of a precision.
        if self._cast is None:
            self._cast = cast(self._decoded, precision)
        engine = Engine(
            self._cast,
            options.without_columns(),  # which may hold all texts of a call
            slots=usual_slots(options.num_beams or 1, self.model.device),
            precision=precision,
            compile=self.compile,
            **constraints,
        )
        engine.decoded_model = self.model
        return engine

    def refresh(self) -> None:
        """Make new engines at the next request, after a change that is not noticed: see
        [`TranslationPipeline`].
        """
        with self._lock:
            self._watch.forget()

    @property
    def is_compiled(self) -> bool:
        """Whether the last engine runs compiled steps."""
        engines = [*self._engines.values()]  # which another thread may change
        return bool(engines) and engines[-1].steps.is_compiled

    def _notice_changes(self) -> None:
        """Forget the engines of other weights, since engines copy some or all of them."""
        is_changed = self._watch.has_changed()
        # A hook may have been removed.
        may_retry = self._problem is not None and self._decoded is self.model
        if is_changed or may_retry:
            self._engines.clear()
            self._cast = None
            self._examine()

    def _examine(self) -> None:
        """Set the model that engines decode, and the problem if none does."""
        self._decoded, self._problem = self.model, None
        if self.converts:
            try:
                self._decoded = convert_for_engine(self.model)
            except UserError as error:
                self._decoded = None
                self._problem = f"the model must be one that is converted exactly. {error}"
                return
        if not Engine.supports(self._decoded):
            self._problem = f"the model must be {SUPPORTED}, got {kind_of(self.model)}."
        elif self.precision is None and precision_of(self.model) is None:
            self._problem = f"the weights must be float32 or bfloat16, got {self.model.dtype}."


def _search_key(options: TranslationOptions, constraints: dict[str, Any]) -> str:
    """Return a key that requests share if one engine decodes them."""
    unused = {"num_beams", "num_return_sequences"}
    if not options.do_sample:
        unused |= {*FILTERS}
    search = []
    for option in options_of(CONFIG):
        if option not in unused:
            search.append((option, getattr(options, option)))
    others = options.is_prefixed, options.is_drafted, options.return_alignments
    return repr((options.num_beams or 1, search, *others, constraints))


def find_problem(
    model: "DecodedModel", options: TranslationOptions, longest_source: int = 0
) -> str | None:
    """Return why no engine decodes a request, as the end of a sentence, or None if one does."""
    others = [*options.library]
    if options.eos_token_id is None:
        others.append("eos_token_id")
    if others:
        search = "sampling" if options.do_sample else "greedy and beam search"
        names = ", ".join(f"`{name}`" for name in sorted(others))
        return f"{search} must do without {names}."
    if options.do_sample and options.num_beams not in (None, 1):
        return f"sampling needs `num_beams=1`, got {options.num_beams}."
    # The n-grams of prompts count, too.
    for name in ("forced_bos_token_id", "forced_eos_token_id", "no_repeat_ngram_size"):
        value = getattr(options, name)
        if not model.config.is_encoder_decoder and value not in (None, 0):
            return f"prompts must do without `{name}`."
        if isinstance(value, list):
            return f"there must be one `{name}`."
    has_margin = options.max_new_tokens_beyond_source is not None
    if options.forced_eos_token_id is not None and has_margin:
        return "`forced_eos_token_id` needs the same limit for all sentences."
    if any(len(word) != 1 for word in options.bad_words_ids or ()):
        return "`bad_words_ids` must be single tokens."
    if isinstance(options.decoder_start_token_id, list):
        return "there must be one `decoder_start_token_id` for all sentences."
    has_start = options.decoder_start_token_id is not None
    starts = not model.config.is_encoder_decoder or has_start
    if not starts or all(getattr(options, name) is None for name in LENGTH_LIMITS):
        return (
            "there must be a `decoder_start_token_id` and a limit of the length, such as "
            "`max_new_tokens`."
        )
    if model.config.position_embedding_type == "learned":
        most, new = model.config.max_position_embeddings, options.max_new_tokens
        limit = options.max_length if new is None else 1 + new
        if longest_source > most or (not has_margin and limit > most):  # type: ignore[operator]
            return f"sources and the limit of the length must fit the model's {most} positions."
    return None
