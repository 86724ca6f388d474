"""
The decoding engine: sentences enter free slots while others are decoded, and leave when they are
done.

So a mixed stream needs no sorting, and no step computes padding for sentences that have ended.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vanilla_transformer.decoding.ensemble import members_of, weights_of
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.weight_packing import packed_copy
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import limit_onednn_cache
from vanilla_transformer.machine.transfers import HostCopy, to_device

from .custom_generate import generate_by_engine
from .device_profile import profile_of
from .drafts import WIDTHS, find_drafts
from .graphed_steps import steps_for
from .known_features import search_options
from .phrase_constraints import (
    NO_CONTINUATIONS,
    PhraseConstraints,
    WordContinuations,
    check_complete,
)
from .precision import INT8, cast, resolve_precision, round_to_int8
from .requests import DecodeRequest, Search, SentenceSeeds, check_seed, hash_seed
from .search_options import SearchFeature
from .search_state import Hypothesis, read_hypotheses
from .slot_buffers import SlotBuffers
from .slot_schedule import SlotSchedule
from .source_attention import alignment_heads_of, read_attention, with_attention
from .sources import SourceQueue, SourceRules
from .static_decoder import StaticDecoder
from .static_search import SearchStep
from .supported_models import SUPPORTED, is_supported, kind_of

if TYPE_CHECKING:
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    from vanilla_transformer.decoding.ensemble import DecodedModel


class Engine:
    """
    Translate or continue token ids by greedy search, beam search or sampling, with in-flight
    batching.

        >>> engine = Engine(model, num_beams=4)
        >>> engine.decode([[17, 4, 2], [8, 2]])
        [[Hypothesis(tokens=[5, 23, 2], score=-0.41, log_probability=-1.23,
        token_log_probabilities=[…])], …]

    In float32, each sentence has the tokens that `model.generate()` returns for it alone. The
    engine shares the model's weights of the same type, and must not be used while they change, nor
    afterwards.

    A `VanillaTransformerForCausalLM` continues prompts, which are its sources. As in its
    `generate()`, an EOS at the end of a prompt is not read, and hypotheses have the new tokens
    only.

    An engine is also the `custom_generate` of a call with the same options:

        >>> model.generate(**batch, num_beams=4, custom_generate=engine)

    Args:
        model: A model for which [`Engine.supports`] is true, or an [`Ensemble`] of such models.
        options: The options of the search, as [`TranslationOptions.resolve`] returns them; without
            them, `given` and the model's generation config.
        slots: Sentences that are decoded at once, at most. Steps of fewer slots decode the last
            ones of a call.
        precision: `"float32"`, `"bfloat16"` for processors that multiply it, `"int8"` by torchao
            (in the decoder, and fast only with compiled steps), or `"auto"`: bfloat16 on devices
            that multiply it, and float32 on others. By default the model's own.
        compile: `"auto"` uses compiled steps of the cache. Without them it decodes eagerly, and
            another process of low priority compiles them after three seconds of steps, on one or
            two cores once no engine decodes. `True` compiles steps that the cache lacks at once,
            and waits. `False` decodes eagerly. On a GPU, `"auto"` captures each size as a CUDA
            graph, and `True` compiles it before, and waits.
        constraint_tokens: Room for the tokens of [`DecodeRequest.phrases`].
        word_continuations: The tokens that must not follow phrases and prefixes of
            [`WholeWords`].
        features: Further features of the search.
        options_of_call: Options of the search by name, see [`TranslationOptions`].
            `return_alignments=True` returns the [`Hypothesis.attention`] of the heads that
            `config.alignment_heads` names, `target_prefix=""` lets requests have a prefix, and
            `draft=""` a draft. With `do_sample=True`, tokens are drawn, after filters that filter
            nothing by default, and `num_beams` is 1.

    Raises:
        ValueError: The model or an option is not supported, or there is no limit for the length.
        OSError: `precision` is `"int8"`, and torchao is not installed.
    """

    def __init__(
        self,
        model: "DecodedModel",
        options: TranslationOptions | None = None,
        *,
        slots: int = 64,
        precision: str | None = None,
        compile: bool | str = "auto",
        constraint_tokens: int = 0,
        word_continuations: WordContinuations = NO_CONTINUATIONS,
        features: tuple[SearchFeature, ...] = (),
        **options_of_call: Any,
    ):
        if type(slots) is not int or slots < 1:
            raise UserError(f"`slots` must be an integer of 1 or more, got {slots!r}.")
        if not is_supported(model):
            raise UserError(f"The model must be {SUPPORTED}, got {kind_of(model)}.")
        limit_onednn_cache()
        if options is None:
            if options_of_call.get("do_sample"):
                options_of_call = {"num_beams": 1} | options_of_call
            levels = [options_of_call, vars(model.generation_config), {"top_k": 0}]
            options = TranslationOptions.from_levels(levels)
        precision = resolve_precision(model, precision)
        self.decoded_model, self.slots = model, slots
        self.model = cast(model, precision)
        packed = packed_copy(self.model) if model.device.type == "cpu" else self.model
        self.options = search_options(
            model, options, constraint_tokens, word_continuations, features
        )
        self._rules = SourceRules(model, options, self.options)
        self.lock = threading.Lock()
        self._alignment_heads = alignment_heads_of(model) if options.return_alignments else []
        with torch.no_grad():
            first, *others = members_of(packed)
            decoders = [StaticDecoder(first, self._alignment_heads), *map(StaticDecoder, others)]
        decoders = [*map(round_to_int8, decoders)] if precision == INT8 else decoders
        step = SearchStep(decoders, self.options, weights_of(model)).to(model.device).eval()
        self._look_every = profile_of(model.device).steps_between_looks
        self._queue = SourceQueue(packed, self._rules, slots)
        # A search after a prompt skips the start token.
        start: Any = options.decoder_start_token_id if self._rules.has_encoder else 0
        self._schedule = SlotSchedule(self.model, slots, self.options, start, self._alignment_heads)
        self.steps = steps_for(step, compile, self.buffers)
        # For several tokens of a slot, by their number, made when they are needed
        self.wide_steps = dict[int, Any]()
        self._compile = compile
        is_wide = options.is_drafted and all(decoder.can_be_wide for decoder in decoders)
        self._widths = WIDTHS if is_wide else ()

    @property
    def buffers(self) -> SlotBuffers:
        """The tensors of the slots."""
        return self._schedule.buffers

    @staticmethod
    def supports(model: "DecodedModel") -> bool:
        """Tell whether the engine computes what the model's own decoder computes, on the model's
        device.
        """
        return is_supported(model) and model.device.type in ("cpu", "cuda")

    def decode(
        self,
        requests: Iterable[DecodeRequest | Sequence[int]],
        num_return_sequences: int = 1,
        seed: int | None = None,
        report: Callable[[int], object] = lambda done: None,
    ) -> list[list[Hypothesis]]:
        """
        Return the best hypotheses of each request, best first, or its samples.

        A sample depends on the source, its seed and the number of the sample, and on nothing else.
        Calls of other threads wait until this one ends.

        Args:
            requests: Requests, or the sources of requests.
            seed: An integer, from which each request without a seed gets one, which depends on its
                tokens and on how often they came before in this call. By default drawn from torch's
                generator.
            report: A function that takes the number of requests that were done since its last call.

        Raises:
            ValueError: A source is empty, too long, or has unknown token ids, a seed is not an
                integer, or phrases or a prefix are too long or have unknown token ids.
        """
        asked = []
        for request in requests:
            if not isinstance(request, DecodeRequest):
                request = DecodeRequest(request)
            asked.append(request)
        searches = self._searches(asked, num_return_sequences, seed)
        results: list[dict[int, list[Hypothesis]]] = [{} for _ in asked]
        by_length = sorted(
            searches, key=lambda samples: len(samples[0].request.source), reverse=True
        )
        device = self.model.device.type
        has_autocast = torch.amp.is_autocast_available(device)
        without_autocast = torch.autocast(device, enabled=False) if has_autocast else nullcontext()
        with self.lock, self.steps.decoding(), torch.inference_mode(), without_autocast:
            try:
                self._queue.extend(by_length)
                while self._queue or len(self._schedule):
                    for search, hypotheses in self._advance():
                        of_request = results[search.position]
                        of_request[search.number] = hypotheses
                        if len(of_request) == len(searches[search.position]):
                            report(1)
            finally:
                self._queue.clear()
                self._schedule.clear()
        rows = []
        for of_request in results:
            in_order = [of_request[number] for number in sorted(of_request)]
            rows.append(list(chain.from_iterable(in_order)))
        return rows

    def __call__(
        self,
        model: "DecodedModel",
        input_ids: Tensor,
        logits_processor: "LogitsProcessorList",
        stopping_criteria: "StoppingCriteriaList",
        generation_config: "GenerationConfig",
        **model_kwargs: Any,
    ) -> Tensor:
        """Decode a call of `model.generate()` whose `custom_generate` is this engine."""
        if model is not self.decoded_model:
            raise UserError(
                "`custom_generate` must be an engine of this model, got one of another model."
            )
        return generate_by_engine(
            self, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs
        )

    @torch.inference_mode()
    def compile_steps(self) -> None:
        """Compile the steps for any number of sentences of any length, unless the cache has
        them.
        """
        with self.lock:
            for steps in (self.steps, *map(self._steps_of, self._widths)):
                steps.find(self.buffers.arguments)

    def _steps_of(self, width: int) -> Any:
        """Return the steps that read so many tokens of a slot."""
        if width not in self.wide_steps:
            step: Any = self.steps.step
            self.wide_steps[width] = steps_for(step.widen(width), self._compile, self.buffers)
        return self.wide_steps[width]

    def _searches(
        self, requests: Sequence[DecodeRequest], count: int, seed: int | None
    ) -> list[list[Search]]:
        """Return the searches or samples of each request."""
        for position, request in enumerate(requests):
            self._rules.check(position, request)
        requests = [*map(self._rules.cut_draft, requests)]
        if self.options.sampling is None:
            is_seeded = any(request.seed is not None for request in requests)
            if seed is not None or is_seeded:
                reason = "greedy and beam search use no random numbers"
                raise UserError(f"`seed` needs `do_sample=True`: {reason}.")
            if not 1 <= count <= self.options.num_beams:
                numbers = f"{count} with {self.options.num_beams} beams"
                raise UserError(
                    f"`num_return_sequences` must be from 1 to `num_beams`, got {numbers}."
                )
            searches = []
            for position, request in enumerate(requests):
                searches.append([Search(request, position, hypotheses=count)])
            return searches
        if type(count) is not int or count < 1:
            raise UserError(
                f"`num_return_sequences` must be an integer of 1 or more, got {count!r}."
            )
        is_seeded = seed is None and all(request.seed is not None for request in requests)
        seeds = None if is_seeded else SentenceSeeds(seed)
        searches = []
        for position, request in enumerate(requests):
            has_seed = seeds is None or request.seed is not None
            chosen = check_seed(request.seed) if has_seed else seeds(repr([*request.source]))  # type: ignore[misc]
            samples = []
            for number in range(count):
                seed_of_sample = hash_seed(f"{chosen} {number}")
                samples.append(Search(request, position, number, seed_of_sample))
            searches.append(samples)
        return searches

    def _advance(self) -> Iterable[tuple[Search, list[Hypothesis]]]:
        """Run steps, while sentences enter free slots, until some are done, and return their
        hypotheses.
        """
        present, ended = min(len(self._schedule) + len(self._queue), self.slots), list[int]()
        with self.steps.sharing_cores(present * self.options.num_beams):
            while not ended:
                self._schedule.fill(self._queue, self._look_every)
                steps, count = self.steps, self._look_every
                width = self._schedule.choose_width(self._widths)
                if width > 1:
                    steps, count = self._steps_of(width), 1
                    self._schedule.fill(self._queue, width)
                steps.run(count, *self.buffers.arguments)
                self._schedule.steps_run += count * width
                state = self.buffers.state
                drafts = find_drafts(self.options.features, state.features)
                draft_places = [] if drafts is None else [state.time, drafts.remaining()]
                look = HostCopy(state.done, *draft_places)
                if self._look_every > 1:
                    self._queue.read_ahead()  # which launches operations while the steps run
                done, *places = look.wait()
                if places:
                    self._schedule.update(*places)
                ended = [slot for slot in self._schedule.occupied() if done[slot]]
        slots, entries = to_device(ended, self.model.device), self._schedule.occupied()
        searches = [entries[slot].search for slot in ended]
        count = searches[0].hypotheses
        hypotheses = read_hypotheses(self.buffers.state, slots, count, self.options)
        if any(isinstance(feature, PhraseConstraints) for feature in self.options.features):
            for n_best in hypotheses:
                check_complete(n_best)
        if self._alignment_heads:
            state, memory = self.buffers.arguments
            rows = read_attention(self.model, self._alignment_heads, state, memory[0], slots, count)
            hypotheses = [
                *map(with_attention, hypotheses, rows, (entries[slot].length for slot in ended))
            ]
        self._schedule.free(ended)
        return zip(searches, hypotheses, strict=True)
