"""
The engines of a translation pipeline, and the requests that they serve.

An engine decodes all that it can. Other requests are left to the library's own loop.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.utils import logging

from vanilla_transformer.decoding.options import CONFIG, ENGINE_ONLY, FILTERS, TranslationOptions, options_of
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.device_utils import limit_onednn_cache

from .compiled_steps import check_compile
from .device_profile import usual_slots
from .engine import Engine
from .precision import cast, check_precision, precision_of, resolve_precision
from .supported_models import SUPPORTED, fits_positions, kind_of, submodules

logger = logging.get_logger(__name__)
_MOST_ENGINES = 4
_STRIDE = 2039
_FEW_VALUES = 2 * _STRIDE  # of weights whose bits are added up together
LENGTH_LIMITS = ("max_new_tokens_beyond_source", "max_new_tokens", "max_length")


class EnginePool:
    """
    Find an engine for a request, and keep the last ones for requests with the same options.

    Args:
        precision: See [`Engine`]; None for the model's own.
    """

    def __init__(self, precision: str | None = None, compile: bool | str = "auto"):
        check_compile(compile)
        if precision is not None:
            check_precision(precision)
        limit_onednn_cache()  # also for what `generate()` decodes
        self.precision, self.compile = precision, compile
        self._engines = OrderedDict[Any, Engine]()
        self._places: Any = None  # the modules, their classes, and where their weights are
        self._sums = torch.empty(0)
        self._precision = "float32"
        self._model: Any = None
        self._lock = threading.Lock()

    def find(
        self, model: Any, options: TranslationOptions, required_by: str | None = None, **constraints: Any
    ) -> Engine | None:
        """Return an engine for a request, or None if `generate()` decodes it.

        Args:
            required_by: The name of an option that only an engine follows, if there is one.
            constraints: `constraint_tokens` and `word_continuations`, see [`Engine`].
        """
        problem = find_problem(model, options)
        precision = self.precision or precision_of(model)
        if problem is None and precision is not None:
            with self._lock:
                return self._find(model, precision, options, constraints)
        if required_by is not None:
            problem = problem or f"the weights must be float32 or bfloat16, got {model.dtype}."
            raise UserError(f"With `{required_by}`, {problem} Leave `{required_by}` out to decode by `generate()`.")
        if self.precision is not None:
            raise UserError(f"With `precision`, {problem} Leave `precision` out to decode by `generate()`.")
        if self.compile is True:
            logger.warning_once("`generate()` decodes without compiled steps what the engine does not support.")
        return None

    @property
    def is_compiled(self) -> bool:
        """Whether the last engine runs compiled steps."""
        engines = [*self._engines.values()]  # which another thread may change
        return bool(engines) and engines[-1].steps.is_compiled

    def __reduce__(self) -> tuple[Any, ...]:
        return EnginePool, (self.precision, self.compile)  # copies of a model have separate engines

    def _find(self, model: Any, precision: str, options: TranslationOptions, constraints: Mapping[str, Any]) -> Engine:
        self._follow(model, precision)
        key = repr((engine_options(options), options.is_prefixed, options.return_alignments, constraints))
        if key not in self._engines:
            slots = usual_slots(options.num_beams or 1, model.device)
            kept = options.without_columns()  # which may hold all texts of a call
            engine = Engine(
                self._model, slots, precision=self._precision, compile=self.compile, options=kept, **constraints
            )
            self._engines[key] = engine
        self._engines.move_to_end(key)
        while len(self._engines) > _MOST_ENGINES:
            self._engines.popitem(last=False)
        return self._engines[key]

    def _follow(self, model: Any, precision: str) -> None:
        """Forget the engines of other weights, since engines copy some or all of them."""
        modules = submodules(model)
        found = (weight for each in modules for weight in each._parameters.values() if weight is not None)
        weights = [*{id(weight): weight for weight in found}.values()]  # tied ones once
        places = modules, [*map(type, modules)], [weight.data_ptr() for weight in weights]
        sums = weight_sums(weights)
        if places != self._places or not torch.equal(sums, self._sums):
            self._engines.clear()
            self._places, self._sums = places, sums
            self._precision = resolve_precision(model, precision)
            self._model = cast(model, self._precision)


def weight_sums(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """
    Return sums over the bits of weights, which change with each value and with its place.

    Versions would not tell: writing to `weight.data` raises none. Each sum is over every 2039th integer: as 2039
    is prime, exchanged values, columns and rows are in other sums. Two cores read 63 M weights in 20 ms.
    """
    flat = [weight.detach().reshape(-1) for weight in weights if type(weight) in (torch.Tensor, torch.nn.Parameter)]
    small = [each for each in flat if len(each) < _FEW_VALUES]
    joined = [torch.cat([each for each in small if each.dtype == dtype]) for dtype in {each.dtype for each in small}]
    large = [each for each in flat if len(each) >= _FEW_VALUES]
    return torch.cat([part for each in [*large, *joined] for part in _sum_bits(each)])


def _sum_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sum for each remainder of the places by the stride, and the bits after the last whole stride."""
    together = 8 // values.itemsize
    if len(values) % together or values.storage_offset() % together:
        values = torch.cat([values, values.new_zeros(-len(values) % together)])
    bits = values.view(torch.int64)
    end = len(bits) // _STRIDE * _STRIDE
    return bits[:end].view(-1, _STRIDE).sum(dim=0), bits[end:]


def find_problem(model: Any, options: TranslationOptions) -> str | None:
    """Return why no engine decodes a request, as the end of a sentence, or None if one does."""
    if not Engine.supports(model):
        return f"the model must be {SUPPORTED}, got {kind_of(model)}."
    others = [*options.library, *(["eos_token_id"] if options.eos_token_id is None else [])]
    if others:
        search = "sampling" if options.do_sample else "greedy and beam search"
        return f"{search} must do without {', '.join(f'`{name}`' for name in sorted(others))}."
    if options.do_sample and options.num_beams not in (None, 1):
        return f"sampling needs `num_beams=1`, got {options.num_beams}."
    if not model.config.is_encoder_decoder and options.forced_bos_token_id is not None:
        return "prompts must do without `forced_bos_token_id`."
    if not model.config.is_encoder_decoder and options.no_repeat_ngram_size:  # of prompts, too
        return "prompts must do without `no_repeat_ngram_size`."
    if isinstance(options.forced_bos_token_id, list):
        return "there must be one `forced_bos_token_id`."
    if isinstance(options.decoder_start_token_id, list):
        return "there must be one `decoder_start_token_id` for all sentences."
    starts = not model.config.is_encoder_decoder or options.decoder_start_token_id is not None
    if not starts or all(getattr(options, name) is None for name in LENGTH_LIMITS):
        return "there must be a `decoder_start_token_id` and a limit of the length, such as `max_new_tokens`."
    if options.max_new_tokens_beyond_source is None and not fits_positions(model.config, [engine_options(options)]):
        return f"the limit of the length must fit the model's {model.config.max_position_embeddings} positions."
    return None


def engine_options(options: TranslationOptions) -> dict[str, Any]:
    """Return the options of an [`Engine`] that decodes a request as `generate()` does, by their declarations."""
    unused = {name for name in ENGINE_ONLY if not options.asks_for(name)} | {"num_return_sequences"}
    unused |= set() if options.do_sample else {*FILTERS}
    names = [name for name in options_of(CONFIG) if name not in unused]
    return {name: getattr(options, name) for name in names} | {"num_beams": options.num_beams or 1}
