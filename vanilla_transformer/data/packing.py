"""
Packed batches: several sentence pairs in each row, so that all batches of an epoch have one shape.

A GPU compiles one shape once and computes little padding (Raffel et al., 2020, section 3.1.2).
Attention keeps the pairs of a row apart, which costs a CPU more than the padding of the batches of
[`plan_batches`].
"""

import numpy as np

from .batches import IGNORED_LABEL, BatchPlan, BatchShape, Lengths, check_lengths, round_up

# The fewest tokens of a row in packed batches. Pairs fit better into longer rows, but attention
# takes more time there:
# at 256 tokens its products are a twelfth of the products of the base model's encoder.
PACKED_ROW_TOKENS = 256
# The share of each row to fill. Without the rest, many pairs would find no room.
PACKED_SHARE = 0.98
# The lengths of rows are multiples of this number: kernels of GPUs read eight values of two bytes
# at a time.
PACKED_UNIT = 8


def packed_shape(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    of_corpus: tuple[np.ndarray, np.ndarray] | None = None,
) -> BatchShape:
    """
    Return the shape of batches of at most `max_tokens` tokens on each side, with padding.

    The side with more tokens in the corpus has the longer rows. Rows hold the longest sentence of
    their side.

    Args:
        of_corpus: Tokens of each side of the corpus that the pairs belong to, and of its longest
            sentence, of shape `(2,)`. By default the pairs are all of it.
    """
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    check_lengths(source, target, max_tokens, batches_per_step=1)
    if of_corpus is None:
        lengths = np.stack([source, target])
        of_corpus = (lengths.sum(axis=1), lengths.max(axis=1))
    totals, longest = of_corpus
    length = min(max_tokens, max(PACKED_ROW_TOKENS, round_up(int(longest.max()), PACKED_UNIT)))
    source_length, target_length = (
        min(length, round_up(max(int(most), round(length * total / totals.max())), PACKED_UNIT))
        for total, most in zip(totals, longest, strict=True)
    )
    return BatchShape(max_tokens // length, source_length, target_length)


def plan_packed_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    shape: BatchShape,
    seed: int = 0,
    epoch: int = 0,
    batches_per_step: int = 1,
    window: int = 0,
) -> BatchPlan:
    """
    Plan one epoch of packed batches of one shape, or one window of it: every pair once, in rows
    with pairs of all lengths, in random order.

    Args:
        shape: The shape of all batches, from [`packed_shape`].
        window (`int`): See [`plan_batches`].
    """
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    check_lengths(source, target, max(shape.source_length, shape.target_length), batches_per_step)
    random = np.random.default_rng((seed, epoch, window))
    # The shares of a row that a pair takes
    shares = np.stack([source / shape.source_length, target / shape.target_length], axis=1)
    row_of, rows = _pack(shares, shape.rows * batches_per_step, random)
    # Steps, and batches in them, get rows in turn, in random order and rows with pairs first: no
    # step is empty.
    batches = rows // shape.rows
    filled = np.bincount(row_of, minlength=rows) > 0
    order = np.lexsort((random.random(rows), ~filled))
    batch_of, place_of = np.empty(rows, int), np.empty(rows, int)
    batch_of[order] = np.arange(rows) % batches
    place_of[order] = np.arange(rows) // batches
    pairs = np.lexsort((place_of[row_of], batch_of[row_of]))
    bounds = np.searchsorted(batch_of[row_of[pairs]], np.arange(batches + 1))
    steps = np.arange(batches).reshape(batches_per_step, -1).T
    return BatchPlan(pairs, bounds, steps, place_of[row_of[pairs]])


def _pack(shares: np.ndarray, unit: int, random: np.random.Generator) -> tuple[np.ndarray, int]:
    """
    Return the row of each pair, and the number of rows, a multiple of `unit`.

    Pairs that find no room get further rows.

    Args:
        shares (`np.ndarray` of shape `(pairs, 2)`): The share of a row that each side of a pair
        takes.
    """
    row_of, rows, left = np.full(len(shares), -1), 0, np.arange(len(shares))
    while len(left):
        needed = min(len(left), int(np.ceil(shares[left].sum(axis=0).max() / PACKED_SHARE)))
        added = round_up(rows + needed, unit) - rows
        row_of_left = _deal(shares[left], added, random)
        row_of[left] = np.where(row_of_left < 0, -1, row_of_left + rows)
        rows, left = rows + added, left[row_of_left < 0]
    return row_of, rows


