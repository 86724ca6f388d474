"""The tensors of an engine's slots, of few sizes, so that few steps are compiled."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from vanilla_transformer.decoding.ensemble import members_of
from vanilla_transformer.machine.transfers import fill_rows, to_device

from .device_profile import spare_memory
from .search_options import SearchOptions
from .search_state import SearchState
from .sources import PrefilledSource
from .static_decoder import AlignmentHeads, SlotMemory
from .step_package import Dimensions

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

Memory = list[SlotMemory]  # of each model


class SlotSize(NamedTuple):
    """Numbers of slots and of positions of the source or the target."""

    slots: int
    room: int


_EXAMPLE = SlotSize(7, 11)


class SlotBuffers:
    """
    Hold the state and the memory of all slots, in the size that is used now.

    Tensors of other sizes are kept as long as there is memory: allocating takes longer than
    copying, and on a GPU the step must be captured again for other tensors.

    Args:
        model: The model that decodes.
        options: Options of the search.
        size: The first size.
        alignment_heads: Heads of cross-attention whose queries are kept, of the first model of an
            ensemble.
    """

    def __init__(
        self,
        model: "DecodedModel",
        options: SearchOptions,
        size: SlotSize,
        alignment_heads: AlignmentHeads = (),
    ):
        self._model, self._options, self._alignment_heads = model, options, alignment_heads
        self._sizes = OrderedDict[SlotSize, tuple[SearchState, Memory]]()
        self.size = size
        self.state, self.memory = self._tensors_of(size)

    @property
    def arguments(self) -> tuple[SearchState, Memory]:
        """The arguments of a step, which updates them."""
        return self.state, self.memory

    def example(self) -> tuple[SearchState, Memory]:
        """Return tensors of a size at which no two dimensions are equal by chance, to compile a
        step for any size.
        """
        return self._allocate(_EXAMPLE)

    def dimensions(self) -> Dimensions:
        """Return the dimensions of each tensor that vary with the slots or the room, and how fast
        they grow.
        """
        smallest = self._shapes(SlotSize(2, 2))
        larger = {"slots": self._shapes(SlotSize(3, 2)), "room": self._shapes(SlotSize(2, 3))}
        dimensions = []
        for index, shape in enumerate(smallest):
            growing = {}
            for name, shapes in larger.items():
                for dim, size in enumerate(shape):
                    if shapes[index][dim] > size:
                        growing[dim] = (name, shapes[index][dim] - size)
            dimensions.append(growing)
        return dimensions

    def _shapes(self, size: SlotSize) -> list[torch.Size]:
        return [leaf.shape for leaf in pytree.tree_leaves(self._allocate(size))]

    def resize(self, size: SlotSize, kept: Sequence[int]) -> None:
        """Change the size. The given slots become the first ones; the others are empty."""
        old, new = self.arguments, self._tensors_of(size)
        are_first = [*kept] == [*range(len(kept))]
        rows: Any = slice(len(kept)) if are_first else to_device(kept, self._model.device)
        for source, target in zip(_rows(*old), _rows(*new), strict=True):
            _copy_rows(source, rows, target, slice(len(kept)))
        self.size, (self.state, self.memory) = size, new
        self.free(slice(len(kept), None))

    def kept_room(self, size: SlotSize) -> int:
        """Return the least room of kept tensors for as many slots that can be used for a size, or
        its own room.

        Up to twice the room that is needed costs less than to capture another step.
        """
        rooms = [other.room for other in self._sizes if other.slots == size.slots]
        return min(
            (room for room in rooms if size.room <= room <= 2 * size.room), default=size.room
        )

    def enter(
        self, slots: Sequence[int], sources: Sequence[PrefilledSource], start_token: int
    ) -> None:
        """Start the searches of sources of one batch in the given slots."""
        searches = [source.search for source in sources]
        columns = zip(*((read.row, read.length, read.limit) for read in sources), strict=True)
        places, rows, lengths, limits, counts, seeds = to_device(
            [
                [*slots],
                *map(list, columns),
                [search.hypotheses for search in searches],
                [search.seed for search in searches],
            ],
            self._model.device,
        )
        targets = (tensor for memory in self.memory for tensor in memory.prefilled())
        for source, target in zip(sources[0].batch, targets, strict=True):
            _copy_rows(source, rows, target, places)
        for memory in self.memory:
            memory.source_lengths[places] = lengths
        self.state.start(places, limits, counts, seeds, start_token)
        for feature, feature_state in zip(self._options.features, self.state.features, strict=True):
            feature.enter(feature_state, places, [search.request for search in searches])

    def free(self, slots: Tensor | slice) -> None:
        """Empty the given slots. They return to positions that any room can hold."""
        fill_rows(self.state.done, slots, True)
        fill_rows(self.state.time, slots, 0)
        for memory in self.memory:
            fill_rows(memory.source_lengths, slots, 1)

    def copy_rows(self, slot: int) -> list[Tensor]:
        """Return a copy of all that a slot holds."""
        return [tensor[slot : slot + 1].clone() for tensor in _rows(*self.arguments)]

    def restore_rows(self, slot: int, rows: Sequence[Tensor]) -> None:
        """Put what [`copy_rows`] returned, for any number of positions, into a slot."""
        for target, source in zip(_rows(*self.arguments), rows, strict=True):
            _copy_rows(source, slice(None), target, slice(slot, slot + 1))

    def _tensors_of(self, size: SlotSize) -> tuple[SearchState, Memory]:
        if size not in self._sizes:
            self._drop_sizes(spare_memory(self._model.device, self._spare()))
            try:
                self._sizes[size] = self._allocate(size)
            except torch.OutOfMemoryError:
                self._drop_sizes(0)
                self._sizes[size] = self._allocate(size)
        self._sizes.move_to_end(size)
        return self._sizes[size]

    def _drop_sizes(self, most: float) -> None:
        """Drop the tensors that were used least recently until the others take at most so many
        bytes.
        """
        while self._spare() > most:
            self._sizes.popitem(last=False)

    def _spare(self) -> int:
        """Return the bytes of the tensors of all sizes."""
        return sum(leaf.nbytes for leaf in pytree.tree_leaves([*self._sizes.values()]))

    def _allocate(self, size: SlotSize) -> tuple[SearchState, Memory]:
        state = SearchState.empty(size.slots, size.room, self._model.device, self._options)
        sizes, (first, *others) = (
            (size.slots, self._options.num_beams, size.room),
            members_of(self._model),
        )
        memory = SlotMemory.empty(first, *sizes, self._alignment_heads)
        return state, [memory, *(SlotMemory.empty(other, *sizes) for other in others)]


def _rows(state: SearchState, memory: Memory) -> list[Tensor]:
    """Return the tensors that have a row for each slot."""
    # All but `positions`
    return pytree.tree_leaves((state, [memory_of_model[1:] for memory_of_model in memory]))


def _copy_rows(
    source: Tensor, rows: "Tensor | slice", target: Tensor, places: "Tensor | slice"
) -> None:
    """Copy rows of a tensor to the given places of another one, as far as their other sizes go."""
    common = tuple(
        slice(min(sizes)) for sizes in zip(source.shape[1:], target.shape[1:], strict=True)
    )
    target[(places, *common)] = source[(rows, *common)]
