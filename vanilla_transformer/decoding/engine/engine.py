"""
The decoding engine: sentences enter free slots while others are decoded, and leave when they are done.

So a mixed stream needs no sorting, and no step computes padding for sentences that have ended.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from vanilla_transformer.decoding.ensemble import members_of, weights_of
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.weight_packing import packed_copy
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.device_utils import HostCopy, limit_onednn_cache, to_device

from .device_profile import profile_of
from .graphed_steps import steps_for
from .known_features import features_of, kept_heads
from .phrase_constraints import NO_CONTINUATIONS, PhraseConstraints, Phrases, WordContinuations, check_complete
from .precision import INT8, cast, resolve_precision, round_to_int8, warn_if_emulated
from .prefill import Prefilled, encode_batch, prefill, read_states
from .requests import Answers, Samples, SearchRequest, Seeds
from .search_options import SearchFeature, search_options
from .search_state import Hypothesis, read_hypotheses
from .slot_buffers import SlotBuffers
from .slot_schedule import SlotSchedule
from .source_attention import alignment_heads_of, read_attention, with_attention
from .sources import SourceQueue, SourceRules
from .static_decoder import StaticDecoder
from .static_search import SearchStep
from .supported_models import SUPPORTED, is_supported, kind_of


class Engine:
    """
    Translate or continue token ids by greedy search, beam search or sampling, with in-flight batching.

        >>> engine = Engine(model, num_beams=4)
        >>> engine.translate_tokens([[17, 4, 2], [8, 2]])
        [[Hypothesis(tokens=[5, 23, 2], score=-0.41, log_probability=-1.23, token_log_probabilities=[…])], …]

    In float32, each sentence has the tokens that `model.generate()` returns for it alone. The engine shares the
    model's weights of the same type, and must not be used while they change.

    A `VanillaTransformerForCausalLM` continues prompts, which are its sources; `generate_tokens` and
    `generate_stream` are other names of the same methods. As in its `generate()`, an EOS at the end of a prompt is not
    read, and hypotheses have the new tokens only.

    Args:
        model: A model for which [`Engine.supports`] is true, or an [`Ensemble`] of such models.
        slots: Sentences that are decoded at once, at most. Steps of fewer slots decode the last ones of a stream.
        num_beams: 1 for greedy search; by default as in the model's generation config.
        precision: `"float32"`, `"bfloat16"` for processors that multiply it, `"int8"` by torchao (in the decoder, and
            fast only with compiled steps), or `"auto"`: the one that `compile --precision auto` chose by measurement,
            or else bfloat16 on devices that multiply it, and float32 on others.
        compile: `"auto"` uses compiled steps of the cache. Without them it decodes eagerly, and another process of
            low priority compiles them after three seconds of steps. `True` compiles steps that the cache lacks at
            once, and waits. `False` decodes eagerly. On a GPU, `"auto"` captures each size as a CUDA
            graph, and `True` compiles it before, and waits.
        options: The options of the search, as [`TranslationOptions.resolve`] returns them; without them, `given` and
            the model's generation config.
        constraint_tokens: Room for the tokens of the phrases that a target must contain; see [`translate_stream`].
        word_continuations: The tokens that must not follow phrases of [`WholeWords`].
        features: Further features of the search.
        given: Options of the search by name: `alignments=True` returns the [`Hypothesis.attention`] of the heads that
            `config.alignment_heads` names, `prefixed=True` lets targets have prefixes, see [`translate_stream`], and
            others are of a generation config: `length_penalty`, `length_penalty_type`, `early_stopping`,
            `max_new_tokens`, `max_new_tokens_beyond_source`, `max_length`, `min_new_tokens`. With `do_sample=True`,
            tokens are drawn, after `temperature`, `top_k`, `top_p` and `epsilon_cutoff`, which filter nothing
            by default, and `num_beams` is 1. `num_beam_groups` and `diversity_penalty` search in groups of beams,
            `coverage_penalty` asks for attention to every source token, `prefix_bias` prefers prefixes instead of
            forcing them, `forced_bos_token_id` begins every target, and `no_repeat_ngram_size` forbids repeated
            n-grams; see `docs/translate.md`.

    Raises:
        ValueError: The model or an option is not supported, or there is no limit for the length.
        OSError: `precision` is `"int8"`, and torchao is not installed.
    """

    def __init__(
        self,
        model: Any,
        slots: int = 64,
        num_beams: int | None = None,
        precision: str = "float32",
        compile: bool | str = "auto",
        options: TranslationOptions | None = None,
        constraint_tokens: int = 0,
        word_continuations: WordContinuations = NO_CONTINUATIONS,
        features: tuple[SearchFeature, ...] = (),
        **given: Any,
    ):
        if type(slots) is not int or slots < 1:
            raise UserError(f"`slots` must be an integer of 1 or more, got {slots!r}.")
        if not is_supported(model):
            raise UserError(f"The model must be {SUPPORTED}, got {kind_of(model)}.")
        limit_onednn_cache()
        if options is None:
            options = _resolve(model, given | {"num_beams": num_beams})
        precision = resolve_precision(model, precision)
        warn_if_emulated(precision, model.device)
        self.model, self.slots = cast(model, precision), slots
        packed = packed_copy(self.model) if model.device.type == "cpu" else self.model
        self._prefixed = options.is_prefixed
        own = features_of(model, options, constraint_tokens, word_continuations)
        self.options = search_options(options, (*own, *features))
        self._rules = SourceRules(model, options, self.options)
        self.lock = threading.Lock()
        self._reader: int | None = None  # the thread that reads a stream
        self._alignment_heads = alignment_heads_of(model) if options.return_alignments else []
        kept = self._alignment_heads or kept_heads(self.options.features)
        with torch.no_grad():
            first, *others = members_of(packed)
            decoders = [StaticDecoder(first, kept), *map(StaticDecoder, others)]
        decoders = [*map(round_to_int8, decoders)] if precision == INT8 else decoders
        step = SearchStep(decoders, self.options, weights_of(model)).to(model.device).eval()
        self._look_every = profile_of(model.device).steps_between_looks
        self._queue, self._reader_model = SourceQueue(packed, self._rules, slots), packed
        start: Any = options.decoder_start_token_id if self._rules.has_encoder else 0  # which one after a prompt skips
        self._schedule = SlotSchedule(self.model, slots, self.options, start, kept)
        self.steps = steps_for(step, compile, self.buffers)

    @property
    def buffers(self) -> SlotBuffers:
        """The tensors of the slots."""
        return self._schedule.buffers

    @staticmethod
    def supports(model: Any) -> bool:
        """Tell whether the engine computes what the model's own decoder computes, on the model's device."""
        return is_supported(model) and model.device.type in ("cpu", "cuda")

    def translate_tokens(
        self,
        sources: Sequence[Sequence[int]],
        num_return_sequences: int = 1,
        seed: Seeds = None,
        phrases: Sequence[Phrases] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        report: Callable[[int], object] = lambda done: None,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, best first, or its samples; sources of translations end in EOS.

        Args:
            seed, phrases, prefixes: See [`translate_stream`].
            report: A function that takes the number of sources that were done since its last call.
        """
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
        ordered = self.translate_stream(
            (sources[index] for index in by_length),
            num_return_sequences,
            seed if seed is None or isinstance(seed, int | str) else _in_order("seed", seed, by_length),
            None if phrases is None else _in_order("list of phrases", phrases, by_length),
            None if prefixes is None else _in_order("prefix", prefixes, by_length),
        )
        results = dict[int, list[Hypothesis]]()
        for position, hypotheses in ordered:
            results[by_length[position]] = hypotheses
            report(1)
        return [results[index] for index in range(len(sources))]

    def translate_stream(
        self,
        sources: Iterable[Sequence[int]],
        num_return_sequences: int = 1,
        seed: Seeds = None,
        phrases: Iterable[Phrases] | None = None,
        prefixes: Iterable[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield each source's position in the stream and its best hypotheses, in the order in which they finish.

        Reads ahead as many sources as there are slots. Streams of other threads wait until this one ends.

        An engine that samples yields `num_return_sequences` samples, in the order in which they are numbered. A sample
        depends on the source, its seed and the number of the sample, and on nothing else.

        Args:
            seed: An integer, from which each source gets another seed, which depends on its tokens and on how often
                they came before in this stream. Or the seed of each source. By default drawn from torch's generator.
            phrases: Token ids of each phrase that every hypothesis must contain, for each source. An engine with
                `constraint_tokens` searches for them.
            prefixes: Token ids with which every hypothesis begins, for each source of an engine that is `prefixed`.

        Raises:
            ValueError: A source is empty, too long, or has unknown token ids, a seed is not an integer, or
                phrases or a prefix are too long or have unknown token ids.
            RuntimeError: This thread has not finished its last stream.
        """
        output = self._output(num_return_sequences, seed)
        if prefixes is not None and not self._prefixed:
            raise UserError("`prefixes` need an engine that is `prefixed`.")
        with self._reading():
            every_phrases: Iterator[Any] = repeat(()) if phrases is None else iter(phrases)
            every_prefix: Iterator[Any] = repeat(()) if prefixes is None else iter(prefixes)
            for position, source in enumerate(sources):
                wanted, prefix = next(every_phrases, None), next(every_prefix, None)
                if wanted is None or prefix is None:
                    raise UserError(f"There must be phrases and a prefix for each source, got none for {position}.")
                self._rules.check(position, source)
                self._rules.check_target(position, source, prefix, wanted)
                requests = output.request(position, source)
                self._queue.add([each._replace(phrases=wanted, prefix=prefix) for each in requests], source)
                while len(self._queue) >= self.slots:
                    yield from output.gather(self._advance(output.beams))
            yield from self._finish(output)

    @torch.no_grad()
    def encode(self, sources: Sequence[Sequence[int]], lengths: Sequence[int]) -> Tensor:
        """Return the encoder's outputs `(B, S, D)` of sources, of which attention may see so many tokens each."""
        return encode_batch(self._reader_model, sources, lengths)

    @torch.inference_mode()
    def translate_encoded(
        self, states: Tensor, lengths: Sequence[int], limits: Sequence[int], num_return_sequences: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of sources that the model's encoder has read.

        Args:
            states: The encoder's outputs, `(B, S, D)`.
            lengths: Positions that attention may see of each source, from the first one.
            limits: Tokens that the translation of each source may have.
        """
        return self._search(read_states(self._reader_model, states, lengths), lengths, limits, num_return_sequences)

    @torch.inference_mode()
    def continue_prompts(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], num_return_sequences: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of prompts, each with at most so many new tokens, given its limit.

        Differs from [`translate_tokens`]: an EOS at the end of a prompt is read, and prompts with padding that the
        model reads must have equal lengths.
        """
        lengths = [len(prompt) for prompt in prompts]
        return self._search(prefill(self._reader_model, prompts, lengths), lengths, limits, num_return_sequences)

    def _search(
        self, batch: Prefilled, lengths: Sequence[int], limits: Sequence[int], count: int
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of all sources or prompts of a batch that the model has read."""
        output = self._output(count)
        requests = [output.request(position, []) for position in range(len(lengths))]
        with self._reading():
            self._queue.add_batch(batch, [*zip(requests, lengths, limits, strict=True)])
            results = dict(self._finish(output))
        return [results[index] for index in range(len(lengths))]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Lend the engine to one stream; clear the sentences of a stream that is not read to its end."""
        if self._reader == threading.get_ident():  # it would wait for itself
            raise RuntimeError("The engine decodes one stream at a time. Finish or close the stream that is open.")
        with self.lock:
            self._reader = threading.get_ident()
            try:
                yield
            finally:
                self._reader = None
                self._queue.clear()
                with torch.inference_mode():
                    self._schedule.clear()

    generate_tokens, generate_stream = translate_tokens, translate_stream

    def _output(self, count: int, seed: Seeds = None) -> Answers | Samples:
        """Return the requests of a stream: searches or samples."""
        if self.options.sampling is not None:
            return Samples(count, seed)
        if seed is not None:
            raise UserError("`seed` needs `do_sample=True`: greedy and beam search use no random numbers.")
        if not 1 <= count <= self.options.num_beams:
            found = f"{count} with {self.options.num_beams} beams"
            raise UserError(f"`num_return_sequences` must be from 1 to `num_beams`, got {found}.")
        return Answers(count)

    def _finish(self, output: Answers | Samples) -> Iterator[tuple[int, list[Hypothesis]]]:
        while self._queue or len(self._schedule):
            yield from output.gather(self._advance(output.beams, until_done=True))

    @torch.inference_mode()
    def compile_steps(self) -> None:
        """Compile the steps for any number of sentences of any length, unless the cache has them."""
        with self.lock:
            self.steps.find(self.buffers.arguments)

    @torch.inference_mode()
    def _advance(self, count: int, until_done: bool = False) -> Iterable[tuple[SearchRequest, list[Hypothesis]]]:
        """Fill free slots, run the steps until the next look, and return the sentences that are done.

        Args:
            until_done: Whether to continue until there is one.
        """
        present = len(self._schedule) + self._queue.requests
        with self.steps.sharing_cores(present * self.options.num_beams):
            ended = self._look()
            while until_done and not ended:
                ended = self._look()
        return self._take(ended, count) if ended else []

    def _look(self) -> list[int]:
        """Fill free slots, run the steps until the next look, and return the slots whose sentences are done."""
        self._schedule.fill(self._queue, self._look_every)
        self.steps.run(self._look_every, *self.buffers.arguments)
        self._schedule.steps_run += self._look_every
        look = HostCopy(self.buffers.state.done)
        if self._look_every > 1:
            self._queue.read_ahead()  # which launches operations while the steps run
        (done,) = look.wait()
        return [slot for slot in self._schedule.occupied() if done[slot]]

    def _take(self, done: list[int], count: int) -> list[tuple[SearchRequest, list[Hypothesis]]]:
        """Return the requests and hypotheses of slots that are done, and free these slots."""
        slots = to_device(done, self.model.device)
        hypotheses = read_hypotheses(self.buffers.state, slots, count, self.options)
        if any(isinstance(feature, PhraseConstraints) for feature in self.options.features):
            for each in hypotheses:
                check_complete(each)
        entries = self._schedule.occupied()
        if self._alignment_heads:
            state, memory = self.buffers.arguments
            rows = read_attention(self.model, self._alignment_heads, state, memory[0], slots, count)
            lengths = [entries[slot].length for slot in done]
            hypotheses = [*map(with_attention, hypotheses, rows, lengths)]
        requests = [entries[slot].request for slot in done]
        self._schedule.free(done)
        return list(zip(requests, hypotheses, strict=True))


def _resolve(model: Any, given: Mapping[str, Any]) -> TranslationOptions:
    """Return the options of an engine by name. By default sampling has one beam and filters nothing."""
    call = {name: value for name, value in given.items() if name not in ("alignments", "prefixed")}
    call |= {"return_alignments": given.get("alignments"), "target_prefix": "" if given.get("prefixed") else None}
    if call["num_beams"] is None and call.get("do_sample"):
        call["num_beams"] = 1
    return TranslationOptions.from_levels([call, vars(model.generation_config), {"top_k": 0}])


def _in_order(name: str, values: Iterable[Any], order: Sequence[int]) -> list[Any]:
    """Return the value of each source in another order."""
    values = list(values)
    if len(values) != len(order):
        raise UserError(f"There must be a {name} for each of {len(order)} sources, got {len(values)}.")
    return [values[index] for index in order]
