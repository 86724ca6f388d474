"""
Which sentences are in the slots of an engine.

Sentences enter free slots while others are decoded. The slots become fewer for the last sentences
of a stream. A long sentence waits aside while shorter ones enter, because all slots compute
attention over the same room.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from vanilla_transformer.machine.transfers import to_device

from .device_profile import profile_of
from .prefill import room_for
from .requests import Search
from .search_options import SearchOptions
from .slot_buffers import SlotBuffers, SlotSize
from .sources import SourceQueue
from .static_decoder import AlignmentHeads

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel


class Entry(NamedTuple):
    """
    A sentence in a slot: its search, the length of its source, and the steps that had been run when
    it entered.

    `stays` is True if it was set aside before. `remaining` is the number of the next tokens of its
    draft.
    """

    search: Search
    length: int
    entered: int
    stays: bool = False
    remaining: int = 0

    def positions(self, end: int) -> int:
        """Return the positions for which its slot needs room when `end` steps have been run."""
        request = self.search.request
        return max(self.length, len(request.prefix), len(request.draft), end - self.entered)


class SlotSchedule:
    """
    Assign sentences to slots.

    Args:
        model: The model that decodes.
        slots: Sentences that are decoded at once, at most.
        options: Options of the search.
        start_token: The first token of each target.

    Attributes:
        buffers: The tensors of the slots.
        sizes: The numbers of slots that are used.
        steps_run: The steps so far, of which a wide one counts as so many.
    """

    def __init__(
        self,
        model: "DecodedModel",
        slots: int,
        options: SearchOptions,
        start_token: int,
        alignment_heads: AlignmentHeads = (),
    ):
        self._slots, self._start_token, self._device = slots, start_token, model.device
        profile = profile_of(model.device)
        self._room_for = partial(room_for, dtype=model.dtype)
        self._keeps_rooms, self._most_rows = profile.captures_steps, profile.most_wide_rows
        self.sizes = [*(few for few in profile.few_slots if few < slots), slots]
        first = SlotSize(self.sizes[0], self._room_for(1))
        self.buffers = SlotBuffers(model, options, first, alignment_heads)
        self.steps_run = 0
        self._entries: list[Entry | None] = [None] * self.sizes[0]  # the sentence in each slot
        # Long sentences that wait for a slot, as if no steps had been run, with what their slots
        # held.
        self._aside = deque[tuple[Entry, list[Tensor]]]()
        self._aside_returns = False
        # Until this step nothing is to be done, unless sentences enter or leave.
        self._settled_until = 0

    def __len__(self) -> int:
        """Return the number of sentences in slots and aside."""
        return len(self._aside) + len(self.occupied())

    def occupied(self) -> dict[int, Entry]:
        """Return the sentence in each slot that has one."""
        return {slot: entry for slot, entry in enumerate(self._entries) if entry is not None}

    def fill(self, queue: SourceQueue, steps: int) -> None:
        """Choose the size of the buffers for the next `steps`, and let sentences enter free
        slots.
        """
        if not queue and self.steps_run + steps <= self._settled_until:
            return
        present = len(self) + len(queue)
        slots = next((few for few in self.sizes if present <= few), self._slots)
        self._set_aside([*self.occupied()][slots:])
        self._resize(SlotSize(slots, self.buffers.size.room))
        self._fill_slots(queue, steps)
        while self._set_long_ones_aside(queue, steps):
            self._fill_slots(queue, steps)
        self._resize(SlotSize(slots, self._room(steps)))
        first = min((entry.entered for entry in self.occupied().values()), default=0)
        self._settled_until = 0 if self._aside else first + self.buffers.size.room

    def choose_width(self, widths: Sequence[int]) -> int:
        """Return how many tokens of each slot the next step reads, 1 or one of the widths: as many
        as are of drafts, if most of them are.
        """
        entries = self.occupied().values() if widths else []
        best, most = 1, len(entries)
        for width in widths:
            rows, useful = width * self.buffers.size.slots, 0
            for entry in entries:
                useful += min(1 + entry.remaining, width)
            if rows <= self._most_rows and 2 * useful >= rows and useful > most:
                best, most = width, useful
        return best

    def update(self, times: Sequence[int], remaining: Sequence[int]) -> None:
        """Note the positions of all slots and what comes next of their drafts, after wide steps."""
        for slot, entry in self.occupied().items():
            entered = self.steps_run - times[slot]
            self._entries[slot] = entry._replace(entered=entered, remaining=remaining[slot])
        self._settled_until = 0

    def free(self, slots: list[int]) -> None:
        """Empty the given slots."""
        if slots:
            self.buffers.free(to_device(slots, self._device))
        for slot in slots:
            self._entries[slot] = None
        self._settled_until = 0

    def clear(self) -> None:
        """Forget all sentences."""
        self._aside.clear()
        self.free([*self.occupied()])

    def _room(self, steps: int) -> int:
        """Return the room that the sentences in slots need for the next steps."""
        end = self.steps_run + steps
        return self._room_for(
            max(entry.positions(end) for entry in self._entries if entry is not None)
        )

    def _set_long_ones_aside(self, queue: SourceQueue, steps: int) -> bool:
        """
        Free the slots of the few sentences that need more room than the others, if new ones can
        enter instead.

        The long ones return together. Return whether there were any.
        """
        if self._aside_returns or not queue:
            return False
        end, present = self.steps_run + steps, self.occupied()
        needs = {slot: entry.positions(end) for slot, entry in present.items()}
        usual = self._room_for(sorted(needs.values())[len(needs) * 3 // 4])
        long = [
            slot for slot, need in needs.items() if need > 2 * usual and not present[slot].stays
        ]
        self._set_aside(long)
        return bool(long)

    def _set_aside(self, slots: list[int]) -> None:
        """Keep the sentences of some slots for later, and free the slots."""
        entries = self.occupied()
        for slot in slots:
            entry = entries[slot]._replace(entered=entries[slot].entered - self.steps_run)
            self._aside.append((entry, self.buffers.copy_rows(slot)))
        self.free(slots)

    def _fill_slots(self, queue: SourceQueue, steps: int) -> None:
        """Let sentences enter free slots, once enough slots are free to pay for it."""
        free = [slot for slot, entry in enumerate(self._entries) if entry is None]
        # Long sentences return together, once there are no others or as many as slots.
        is_time = self._aside_returns or len(self._aside) >= self._slots or not queue
        self._aside_returns = bool(self._aside) and is_time
        while self._aside_returns and self._aside and free:
            entry, rows = self._aside.popleft()
            self._entries[free[0]] = entry._replace(
                entered=entry.entered + self.steps_run, stays=True
            )
            self._resize(SlotSize(len(self._entries), self._room(steps)))
            self.buffers.restore_rows(free.pop(0), rows)
        while len(free) >= max(1, len(self._entries) // 16) and queue:
            sources, size = queue.take(len(free)), self.buffers.size
            entries = []
            for source in sources:
                draft = source.search.request.draft
                entry = Entry(source.search, source.length, self.steps_run, remaining=len(draft))
                entries.append(entry)
            room = self._room_for(max(entry.positions(self.steps_run) for entry in entries))
            self._resize(SlotSize(size.slots, max(size.room, room)))
            slots = [free.pop(0) for _ in sources]
            self.buffers.enter(slots, sources, self._start_token)
            for slot, entry in zip(slots, entries, strict=True):
                self._entries[slot] = entry

    def _resize(self, size: SlotSize) -> None:
        """Change the numbers of slots and of positions.

        With fewer slots, those in use become the first ones.
        """
        if self._keeps_rooms:
            size = size._replace(room=self.buffers.kept_room(size))
        if size == self.buffers.size:
            return
        kept = (
            [*self.occupied()] if size.slots < len(self._entries) else [*range(len(self._entries))]
        )
        self.buffers.resize(size, kept)
        self._entries = [self._entries[slot] for slot in kept] + [None] * (size.slots - len(kept))
