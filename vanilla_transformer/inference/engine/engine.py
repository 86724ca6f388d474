"""
The decoding engine: sentences enter free slots while others are decoded, and leave when they are done.

So a mixed stream needs no sorting, and no step computes padding for sentences that have ended.
"""

import copy
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from vanilla_transformer.generation_vanilla_transformer import check_parameters, closest_margin
from vanilla_transformer.inference.search.fast_search import is_unchanged
from vanilla_transformer.inference.search.sampling import SamplingOptions
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM

from .alignment_heads import alignment_heads_of, read_attention, with_attention
from .device_copies import HostCopy, to_device
from .graphed_steps import steps_for
from .hypothesis import Hypothesis, read_hypotheses
from .precision import INT8, cast, resolve_precision, round_to_int8
from .prefill import Prefilled, places_by_batch, prefill, read_states, reads_padding
from .samples import Answers, Request, Samples, Seeds
from .slot_buffers import SlotBuffers, SlotSize
from .static_decoder import StaticDecoder, has_static_form, joined_linears
from .static_search import SearchOptions, SearchStep

_LEAST_ROOM = 16  # positions of source or target for which a slot has memory at first
_FEW_SLOTS = {1: 1, 8: 16}  # and sentences up to which they are used: two rounds of 8 slots take less than one of many
_PATIENCE = 1024  # steps that a long sentence may be set aside while others enter
_STEPS_BETWEEN_LOOKS = 8  # of the host at `done`, which another device computes; on a CPU a look costs nothing


SUPPORTED = "an unchanged translation model or causal language model of this package"


class _PrefilledSource(NamedTuple):
    """
    A source that the model has read: its request, its length, its row in a batch, and what the batch leaves in slots.

    `limit` is the number of tokens that may be generated.
    """

    request: Request
    length: int
    limit: int
    row: int
    batch: Prefilled


class _Entry(NamedTuple):
    """
    A sentence in a slot: its request, the length of its source, and the steps that had been run when it entered.

    `stays` is True if it was set aside before.
    """

    request: Request
    length: int
    entered: int
    stays: bool = False


