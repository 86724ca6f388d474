"""A prepared corpus in windows: an epoch is a permutation of its shards, of which few are open at a
time.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.hashes import hash_json
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.machine.cores import is_first_of_node

from .cached_texts import CachedTexts
from .cleaning import CleaningReport
from .corpus import Corpus, Overlap, Window
from .data_arguments import WINDOW_PAIRS, DataArguments
from .prepared_corpus import REPORT_FILE, Manifest, open_shards, read_manifest
from .tokenized_corpus import EncodedPairs, TokenTable
from .tokenizer_training import hash_tokenizer

# Unlike the first number of a run's other seeds, so that the order of shards and the batches of a
# window are drawn apart.
_SHARD_ORDER = 0x5AD5
_SAMPLED_SHARDS = 16


class PreparedCorpus(Corpus):
    """
    The pairs of a prepared corpus, in windows of some shards.

    The shards of a window are in the order of their numbers, so that a window of all shards is the
    corpus itself. A thread may open the next window while the current one is read.

    Args:
        folder (`str`): The prepared corpus.
        seed (`int`): Decides the order of the shards, with the epoch.
        window_shards (`int`): The most shards of a window. The windows of an epoch have equally
            many shards, or one less.
    """

    def __init__(self, folder: str | Path, manifest: Manifest, seed: int, window_shards: int):
        self.folder = folder
        self.shards = manifest.shards
        self.pairs = manifest.pairs
        self.seed = seed
        self.report, self.overlaps = read_report(Path(folder) / REPORT_FILE)
        self.windows = -(-len(self.shards) // window_shards)
        self.is_constant = self.windows == 1
        # One row for each shard
        tokens = np.array([(shard.source_tokens, shard.target_tokens) for shard in self.shards])
        longest = np.array([(shard.longest_source, shard.longest_target) for shard in self.shards])
        self.side_lengths = tokens.sum(axis=0), longest.max(axis=0)
        self.max_source_length = int(longest[:, 0].max())
        self._longest = int(longest.max())
        self._tokens = tokens.sum(axis=1)
        self._sizes = np.array([shard.pairs for shard in self.shards])
        self._opened: dict[tuple[int, ...], EncodedPairs] = {}
        self._lock = Lock()

    def epoch(self, number: int, stage: int = 0) -> range:
        """Return the numbers of the pairs: they may be too many to be opened at once."""
        return range(self.pairs)

    def window(self, epoch: int, number: int, stage: int = 0) -> Window:
        random = np.random.default_rng((_SHARD_ORDER, self.seed, epoch))
        parts = np.array_split(random.permutation(len(self.shards)), self.windows)
        shards = np.sort(parts[number])
        shares = [float(self._tokens[part].sum() / self._tokens.sum()) for part in parts]
        ends = np.cumsum(self._sizes[shards])
        firsts = np.cumsum(self._sizes) - self._sizes
        shifts = firsts[shards] - (ends - self._sizes[shards])
        pairs = self._open(shards.tolist())
        return Window(pairs, sum(shares[:number]), shares[number], ends[:-1], shifts)

    def _open(self, shards: Sequence[int]) -> EncodedPairs:
        """Return the pairs of shards, and keep the ones of the last two calls: of this window and
        of the next one.
        """
        key = tuple(shards)
        with self._lock:
            if key not in self._opened:
                self._opened = dict([*self._opened.items()][-1:])
                entries = [self.shards[number] for number in key]
                self._opened[key] = EncodedPairs(TokenTable(open_shards(self.folder, entries)))
            return self._opened[key]

    def check_batches(self, max_tokens: int, batches_per_step: int) -> None:
        if self._longest > max_tokens:
            raise UserError(
                "`max_tokens` must be at least the length of the longest sentence, got "
                f"{max_tokens} with padding, but a sentence of {self.folder} has {self._longest} "
                "tokens. Raise it, or run `prepare` with `max_length`."
            )
        fewest = int(np.sort(self._sizes)[: len(self.shards) // self.windows].sum())
        if fewest < batches_per_step:
            raise UserError(
                f"Each window must have a pair for each of the {batches_per_step} batches of a "
                f"step (processes × accumulation), but the smallest shards of {self.folder} make "
                f"one of {fewest} pairs. Raise `window_shards`, or run `prepare` with larger "
                "shards."
            )


def open_sample(folder: str, verify: bool) -> tuple[CachedTexts, DataArguments]:
    """Return the text of some shards of a prepared corpus, for the scripts of its sources, and the
    recipe that shaped the corpus.

    Args:
        verify: Whether to compare the hashes of all shards first, in one process of a node.
    """
    manifest = read_manifest(folder)
    if verify and is_first_of_node():
        for shard in manifest.shards:
            open_shards(folder, [shard], verify=True)
    step = -(-len(manifest.shards) // _SAMPLED_SHARDS)
    sample = open_shards(folder, manifest.shards[::step])
    texts = CachedTexts(sample, CleaningReport(), hash_json(manifest.model_dump()))
    return texts, DataArguments(**manifest.recipe)


def open_prepared(
    folder: str, tokenizer: PreTrainedTokenizerBase, seed: int, window_shards: int | None
) -> PreparedCorpus:
    """Open a prepared corpus of a tokenizer, in windows of `window_shards` or `WINDOW_PAIRS`."""
    manifest = read_manifest(folder)
    if hash_tokenizer(tokenizer) != manifest.tokenizer:
        raise UserError(
            f"The tokenizer of the model must be the one of `train_data` {folder}, got another "
            "one. With `init_from`, set `init_vocabulary` to replace, or run `prepare` with the "
            "model's folder as its `tokenizer`."
        )
    shards = max(1, round(WINDOW_PAIRS * len(manifest.shards) / manifest.pairs))
    return PreparedCorpus(folder, manifest, seed, window_shards or shards)


def read_report(path: Path) -> tuple[CleaningReport, dict[str, Overlap]]:
    """Return the results of cleaning a prepared corpus, and its overlaps by their name."""
    content = read_json(path)
    try:
        overlaps = {name: Overlap(**values) for name, values in content["overlap"].items()}
        return CleaningReport.from_dict(content["cleaning"]), overlaps
    except (TypeError, KeyError, AttributeError) as error:
        raise UserFileError(
            f"{path} must be the report of a prepared corpus, but its keys are others. Copy it "
            "again, or run `prepare` again."
        ) from error
