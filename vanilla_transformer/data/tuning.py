"""Tuning constants of the data pipeline. They change speed and memory, and no result but the order of batches."""

# Rows that are read, cleaned, written or searched at a time.
ROWS_PER_BATCH = 10_000
# With fewer rows a second process costs more time than it saves.
MIN_ROWS_PER_PROCESS = 50_000
# BPE-dropout remembers the undropped segmentation of this many words: the first words of a corpus are frequent ones.
CACHED_WORDS = 200_000
# Batches are exchanged among this many neighboring steps, so that the batches of one step have about the same size.
STEPS_PER_NEIGHBORHOOD = 4
# The remainder of an epoch is spread over this many steps, so that no step is much smaller than the others.
STEPS_SHARING_REMAINDER = 16
# A worker of the data loader looks this often whether the training process still runs.
SECONDS_BETWEEN_LOOKS = 0.25
# Steps that each worker of the data loader prepares ahead of the training.
STEPS_AHEAD_PER_WORKER = 2
# The fewest tokens of a row in packed batches. Pairs fit better into longer rows, but attention takes more time there:
# at 256 tokens its products are a twelfth of the products of the base model's encoder.
PACKED_ROW_TOKENS = 256
# The share of each row to fill. Without the rest, many pairs would find no room.
PACKED_SHARE = 0.98
# The lengths of rows are multiples of this number: kernels of GPUs read eight values of two bytes at a time.
PACKED_UNIT = 8