class _Aside(NamedTuple):
    """A long sentence that waits for a slot: its entry, what its slot held, and the steps that had been run."""

    entry: _Entry
    rows: list[Tensor]
    since: int


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
        model: A model for which [`Engine.supports`] is true.
        slots: Sentences that are decoded at once, at most. Steps of fewer slots decode the last ones of a stream.
        num_beams: 1 for greedy search; by default as in the model's generation config.
        precision: `"float32"`, `"bfloat16"` for processors that multiply it, `"int8"` by torchao (in the decoder, and
            fast only with compiled steps), or `"auto"` for the one that `compile --precision auto` chose by
            measurement.
        compile: `"auto"` uses the compiled steps of the cache and decodes other sizes eagerly; it compiles a size in
            the background, with low priority, once that has taken 20 seconds. `True` compiles a size that the
            cache lacks at once, and waits. `False` decodes eagerly. On a GPU, `"auto"` captures each size as a CUDA
            graph, and `True` compiles it before, and waits.
        alignments: Return the [`Hypothesis.attention`] of the heads that `config.alignment_heads` names.
        options: Further options of the generation config: `length_penalty`, `length_penalty_type`, `early_stopping`,
            `max_new_tokens`, `max_new_tokens_beyond_source`, `max_length`, `min_new_tokens`. With `do_sample=True`,
            tokens are drawn, after `temperature`, `top_k`, `top_p` and `epsilon_cutoff`, which filter nothing
            by default, and `num_beams` is 1.

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
        alignments: bool = False,
        **options: Any,
    ):
        if type(slots) is not int or slots < 1:
            raise ValueError(f"`slots` must be an integer of 1 or more, got {slots!r}.")
        if not _is_known(model):
            raise ValueError(f"The model must be {SUPPORTED}, got {kind_of(model)}.")
        config = copy.deepcopy(model.generation_config)
        if num_beams is None and options.get("do_sample"):
            num_beams = 1
        config.update(allow_custom_entries=True, **options | ({} if num_beams is None else {"num_beams": num_beams}))
        precision = resolve_precision(model, precision)
        self.model, self.config, self.slots = cast(model, precision), config, slots
        self.options = search_options(config)
        self._margin = closest_margin([options, vars(model.generation_config)])
        check_parameters(self.options.length_penalty_type, self._margin, config.num_beams)
        self._has_encoder = model.config.is_encoder_decoder
        if self._margin is not None and not self._has_encoder:
            raise ValueError("`max_new_tokens_beyond_source` needs a model with an encoder. Give `max_new_tokens`.")
        if self._margin is None and config.max_new_tokens is None and config.max_length is None:
            limits = "`max_new_tokens`, `max_new_tokens_beyond_source` or `max_length`"
            raise ValueError(f"One of {limits} must limit the number of new tokens. Give one of them.")
        self.lock = threading.Lock()
        self._reader: int | None = None  # the thread that reads a stream
        self._alignment_heads = alignment_heads_of(model) if alignments else []
        with torch.no_grad():
            decoder = StaticDecoder(self.model, self._alignment_heads)
        decoder = round_to_int8(decoder) if precision == INT8 else decoder
        step = SearchStep(decoder, self.options).to(model.device).eval()
        self._look_every = 1 if model.device.type == "cpu" else _STEPS_BETWEEN_LOOKS
        self._waiting: deque[tuple[list[Request], Sequence[int]]] = deque()
        self._prefilled: deque[_PrefilledSource] = deque()
        self.slot_sizes = [*(few for few in _FEW_SLOTS if few < slots), slots]
        first = SlotSize(self.slot_sizes[0], _LEAST_ROOM)
        self.buffers = SlotBuffers(self.model, self.options.num_beams, first, self._alignment_heads)
        self.steps = steps_for(step, compile, self.buffers.room_dimensions())
        self._entries: list[_Entry | None] = [None] * first.slots  # the sentence in each slot
        self._aside: deque[_Aside] = deque()
        self._aside_returns = False
        self._steps_run = 0

    @staticmethod
    def supports(model: Any) -> bool:
        """Tell whether the engine computes what the model's own decoder computes, on the model's device."""
        return _is_known(model) and model.device.type in ("cpu", "cuda")

    def translate_tokens(
        self, sources: Sequence[Sequence[int]], num_return_sequences: int = 1, seed: Seeds = None
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source, best first, or its samples; sources of translations end in EOS.

        Args:
            seed: See [`translate_stream`].
        """
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
        if seed is not None and not isinstance(seed, int | str):
            seeds = list(seed)
            if len(seeds) != len(sources):
                raise ValueError(f"There must be a seed for each of {len(sources)} sources, got {len(seeds)}.")
            seed = [seeds[index] for index in by_length]
        ordered = self.translate_stream((sources[index] for index in by_length), num_return_sequences, seed)
        results = {by_length[position]: hypotheses for position, hypotheses in ordered}
        return [results[index] for index in range(len(sources))]

    def translate_stream(
        self, sources: Iterable[Sequence[int]], num_return_sequences: int = 1, seed: Seeds = None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield each source's position in the stream and its best hypotheses, in the order in which they finish.

        Reads ahead as many sources as there are slots. Streams of other threads wait until this one ends.

        An engine that samples yields `num_return_sequences` samples, in the order in which they are numbered. A sample
        depends on the source, its seed and the number of the sample, and on nothing else.

        Args:
            seed: An integer, from which each source gets another seed, which depends on its tokens and on how often
                they came before in this stream. Or the seed of each source. By default drawn from torch's generator.

        Raises:
            ValueError: A source is empty, too long, or has unknown token ids, or a seed is not an integer.
            RuntimeError: This thread has not finished its last stream.
        """
        output = self._output(num_return_sequences, seed)
        with self._reading():
            for position, source in enumerate(sources):
                self._waiting.append((output.request(position, source), self._checked(position, source)))
                while len(self._waiting) + len(self._prefilled) >= self.slots:
                    yield from output.gather(self._advance(output.beams))
            yield from self._finish(output)

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
        return self._search(read_states(self.model, states, lengths), lengths, limits, num_return_sequences)

    @torch.inference_mode()
    def continue_prompts(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], num_return_sequences: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of prompts, each with at most so many new tokens, given its limit.

        Differs from [`translate_tokens`]: an EOS at the end of a prompt is read, and prompts with padding that the
        model reads must have equal lengths.
        """
        lengths = [len(prompt) for prompt in prompts]
        return self._search(prefill(self.model, prompts, lengths), lengths, limits, num_return_sequences)

    def _search(
        self, batch: Prefilled, lengths: Sequence[int], limits: Sequence[int], count: int
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of all sources or prompts of a batch that the model has read."""
        output = self._output(count)
        requests = [output.request(position, []) for position in range(len(lengths))]
        with self._reading():
            self._queue(batch, [*zip(requests, lengths, limits, strict=True)])
            results = dict(self._finish(output))
        return [results[index] for index in range(len(lengths))]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Lend the engine to one stream; clear the sentences of a stream that is not read to its end.

        Raises:
            RuntimeError: This thread has not finished its last stream.
        """
        if self._reader == threading.get_ident():  # it would wait for itself
            raise RuntimeError("The engine decodes one stream at a time. Finish or close the stream that is open.")
        with self.lock:
            self._reader = threading.get_ident()
            try:
                yield
            finally:
                self._reader = None
                self._clear()

    generate_tokens, generate_stream = translate_tokens, translate_stream

    def _output(self, count: int, seed: Seeds = None) -> Answers | Samples:
        """Return the requests of a stream: searches or samples.

        Raises:
            ValueError: The count or a seed is out of range.
        """
        if self.options.sampling is not None:
            return Samples(count, seed)
        if seed is not None:
            raise ValueError("`seed` needs `do_sample=True`: greedy and beam search use no random numbers.")
        if not 1 <= count <= self.options.num_beams:
            found = f"{count} with {self.options.num_beams} beams"
            raise ValueError(f"`num_return_sequences` must be from 1 to `num_beams`, got {found}.")
        return Answers(count)

    def _finish(self, output: Answers | Samples) -> Iterator[tuple[int, list[Hypothesis]]]:
        while self._present():
            yield from output.gather(self._advance(output.beams))

    @torch.inference_mode()
    def compile_steps(self, slots: Sequence[int] | None = None) -> Iterator[int]:
        """Compile the steps for sentences of any length. Yield each number of slots once it is ready.

        Args:
            slots: Numbers of slots to compile; by default all that the engine uses.
        """
        for number in self.slot_sizes if slots is None else slots:
            with self.lock:
                self._resize(SlotSize(number, self.buffers.size.room))
                self.steps.find(self.buffers.arguments)
            yield number

    @torch.inference_mode()
    def _advance(self, count: int) -> Iterable[tuple[Request, list[Hypothesis]]]:
        """Fill free slots, run the steps until the next look, and return the sentences that are done."""
        present = self._present()
        slots = next((few for few, most in _FEW_SLOTS.items() if present <= most and few < self.slots), self.slots)
        self._set_aside([*self._occupied()][slots:])
        self._resize(SlotSize(slots, self.buffers.size.room))
        self._fill_slots()
        while self._set_long_ones_aside():
            self._fill_slots()
        self._resize(SlotSize(slots, max(self._rooms().values())))
        self.steps.run(self._look_every, *self.buffers.arguments)
        self._steps_run += self._look_every
        look = HostCopy(self.buffers.state.done)
        if self._look_every > 1 and self._waiting and not self._prefilled:
            self._prefill_waiting()  # which launches operations while the steps run
        (done,) = look.wait()
        ended = [slot for slot in self._occupied() if done[slot]]
        return self._take(ended, count) if ended else []

    def _present(self) -> int:
        """Return the number of sentences, or of samples, in the engine."""
        waiting = sum(len(requests) for requests, _ in self._waiting)
        return waiting + len(self._prefilled) + len(self._aside) + len(self._occupied())

    def _occupied(self) -> dict[int, _Entry]:
        return {slot: entry for slot, entry in enumerate(self._entries) if entry is not None}

    def _rooms(self) -> dict[int, int]:
        """Return the room that each sentence needs until the next look, for each slot in use."""
        end = self._steps_run + self._look_every
        return {slot: _room_for(max(each.length, end - each.entered)) for slot, each in self._occupied().items()}

    def _set_long_ones_aside(self) -> bool:
        """
        Free the slots of the few sentences that need more room than the others, if new ones can enter instead.

        All slots compute attention over the same room. The long ones return together. Return whether there were any.
        """
        if self._aside_returns or not (self._waiting or self._prefilled):
            return False
        rooms = self._rooms()
        usual = sorted(rooms.values())[len(rooms) * 3 // 4]
        long = [slot for slot, each in self._occupied().items() if rooms[slot] > 2 * usual and not each.stays]
        self._set_aside(long)
        return bool(long)

    def _set_aside(self, slots: list[int]) -> None:
        """Keep the sentences of some slots for later, and free the slots."""
        entries = self._occupied()
        for slot in slots:
            self._aside.append(_Aside(entries[slot], self.buffers.copy_rows(slot), self._steps_run))
        self._free(slots)

    def _take(self, done: list[int], count: int) -> list[tuple[Request, list[Hypothesis]]]:
        """Return the requests and hypotheses of slots that are done, and free these slots."""
        slots = to_device(done, self.model.device)
        hypotheses = read_hypotheses(self.buffers.state, slots, count, self.options)
        entries = self._occupied()
        if self._alignment_heads:
            rows = read_attention(self.model, self._alignment_heads, *self.buffers.arguments, slots, count)
            lengths = [entries[slot].length for slot in done]
            hypotheses = [*map(with_attention, hypotheses, rows, lengths)]
        requests = [entries[slot].request for slot in done]
        self._free(done)
        return list(zip(requests, hypotheses, strict=True))

    def _fill_slots(self) -> None:
        """Let sentences enter free slots, once enough slots are free to pay for it."""
        free = [slot for slot, entry in enumerate(self._entries) if entry is None]
        self._return_long_ones(free)
        while len(free) >= max(1, len(self._entries) // 16) and (self._waiting or self._prefilled):
            if not self._prefilled:
                self._prefill_waiting()
            together = [each for each in self._prefilled if each.batch is self._prefilled[0].batch][: len(free)]
            self._enter(free[: len(together)], [self._prefilled.popleft() for _ in together])
            del free[: len(together)]

    def _return_long_ones(self, free: list[int]) -> None:
        """Let sentences that were set aside return to free slots, which are removed from the list, if it is time."""
        if not self._aside:
            self._aside_returns = False
            return
        many = len(self._aside) >= self.slots
        late = self._steps_run - self._aside[0].since > _PATIENCE
        self._aside_returns = self._aside_returns or many or late or not (self._waiting or self._prefilled)
        while self._aside_returns and self._aside and free:
            entry, rows, since = self._aside.popleft()
            entered = entry.entered + self._steps_run - since
            self._entries[free[0]] = entry._replace(entered=entered, stays=True)
            self._resize(SlotSize(len(self._entries), max(self._rooms().values())))
            self.buffers.restore_rows(free.pop(0), rows)

    def _checked(self, position: int, source: Sequence[int]) -> Sequence[int]:
        """Return a source, or raise an error if the model cannot read it."""
        config, entries = self.model.config, self.model.config.vocab_size
        name = "source" if self._has_encoder else "prompt"
        wrong = [token for token in source if not 0 <= token < entries]
        if wrong:
            raise ValueError(f"Token ids must be from 0 to {entries - 1}, got {wrong[0]} in {name} {position}.")
        longest, reason = len(source), ""
        if config.position_embedding_type == "learned":
            longest, reason = config.max_position_embeddings, ", as many as learned positions"
        if not self._has_encoder and self.config.max_new_tokens is None and self.config.max_length <= longest:
            longest, reason = self.config.max_length - 1, " before `max_length`"
        length = len(source if self._has_encoder else self._seen(source))
        if not 1 <= length <= max(1, longest):
            rule = "at least 1 token" if not source else f"at most {longest} tokens{reason}"
            raise ValueError(f"A {name} must have {rule}, got {length} in {name} {position}.")
        return source

    def _seen(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that attention may see."""
        if not self._has_encoder:
            return list(source[:-1] if len(source) > 1 and source[-1] in self.options.eos_token_ids else source)
        config = self.model.config
        if config.source_eos:
            return list(source)
        eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        return [token for token in source if token not in eos]

    def _prefill_waiting(self) -> None:
        """Let the model read sources or prompts."""
        sentences = [self._waiting.popleft() for _ in range(min(self.slots, len(self._waiting)))]
        seen = [self._seen(source) for _, source in sentences]
        read = [tokens or source[:1] for tokens, (_, source) in zip(seen, sentences, strict=True)]
        for places in places_by_batch(self.model, [len(tokens) for tokens in read]):
            batch = prefill(self.model, [read[place] for place in places], [len(seen[place]) for place in places])
            each = [(sentences[place][0], len(read[place]), self._limit(len(seen[place]))) for place in places]
            self._queue(batch, each)

    def _queue(self, batch: Prefilled, sources: Sequence[tuple[list[Request], int, int]]) -> None:
        """Queue the sources of a batch, given the requests, the length and the limit of each."""
        for row, (requests, length, limit) in enumerate(sources):
            self._prefilled.extend(_PrefilledSource(request, length, limit, row, batch) for request in requests)

    def _enter(self, slots: list[int], sources: list[_PrefilledSource]) -> None:
        """Start the search of sources of one batch in the given slots."""
        lengths, device = [source.length for source in sources], self.model.device
        size = self.buffers.size
        self._resize(SlotSize(size.slots, max(size.room, _room_for(max(lengths)))))
        columns = slots, [source.row for source in sources], lengths, [source.limit for source in sources]
        index, rows, sizes, limits = (to_device(column, device) for column in columns)
        seeds = to_device([source.request.seed for source in sources], device)
        self.buffers.enter(index, sources[0].batch, rows, sizes)
        start = self.config.decoder_start_token_id if self._has_encoder else 0  # which a decoder after a prompt skips
        self.buffers.state.start(index, limits, seeds, start)
        for slot, source in zip(slots, sources, strict=True):
            self._entries[slot] = _Entry(source.request, source.length, self._steps_run)

    def _limit(self, source_length: int) -> int:
        """Return how many tokens may be generated for a source."""
        config, prompt_length = self.config, 1 if self._has_encoder else source_length
        if self._margin is not None:
            limit = source_length + self._margin
        elif config.max_new_tokens is not None:
            limit = config.max_new_tokens
        else:
            limit = config.max_length - prompt_length
        if self.model.config.position_embedding_type == "learned":
            longest = self.model.config.max_position_embeddings  # the last token of a text has no position
            limit = min(limit, longest - 1 if self._has_encoder else longest + 1 - prompt_length)
        return max(1, limit)

    def _resize(self, size: SlotSize) -> None:
        """Change the numbers of slots and of positions. With fewer slots, those in use become the first ones."""
        if size == self.buffers.size:
            return
        kept = [*self._occupied()] if size.slots < len(self._entries) else [*range(len(self._entries))]
        self.buffers.resize(size, kept)
        self._entries = [self._entries[slot] for slot in kept] + [None] * (size.slots - len(kept))

    def _free(self, slots: list[int]) -> None:
        if slots:
            self.buffers.free(to_device(slots, self.model.device))
        for slot in slots:
            self._entries[slot] = None

    def _clear(self) -> None:
        self._waiting.clear()
        self._prefilled.clear()
        self._aside.clear()
        with torch.inference_mode():
            self._free([*self._occupied()])


def _is_known(model: Any) -> bool:
    """Tell whether there is a step that computes the same as a model's own decoder."""
    return (
        isinstance(model, VanillaTransformerForConditionalGeneration | VanillaTransformerForCausalLM)
        and has_static_form(model.get_decoder())
        and is_unchanged(model)
        and (getattr(model.config, "source_eos", True) or not reads_padding(model))  # EOS would be padding
        and all(map(_can_join, joined_linears(model.get_decoder())))
    )


def _can_join(linear: Any) -> bool:
    """Tell whether a layer is only a product: no adapter and no other type of weight."""
    return type(linear) is nn.Linear and type(linear.weight) is nn.Parameter


def kind_of(model: Any) -> str:
    """Name a model in an error: its class, and what the engine does not support if that can be seen."""
    if not isinstance(model, nn.Module):
        return type(model).__name__
    config = getattr(model, "config", None)
    layer_type, details = (getattr(config, "layer_types", None) or [""])[0], []
    if layer_type == "transfo_xl_attention":
        details.append("with `transfo_xl_attention`")
    if layer_type == "lsh_attention" and not getattr(config, "source_eos", True):
        details.append("with `lsh_attention` and `source_eos=False`")
    if model.training:
        details.append("in training mode")
    return " ".join([type(model).__name__, *details])


def search_options(config: GenerationConfig) -> SearchOptions:
    """Return the options of the engine's search for a generation config."""
    eos, penalty_type = config.eos_token_id, getattr(config, "length_penalty_type", None) or "power"
    return SearchOptions(
        num_beams=config.num_beams or 1,
        eos_token_ids=tuple(eos) if isinstance(eos, list) else (eos,),
        length_penalty=1.0 if config.length_penalty is None else float(config.length_penalty),
        length_penalty_type=penalty_type,
        early_stopping=config.early_stopping or False,
        min_new_tokens=config.min_new_tokens or 0,
        sampling=SamplingOptions.from_options(vars(config)) if config.do_sample else None,
    )


def _room_for(positions: int) -> int:
    """Return a number of positions, rounded up to a power of two or three quarters of one, so that few are in use."""
    power = 1 << (positions - 1).bit_length()
    return max(_LEAST_ROOM, power * 3 // 4 if positions <= power * 3 // 4 else power)


__all__ = ["Engine", "Hypothesis", "kind_of", "search_options"]