def _deal(shares: np.ndarray, rows: int, random: np.random.Generator) -> np.ndarray:
    """
    Return the row of each pair, or -1 for pairs without room.

    In each round the longest pairs left go to the emptiest rows, one to each. Among them, the pairs
    with the longer source go to the rows with more room on this side.
    """
    row_of, room = np.full(len(shares), -1), np.ones((rows, 2))
    left = np.lexsort((random.random(len(shares)), -shares.max(axis=1)))
    while len(left):
        pairs, later = left[:rows], left[rows:]
        emptiest = np.argsort(-room.min(axis=1), kind="stable")[: len(pairs)]
        emptiest = emptiest[np.argsort(np.subtract(*room[emptiest].T), kind="stable")]
        pairs = pairs[np.argsort(np.subtract(*shares[pairs].T), kind="stable")]
        after = room[emptiest] - shares[pairs]
        fits = (after >= -_ROUNDING).all(axis=1)
        room[emptiest[fits]], row_of[pairs[fits]] = after[fits], emptiest[fits]
        if not fits.any():
            break
        left = np.concatenate([later, pairs[~fits]])
    return row_of


def pack_sentences(
    tokens: np.ndarray, lengths: np.ndarray, places: np.ndarray, shape: tuple[int, int], value: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Put sentences one after another into the rows of one side of a batch.

    Args:
        tokens (`np.ndarray` of shape `(tokens,)`): Of all sentences, one after another.
        lengths (`np.ndarray` of shape `(sentences,)`): Their numbers of tokens.
        places (`np.ndarray` of shape `(sentences,)`): The row of each sentence, ascending.
        shape: Shape of the side: rows, and tokens of each row.
        value (`int`): The padding.

    Returns:
        The tokens and their positions in their sentences, int64 of shape `shape`, and the index of
        the first token of each sentence in them.
    """
    begins = np.cumsum(lengths) - lengths
    # Minus `begins` of the row's first pair
    firsts = places * shape[1] + begins - begins[np.searchsorted(places, places)]
    positions = np.arange(len(tokens)) - np.repeat(begins, lengths)
    indices = np.repeat(firsts, lengths) + positions
    packed = np.full(shape, value, np.int64)
    packed_positions = np.zeros(shape, np.int64)
    packed.flat[indices], packed_positions.flat[indices] = tokens, positions
    return packed, packed_positions, firsts


def pack_pairs(
    source: tuple[np.ndarray, np.ndarray],
    target: tuple[np.ndarray, np.ndarray],
    places: np.ndarray,
    shape: BatchShape,
    pad_token_id: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """
    Put pairs one after another into the rows of a batch.

    Args:
        source, target: Tokens and lengths of a side; see [`pack_sentences`].
        places (`np.ndarray` of shape `(pairs,)`): The row of each pair, ascending.

    Returns:
        `input_ids` and `source_positions` of shape `(batch_size, source_length)`, `labels` and
        `target_positions` of shape `(batch_size, target_length)`, and the index of the first token
        of each source and of each target. Positions count from 0 in each sentence, and are 0 at
        padding.
    """
    source_shape = (shape.rows, shape.source_length)
    target_shape = (shape.rows, shape.target_length)
    input_ids, source_positions, first_sources = pack_sentences(
        *source, places, source_shape, pad_token_id
    )
    labels, target_positions, first_targets = pack_sentences(
        *target, places, target_shape, IGNORED_LABEL
    )
    arrays = {"input_ids": input_ids, "source_positions": source_positions}
    return (
        arrays | {"labels": labels, "target_positions": target_positions},
        first_sources,
        first_targets,
    )


def find_rows(source_lengths: Lengths, target_lengths: Lengths, shape: BatchShape) -> np.ndarray:
    """
    Return the row of each pair of a packed batch, whose pairs are in the order of their rows.

    A pair begins a row if it does not fit into the one before it, so there are at most as many rows
    as were planned.
    """
    rows: list[int] = []
    filled = np.zeros(2, int)
    most = np.array([shape.source_length, shape.target_length])
    for lengths in zip(source_lengths, target_lengths, strict=True):
        begins = bool((filled + lengths > most).any())
        filled = np.array(lengths) if begins else filled + lengths
        rows.append((rows[-1] if rows else 0) + begins)
    return np.array(rows, int)


_ROUNDING = 1e-9
