"""BPE-dropout (Provilkov et al., 2020, "BPE-Dropout: Simple and Effective Subword Regularization"), reproducibly."""

import heapq
import json
import math
import random
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .cleaning import Overlap
from .corpus import Corpus
from .tokenized_corpus import EncodedPairs, map_texts
from .tuning import CACHED_WORDS

Word = tuple[int, ...]


class BpeDropout:
    """
    Segments texts anew in each epoch, by dropping merges of byte-pair encoding at random.

    The rule is algorithm 1 of the paper: of all places of a word where two neighbours could be merged, each is left
    out of this step with probability `dropout`; the first in the order of learning (from the left, where that is the
    same) of those that remain is merged; then all draws are made anew. A word is done when no place remains.
    `tokenizers` has the rule as well, but a generator that nobody can seed, so that a run could not be resumed.

    Two things make it quick and change no probability. Places are drawn in the order of learning and only up to the
    first that remains, since those behind it do not matter. And it is drawn how many places remain before the next is
    dropped, so that a word with fewer merges than that is segmented as without dropout, which is remembered.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, dropout: float):
        """
        Args:
            tokenizer (`VanillaTransformerTokenizer`): Of the model bpe. Tokens added to it stay whole.
            dropout (`float`): Probability p in [0, 1]. Theirs is 0.1; 0 is the tokenizer's own segmentation, 1
                leaves single bytes.

        Raises:
            ValueError: the tokenizer is of another class or model, or p is no probability.
        """
        _check_tokenizer(tokenizer)
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"`dropout` must be in [0, 1], got {dropout}.")
        self.dropout = dropout
        self._eos = tokenizer.eos_token_id
        self._merges = _merges(tokenizer.backend_tokenizer)
        self._bytes = _without_merges(tokenizer)
        self._undropped: dict[Word, Word] = {}

    def encode(
        self, texts: Sequence[str], seed: int, epoch: int, first_index: int = 0, stream: int = 0
    ) -> list[list[int]]:
        """
        Token ids of each text with exactly one EOS, at the end.

        The ids are a function of the text, `seed`, `epoch`, `stream` and the text's index in the corpus, which is
        `first_index` plus its position in `texts`: they do not depend on the other texts or on earlier calls.

        Args:
            stream (`int`): Tells the sides of a pair apart, such as 0 for the source and 1 for the target.
        """
        encodings = self._bytes.encode_batch(list(texts), add_special_tokens=False)
        sentences = []
        for index, encoding in enumerate(encodings, start=first_index):
            draws = _Draws(self.dropout, f"{seed} {epoch} {stream} {index}")
            words = _words(encoding.ids, encoding.word_ids)
            sentence = [token for word in words for token in self._segment(word, draws) if token != self._eos]
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
        merges = len(word) - len(undropped)  # one draw for each, as long as none is dropped
        return undropped if draws.all_remain(merges) else self._merge(word, draws)

    def _merge(self, word: Word, draws: "_Draws") -> Word:
        """The rule itself, with a queue of the places by (rank, position) and the neighbours as a linked list."""
        symbols: list[int | None] = list(word)  # None where a symbol went into the one on its left
        following, preceding = list(range(1, len(word) + 1)), list(range(-1, len(word) - 1))
        # (rank, merged symbol, position of the left one); ranks differ, so that the symbol decides nothing
        queue = [
            (*self._merges[pair], position) for position, pair in enumerate(pairwise(word)) if pair in self._merges
        ]
        heapq.heapify(queue)
        dropped: list[tuple[int, int, int]] = []
        while queue:
            place = heapq.heappop(queue)
            rank, merged, left = place
            right = following[left]
            # Places that an earlier merge did away with are no places, so nothing is drawn for them.
            if right == len(word) or self._merges.get((symbols[left], symbols[right])) != (rank, merged):
                continue
            if draws.drops():
                dropped.append(place)
                continue
            symbols[left], symbols[right] = merged, None
            following[left] = following[right]
            neighbours = [preceding[left]] if preceding[left] >= 0 else []
            if following[left] < len(word):
                preceding[following[left]] = left
                neighbours.append(left)
            for position in neighbours:
                found = self._merges.get((symbols[position], symbols[following[position]]))
                if found is not None:
                    heapq.heappush(queue, (*found, position))
            for place in dropped:  # a new step, a new draw
                heapq.heappush(queue, place)
            dropped.clear()
        return tuple(symbol for symbol in symbols if symbol is not None)


class _Draws:
    """
    Independent draws of what is dropped, from one seed; `random.Random` of a string gives the same numbers in every
    process and version of Python, which NumPy's generators do not promise.

    Before the next drop a number k of places remains with probability (1 - p)ᵏ p: the integer part of
    ln(u) / ln(1 - p) for u uniform in (0, 1].
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
        """Whether none of the next draws is a drop; they count as drawn only in that case."""
        if self._remaining < places:
            return False
        self._remaining -= places
        return True

    def drops(self) -> bool:
        """One draw."""
        if self.all_remain(1):
            return False
        self._remaining = self._run()
        return True


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    if not isinstance(tokenizer, VanillaTransformerTokenizer):
        raise ValueError(
            f"BPE-dropout must have a VanillaTransformerTokenizer, got {type(tokenizer).__name__}. Train one with "
            "`vanilla_transformer.data.tokenizer_training.train_tokenizer`."
        )
    model = tokenizer.backend_tokenizer.model
    if not isinstance(model, models.BPE):
        raise ValueError(
            f"BPE-dropout must have a tokenizer of the model bpe, since it drops merges, got {type(model).__name__}. "
            "Train one with `model='bpe'`, or set `bpe_dropout` to 0."
        )


