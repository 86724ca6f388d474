"""A corpus whose text is cut into other tokens in every epoch, by BPE-dropout."""

from functools import partial

from transformers import PreTrainedTokenizerBase

from .bpe_dropout import BpeDropout
from .cleaning import Overlap
from .corpus import Corpus
from .tokenized_corpus import EncodedPairs, map_texts


class ResegmentedCorpus(Corpus):
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
