"""BPE-dropout (Provilkov et al., 2020, "BPE-Dropout: Simple and Effective Subword Regularization"),
reproducibly.
"""

import heapq
import json
import math
import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.corpus import Corpus, DerivedCorpus
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable
from vanilla_transformer.errors import UserError
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .epoch_cache import EpochCache

# BPE-dropout remembers the undropped segmentation of this many words: the first words of a corpus
# are frequent ones.
CACHED_WORDS = 200_000
_FORMAT = 1  # of the cached epochs; another number invalidates all older entries

Word = tuple[int, ...]


class BpeDropout:
    """
    Segment texts differently in each epoch, by dropping merges of byte-pair encoding at random.

    This is algorithm 1 of the paper: of all adjacent pairs of a word that could be merged, each is
    dropped with probability `dropout`; the remaining pair with the lowest merge rank (the leftmost
    among equals) is merged; then all draws are repeated. A word is finished when no pair remains.
    `tokenizers` implements the rule too, but with a generator that cannot be seeded, so a run could
    not be resumed.

    Two shortcuts make it fast and change no probability. Pairs are drawn in the order of their
    ranks and only up to the first that remains. And a single draw gives the number of pairs that
    remain before the next dropped one: a word with fewer merges than that is segmented as without
    dropout, and this segmentation is cached.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, dropout: float):
        """
        Args:
            tokenizer (`VanillaTransformerTokenizer`): A BPE tokenizer. Its added tokens are never
                split.
            dropout (`float`): Probability p in [0, 1]. The paper uses 0.1; 0 gives the tokenizer's
                own segmentation, 1 gives single bytes.
        """
        if not isinstance(tokenizer, VanillaTransformerTokenizer):
            raise UserError(
                "BPE-dropout must have a VanillaTransformerTokenizer, got "
                f"{type(tokenizer).__name__}. Train one with "
                "`VanillaTransformerTokenizer.train_from_iterator`."
            )
        model = tokenizer.backend_tokenizer.model
        if not isinstance(model, models.BPE):
            raise UserError(
                "BPE-dropout must have a BPE tokenizer, because it drops merges, got "
                f"{type(model).__name__}. Train one with `model='bpe'`, or set `bpe_dropout` to 0."
            )
        if not 0.0 <= dropout <= 1.0:
            raise UserError(f"`dropout` must be in [0, 1], got {dropout}.")
        self.dropout = dropout
        self._eos = tokenizer.eos_token_id
        self._undropped: dict[Word, Word] = {}
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        vocabulary, merges = state["model"]["vocab"], state["model"]["merges"]
        # The rank of a merge and the merged symbol, by the pair of symbols.
        self._merges: dict[tuple[int | None, int | None], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(merges):
            pair = vocabulary[left], vocabulary[right]
            self._merges[pair] = rank, vocabulary[left + right]
        # A copy that splits texts into words as the tokenizer does, and words into bytes.
        state["model"]["merges"] = []
        self._bytes = Tokenizer.from_str(json.dumps(state))
        self._bytes.encode_special_tokens = tokenizer.split_special_tokens
        self._bytes.no_truncation()
        self._bytes.no_padding()

    def encode(
        self, texts: Sequence[str], seed: int, epoch: int, first_index: int = 0, stream: int = 0
    ) -> list[list[int]]:
        """
        Return the token ids of each text with exactly one EOS, at the end.

        The ids depend on the text, `seed`, `epoch`, `stream` and the text's index in the corpus
        (`first_index` plus its position in `texts`), and not on the other texts or on earlier
        calls.

        Args:
            stream (`int`): Distinguishes the sides of a pair: 0 for the source, 1 for the target.
        """
        encodings = self._bytes.encode_batch(list(texts), add_special_tokens=False)
        sentences = []
        for index, encoding in enumerate(encodings, start=first_index):
            draws = _Draws(self.dropout, f"{seed} {epoch} {stream} {index}")
            ids, word_ids = encoding.ids, encoding.word_ids
            starts = []
            for position, (before, word_id) in enumerate(pairwise((None, *word_ids))):
                if word_id != before:
                    starts.append(position)
            sentence: list[int] = []
            for start, end in pairwise((*starts, len(ids))):
                tokens = self._segment(tuple(ids[start:end]), draws)
                sentence += [token for token in tokens if token != self._eos]
            sentences.append([*sentence, self._eos])
        return sentences

    def _segment(self, word: Word, draws: "_Draws") -> Word:
        if len(word) == 1:
            return word
        undropped = self._undropped.get(word)
        if undropped is None:
            undropped = self._merge(word, _Draws(0.0, ""))
            if len(self._undropped) < CACHED_WORDS:
                self._undropped[word] = undropped
        merges = len(word) - len(undropped)  # one draw for each if none is dropped
        return undropped if draws.all_remain(merges) else self._merge(word, draws)

    def _merge(self, word: Word, draws: "_Draws") -> Word:
        """Apply the rule, with a queue of pairs by (rank, position) and a linked list of
        symbols.
        """
        # None: merged into the symbol on its left.
        symbols: list[int | None] = list(word)
        following = list(range(1, len(word) + 1))
        preceding = list(range(-1, len(word) - 1))
        # (rank, merged symbol, position of the left symbol); ranks are unique, so the symbol never
        # decides
        queue: list[tuple[int, int, int]] = []
        for position, pair in enumerate(pairwise(word)):
            if pair in self._merges:
                queue.append((*self._merges[pair], position))
        heapq.heapify(queue)
        dropped: list[tuple[int, int, int]] = []
        while queue:
            candidate = heapq.heappop(queue)
            rank, merged, left = candidate
            right = following[left]
            # An earlier merge removed this pair, so nothing is drawn for it.
            if right == len(word):
                continue
            if self._merges.get((symbols[left], symbols[right])) != (rank, merged):
                continue
            if draws.drops():
                dropped.append(candidate)
                continue
            symbols[left], symbols[right] = merged, None
            following[left] = following[right]
            neighbors = [preceding[left]] if preceding[left] >= 0 else []
            if following[left] < len(word):
                preceding[following[left]] = left
                neighbors.append(left)
            for position in neighbors:
                merge = self._merges.get((symbols[position], symbols[following[position]]))
                if merge is not None:
                    heapq.heappush(queue, (*merge, position))
            for candidate in dropped:  # drawn again in the next step
                heapq.heappush(queue, candidate)
            dropped.clear()
        return tuple(symbol for symbol in symbols if symbol is not None)


class _Draws:
    """
    Independent draws of dropped merges from one seed.

    `random.Random` with a string as its seed gives the same numbers in every process and version of
    Python, which NumPy's generators do not guarantee. The number k of pairs that remain before the
    next dropped one has the probability (1 - p)ᵏ p: it is the integer part of ln(u) / ln(1 - p) for
    u uniform in (0, 1].
    """

    def __init__(self, dropout: float, seed: str):
        self._random = random.Random(seed)
        self._scale = math.log1p(-dropout) if dropout < 1.0 else -math.inf
        self._remaining = self._run()

    def _run(self) -> float:
        if self._scale == 0.0:
            return math.inf
        return math.log(1.0 - self._random.random()) / self._scale

    def all_remain(self, places: int) -> bool:
        """Return whether none of the next draws is a drop, and consume them only in that case."""
        if self._remaining < places:
            return False
        self._remaining -= places
        return True

    def drops(self) -> bool:
        """Return the result of one draw."""
        if self.all_remain(1):
            return False
        self._remaining = self._run()
        return True


class BpeDropoutCorpus(DerivedCorpus):
    """
    The pairs of another corpus, tokenized with BPE-dropout: a function of seed, epoch and the
    pair's index in it.

    A side that dropout would make longer than `max_tokens` is tokenized without it.

    All pairs are tokenized before their batches are planned, so `max_tokens` bounds each batch. If
    batches were planned by the lengths without dropout, they would have up to 1.7 times the tokens
    with padding, and some of them more than twice `max_tokens` (`docs/tried.md`). [`EpochCache`]
    says which process tokenizes.

    Args:
        key (`str`): A hash of what decides the texts of an epoch, beside its rows, and of the
            tokenizer.
    """

    def __init__(
        self,
        plain: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        dropout: float,
        seed: int,
        max_tokens: int,
        key: str,
        cache_dir: Path,
    ):
        super().__init__(plain)
        self.segmenters = BpeDropout(tokenizer, dropout), BpeDropout(tokenizer, 0.0)
        self.seed = seed
        self.max_tokens = max_tokens
        content = (_FORMAT, key, dropout, seed, max_tokens)
        self.cache = EpochCache(cache_dir, "dropout", content)

    def derive(self, pairs: EncodedPairs, epoch: int) -> EncodedPairs:
        self.texts = self.plain.texts.select(pairs.rows)
        encode = partial(
            _encode_batch,
            segmenters=self.segmenters,
            seed=self.seed,
            epoch=epoch,
            limit=self.max_tokens,
        )
        tokens = self.cache.encode(self.texts, pairs.rows, epoch, encode)
        return EncodedPairs(TokenTable(tokens))


def _encode_batch(
    batch: dict[str, list[str]],
    indices: list[int],
    segmenters: tuple[BpeDropout, BpeDropout],
    seed: int,
    epoch: int,
    limit: int,
) -> dict[str, list[list[int]]]:
    with_dropout, without = segmenters
    columns = {}
    for stream, (column, side) in enumerate((("input_ids", "source"), ("labels", "target"))):
        texts = batch[side]
        sentences = with_dropout.encode(texts, seed, epoch, first_index=indices[0], stream=stream)
        for position, sentence in enumerate(sentences):
            if len(sentence) > limit:
                sentences[position] = without.encode([texts[position]], seed, epoch)[0]
        columns[column] = sentences
    return columns