def _merges(tokenizer: Tokenizer) -> dict[tuple[int | None, int | None], tuple[int, int]]:
    """What becomes of two neighbours: (rank of the merge, the merged symbol) by the pair of symbols."""
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = model["vocab"]
    return {
        (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
        for rank, (left, right) in enumerate(model["merges"])
    }


def _without_merges(tokenizer: VanillaTransformerTokenizer) -> Tokenizer:
    """A copy that splits texts into words as `tokenizer` does, its added tokens included, and words into bytes."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["merges"] = []
    copy = Tokenizer.from_str(json.dumps(state))
    copy.encode_special_tokens = tokenizer.split_special_tokens
    copy.no_truncation()
    copy.no_padding()
    return copy


def _words(ids: Sequence[int], word_ids: Sequence[int | None]) -> Iterable[Word]:
    """The symbols of each word, from those of a text and the number of the word that each belongs to."""
    starts = [index for index, (before, here) in enumerate(pairwise((None, *word_ids))) if before != here]
    return [tuple(ids[start:end]) for start, end in pairwise((*starts, len(ids)))]


class BpeDropoutCorpus(Corpus):
    """
    The pairs of another corpus, encoded anew for each epoch: a function of seed, epoch and the pair's place in it.

    Args:
        plain (`Corpus`): Its pairs are encoded without dropout.
        tokenizer (`VanillaTransformerTokenizer`): Of the model bpe.
        dropout (`float`): Probability with which each merge is left out.
        seed (`int`): Of the draws.
        max_tokens (`int`): A side that its draw would make longer than this is cut without dropout.
    """

    def __init__(self, plain: Corpus, tokenizer: PreTrainedTokenizerBase, dropout: float, seed: int, max_tokens: int):
        self.plain = plain
        self.cutters = BpeDropout(tokenizer, dropout), BpeDropout(tokenizer, 0.0)
        self.seed = seed
        self.max_tokens = max_tokens
        self.report = plain.report
        self._encoded: tuple[int, EncodedPairs] | None = None

    def epoch(self, number: int) -> EncodedPairs:
        if self._encoded is None or self._encoded[0] != number:
            pairs = self.plain.epoch(number)
            self.texts = self.plain.texts.select(pairs.rows)
            encode = partial(_encode_anew, cutters=self.cutters, seed=self.seed, epoch=number, limit=self.max_tokens)
            self._encoded = number, EncodedPairs(map_texts(self.texts, encode, with_indices=True))
        return self._encoded[1]

    @property
    def overlaps(self) -> dict[str, Overlap]:
        return self.plain.overlaps

    @property
    def max_source_length(self) -> int:
        return self.plain.max_source_length


def _encode_anew(
    batch: dict[str, list[str]],
    indices: list[int],
    cutters: tuple[BpeDropout, BpeDropout],
    seed: int,
    epoch: int,
    limit: int,
) -> dict[str, list[list[int]]]:
    dropping, whole = cutters
    columns = {}
    for stream, (column, side) in enumerate((("input_ids", "source"), ("labels", "target"))):
        sentences = dropping.encode(batch[side], seed, epoch, first_index=indices[0], stream=stream)
        for position, sentence in enumerate(sentences):
            if len(sentence) > limit:
                sentences[position] = whole.encode([batch[side][position]], seed, epoch)[0]
        columns[column] = sentences
    return columns
