"""A prepared corpus in windows: an epoch is a permutation of its shards, of which few are open at a
time.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.hashes import hash_json
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.machine.cores import is_first_of_node

from .cached_texts import CachedTexts
from .cleaning import CleaningReport
from .corpus import Corpus, Overlap, Window, corpus_weights, sample_window
from .data_arguments import WINDOW_PAIRS
from .prepared_corpus import REPORT_FILE, Manifest, open_shards, read_manifest
from .stages import ONE_STAGE, Stages
from .texts import Texts
from .tokenized_corpus import EncodedPairs, TokenTable
from .tokenizer_training import hash_tokenizer

# Unlike the first number of a run's other seeds, so that the order of shards and the batches of a
# window are drawn apart.
_SHARD_ORDER = 0x5AD5
_SAMPLED_SHARDS = 16


class _Copies(NamedTuple):
    """
    The shards of an epoch, each as often as the weight of its corpus says.

    Args:
        weights: The weight of each corpus.
        shards: The number of the shard of each copy.
        shares: The share of its pairs that each copy has: 1, or the fraction of a weight.
        windows: The windows of the epoch, of equally many copies, or one less.
    """

    weights: Sequence[float]
    shards: np.ndarray
    shares: np.ndarray
    windows: int

    @property
    def are_whole(self) -> bool:
        """Whether each pair occurs once."""
        return bool((np.array(self.weights) == 1).all())


class PreparedCorpus(Corpus):
    """
    The pairs of a prepared corpus, in windows of some shards.

    The shards of a window are in the order of their numbers, so that a window of all shards is the
    corpus itself. A thread may open the next window while the current one is read. With a weight of
    2.5, an epoch has two copies of each shard, in any of its windows, and half of the pairs of a
    third one.

    Args:
        folder (`str`): The prepared corpus.
        seed (`int`): Decides the order of the shards, with the epoch.
        window_shards (`int`): The most shards of a window. The windows of an epoch have equally
            many shards, or one less.
        weights: The number of times that the pairs of each corpus of the mix occur in an epoch, for
            each stage. By default once.
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        seed: int,
        window_shards: int,
        weights: Sequence[Sequence[float]] | None = None,
    ):
        self.folder = folder
        self.shards = manifest.shards
        self.pairs = manifest.pairs
        self.seed = seed
        self.report, self.overlaps = read_report(Path(folder) / REPORT_FILE)
        # One row for each shard
        tokens = np.array([(shard.source_tokens, shard.target_tokens) for shard in self.shards])
        longest = np.array([(shard.longest_source, shard.longest_target) for shard in self.shards])
        self.max_source_length = int(longest[:, 0].max())
        self._tokens, self._longest = tokens, longest
        self._sizes = np.array([shard.pairs for shard in self.shards])
        self._corpora = np.array([shard.corpus for shard in self.shards])
        weights = weights or [[1.0] * len(manifest.corpora)]
        self._copies: list[_Copies] = []
        self.is_constant = True
        for of_stage in weights:
            copies = self._copy(of_stage, window_shards)
            self._copies.append(copies)
            self.is_constant &= copies.are_whole and copies.windows == 1
        self._opened: dict[tuple[int, ...], EncodedPairs] = {}
        self._lock = Lock()

    def epoch(self, number: int, stage: int = 0) -> range:
        """Return a number for each pair: the pairs may be too many to be opened at once."""
        return range(round(float(self._pairs_of(self._copies[stage]).sum())))

    def count_windows(self, stage: int = 0) -> int:
        return self._copies[stage].windows

    def side_lengths(self, stage: int = 0) -> tuple[np.ndarray, np.ndarray] | None:
        copies = self._copies[stage]
        if copies.windows == 1:
            return None
        tokens = copies.shares @ self._tokens[copies.shards]
        return tokens, self._longest[copies.shards].max(axis=0)

    def window(self, epoch: int, number: int, stage: int = 0) -> Window:
        copies = self._copies[stage]
        random = np.random.default_rng((_SHARD_ORDER, self.seed, epoch))
        parts = np.array_split(random.permutation(len(copies.shards)), copies.windows)
        shards = np.unique(copies.shards[parts[number]])  # in ascending order
        tokens = copies.shares * self._tokens[copies.shards].sum(axis=1)
        shares = [float(tokens[part].sum() / tokens.sum()) for part in parts]
        ends = np.cumsum(self._sizes[shards])
        firsts = np.cumsum(self._sizes) - self._sizes
        shifts = firsts[shards] - (ends - self._sizes[shards])
        pairs, rows = self._open(shards.tolist()), None
        if not copies.are_whole:
            rows = self._sample(copies, parts[number], shards, (self.seed, epoch, number))
            pairs = pairs.select(rows)
        return Window(pairs, sum(shares[:number]), shares[number], ends[:-1], shifts, rows)

    def _copy(self, weights: Sequence[float], window_shards: int) -> _Copies:
        """Return the copies of an epoch."""
        counts = np.bincount(self._corpora, self._sizes, minlength=len(weights))
        whole = np.array(weights).astype(int)
        rest = np.array(weights) - whole
        rest[np.round(rest * counts) == 0] = 0.0  # which has no pair
        numbers = np.arange(len(self.shards))
        is_sampled = rest[self._corpora] > 0.0
        shards = [np.repeat(numbers, whole[self._corpora]), numbers[is_sampled]]
        shares = [np.ones(len(shards[0])), rest[self._corpora][is_sampled]]
        copies = len(shards[0]) + len(shards[1])
        windows = max(1, -(-copies // window_shards))
        return _Copies(weights, np.concatenate(shards), np.concatenate(shares), windows)

    def _pairs_of(self, copies: _Copies) -> np.ndarray:
        """Return the number of pairs of each copy, maybe with a fraction."""
        return self._sizes[copies.shards] * copies.shares

    def _sample(
        self, copies: _Copies, part: np.ndarray, shards: np.ndarray, seed: Sequence[int]
    ) -> np.ndarray:
        """Return the rows of a window, given its copies, and its shards in their order."""
        places = np.searchsorted(shards, copies.shards[part])
        is_whole = copies.shares[part] == 1.0
        whole = np.bincount(places[is_whole], minlength=len(shards))
        sampled = np.bincount(places[~is_whole], minlength=len(shards)) > 0
        sizes = self._sizes[shards]
        corpora = np.repeat(self._corpora[shards], sizes)
        copies_of_rows = np.repeat(whole, sizes)
        is_sampled = np.repeat(sampled, sizes)
        return sample_window(corpora, copies.weights, copies_of_rows, is_sampled, seed)

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
        longest = int(self._longest.max())
        if longest > max_tokens:
            raise UserError(
                "`max_tokens` must be at least the length of the longest sentence, got "
                f"{max_tokens} with padding, but a sentence of {self.folder} has {longest} "
                "tokens. Raise it, or run `prepare` with `max_length`."
            )
        for copies in self._copies:
            pairs = np.sort(np.floor(self._pairs_of(copies)))
            fewest = int(pairs[: len(pairs) // copies.windows].sum())
            if fewest < batches_per_step:
                raise UserError(
                    f"Each window must have a pair for each of the {batches_per_step} batches of a "
                    f"step (processes × accumulation), but the smallest shards of {self.folder} "
                    f"make one of {fewest} pairs. Raise `window_shards`, or run `prepare` with "
                    "larger shards."
                )


def open_sample(folder: str, verify: bool) -> CachedTexts:
    """Return the text of some shards of a prepared corpus, for the scripts of its sources.

    Args:
        verify: Whether to compare the hashes of all shards first, in one process of a node.
    """
    manifest = read_manifest(folder)
    if verify and is_first_of_node():
        for shard in manifest.shards:
            open_shards(folder, [shard], verify=True)
    step = -(-len(manifest.shards) // _SAMPLED_SHARDS)
    sample = open_shards(folder, manifest.shards[::step])
    return CachedTexts(sample, CleaningReport(), hash_json(manifest.model_dump()))


def open_prepared(
    texts: Texts, tokenizer: PreTrainedTokenizerBase, seed: int, stages: Stages = ONE_STAGE
) -> PreparedCorpus:
    """Open the prepared corpus that a recipe names, in windows of `window_shards` or
    `WINDOW_PAIRS`.
    """
    data, folder = texts.data, str(texts.data.train_data)
    manifest = read_manifest(folder)
    if hash_tokenizer(tokenizer) != manifest.tokenizer:
        raise UserError(
            f"The tokenizer of the model must be the one of `train_data` {folder}, got another "
            "one. With `init_from`, set `init_vocabulary` to replace, or run `prepare` with the "
            "model's folder as its `tokenizer`."
        )
    counts = [0] * len(texts.specs)
    for shard in manifest.shards:
        counts[shard.corpus] += shard.pairs
    weights = corpus_weights(texts.specs, counts, data.sampling_temperature, stages)
    shards = max(1, round(WINDOW_PAIRS * len(manifest.shards) / manifest.pairs))
    return PreparedCorpus(folder, manifest, seed, data.window_shards or shards, weights)


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
