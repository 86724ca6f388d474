"""A corpus with another random share of its pairs augmented in each epoch."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random

import datasets
import numpy as np

from vanilla_transformer.data.corpus import Corpus, DerivedCorpus
from vanilla_transformer.data.readers import SentencePair, WordPair
from vanilla_transformer.data.tokenized_corpus import (
    TOKEN_FEATURES,
    Encode,
    EncodedPairs,
    TokenTable,
    encode_sides,
    encode_texts,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import cached_work
from vanilla_transformer.text.scripts import find_scripts

from .augmentation import (
    follow_words,
    insert_inline_terms,
    insert_placeholders,
    perturb_pair,
    replace_by_noise,
    tag_of,
)
from .epoch_cache import EpochCache
from .lexicon import Lexicon, fit_lexicon
from .perturbations import PERTURBATIONS

# Return an augmented pair, or the same pair if there is nothing to augment.
Augment = Callable[[SentencePair, Random], SentencePair]
DrawPhrase = Callable[[SentencePair, set[WordPair], Random], tuple[SentencePair, set[WordPair]]]

logger = logging.getLogger(__name__)
# Of the cached lexicon and of the cached epochs; other numbers invalidate all older entries
_FORMAT, _EPOCH_FORMAT = 2, 1
_LEXICON_PAIRS = 50_000  # at the start of the training text
_LEXICON_FILE = "lexicon.json"
# Sources, whose scripts are compared with the scripts for which perturbations are meant.
_SAMPLE = 1_000
_MANY = 0.1  # of the sample
_DRAWN_TOGETHER = 10_000  # pairs; all random numbers of an epoch would take much memory
# Beside the columns of a text and of its tokens: the index of a changed pair in the epoch, and its
# aligned words, one number after another
_INDEX, _ALIGNED_WORDS = "index", "aligned_words"
_FEATURES = {
    _INDEX: datasets.Value("int64"),
    _ALIGNED_WORDS: datasets.Sequence(datasets.Value("int32")),
}


class AugmentedCorpus(DerivedCorpus):
    """
    The pairs of another corpus, some of them augmented: a function of seed, epoch and the pair's
    index in it.

    Phrases of its sentences are added to the pairs, and may be augmented as they are.

    The text of a pair decides whether anything in it can be augmented, so fewer pairs are augmented
    than are drawn. Only augmented pairs are tokenized again, before the batches are planned: text
    in capitals has about three times the tokens. [`EpochCache`] says which process does so; with
    guided alignment, each process.

    For guided alignment their words keep their links, which are links between other tokens now,
    unless words were added or removed, as `inline_terms` does: see [`follow_words`]. Then the pair
    guides nothing in this epoch. Aligning the changed text instead would miss what the aligner has
    never seen, such as typos.

    Args:
        augment: Functions with the share of the pairs for which each is drawn. A pair may get
            several, in this order.
        max_tokens (`int`): A pair with a side that would become longer stays as it is.
        phrases: The share of the pairs for which a phrase is drawn.
        draw: Returns a phrase of a pair and its aligned words, given the ones of the pair, or the
            same pair if it has none.
        key (`str`): A hash of what decides the texts and changes of an epoch, beside its rows, and
            of the tokenizer.
    """

    def __init__(
        self,
        plain: Corpus,
        augment: Mapping[Augment, float],
        encode: Encode,
        seed: int,
        max_tokens: int,
        phrases: float,
        draw: DrawPhrase,
        key: str,
        cache_dir: Path,
    ):
        super().__init__(plain)
        self.augment = augment
        self.encode = encode
        self.seed = seed
        self.max_tokens = max_tokens
        self.phrases = phrases
        self.draw = draw
        self.cache = EpochCache(cache_dir, "augmented", (_EPOCH_FORMAT, key, seed, max_tokens))

    def derive(self, pairs: EncodedPairs, epoch: int) -> EncodedPairs:
        """Return the pairs of an epoch, in which the changed ones are rows appended to its table,
        and phrases after them.
        """
        self.texts = self.plain.texts
        sentences = len(pairs)
        generator = np.random.default_rng((self.seed, epoch, 2))
        drawn = np.flatnonzero(generator.random(sentences) < self.phrases)
        pairs = pairs.select(np.append(np.arange(sentences), drawn))
        changed = self._change_texts(pairs, sentences, epoch)
        indices = changed.data.column(_INDEX).to_numpy()
        if len(drawn) and indices.max(initial=0) < sentences:
            logger.warning(
                "`phrases` of `augment` adds nothing to epoch %d: none of %d sentences has phrases "
                "of aligned words with spaces between them.",
                epoch,
                len(drawn),
            )
        if not len(changed):
            return pairs[:sentences]
        tokens = changed.select_columns([*TOKEN_FEATURES])
        if self.links is not None:
            changed_pairs = list(map(SentencePair, changed["source"], changed["target"]))
            words = [_to_words(row) for row in changed[_ALIGNED_WORDS]]
            links = self.links.find(changed_pairs, words)
            tokens = datasets.concatenate_datasets([tokens, links], axis=1)
        rows = pairs.rows.copy()
        rows[indices] = len(pairs.table) + np.arange(len(changed))
        texts = changed.select_columns(self.texts.column_names)
        self.texts = datasets.concatenate_datasets([self.texts, texts])
        table = datasets.concatenate_datasets([pairs.table.dataset, tokens])
        is_kept = (np.arange(len(rows)) < sentences) | (rows >= len(pairs.table))
        return EncodedPairs(TokenTable(table), rows[is_kept])

    def _change_texts(self, pairs: EncodedPairs, sentences: int, epoch: int) -> datasets.Dataset:
        """
        Return the text and the tokens of the pairs that augmentation changes, with their indices in
        the epoch and their aligned words.

        Args:
            sentences: The number of pairs that are sentences. The others become phrases.
        """
        shares = np.array(list(self.augment.values()))
        generator = np.random.default_rng((self.seed, epoch, 1))
        drawn = np.empty((len(pairs), len(shares)), bool)
        for first in range(0, len(pairs), _DRAWN_TOGETHER):
            part = drawn[first : first + _DRAWN_TOGETHER]
            part[:] = generator.random(part.shape) < shares
        indices = np.flatnonzero(drawn.any(axis=1) | (np.arange(len(pairs)) >= sentences))
        features = datasets.Features(self.texts.features | TOKEN_FEATURES | _FEATURES)
        if not len(indices):
            return datasets.Dataset.from_dict({name: [] for name in features}, features)
        rows = pairs.rows[indices]
        change = _TextChange(
            augment=list(self.augment),
            encode=self.encode,
            seed=f"{self.seed} {epoch} augment",
            max_tokens=self.max_tokens,
            draw=self.draw,
            sentences=sentences,
            indices=indices,
            drawn=drawn[indices],
        )
        texts = self.texts.select(rows)
        if self.links is None:
            return self.cache.encode(texts, pairs.rows, epoch, change, features)
        values, sizes = self.links.words.read(rows)
        words = np.split(values, np.cumsum(sizes)[:-1])
        change = replace(change, words=words)
        return encode_texts(texts, change, num_proc=1, with_indices=True, features=features)


@dataclass(frozen=True, eq=False)
class _TextChange:
    """
    The changes of an epoch, a picklable function of some of its drawn pairs for [`encode_texts`].

    Args:
        seed: The beginning of the seed of each pair.
        sentences: The number of pairs of the epoch that are sentences. The others become phrases.
        indices (`np.ndarray` of shape `(drawn,)`): The index of each drawn pair in the epoch.
        drawn (`np.ndarray` of shape `(drawn, augmentations)`): The augmentations of each of them.
        words: The aligned words of each of them, as [`TokenLinks`] has them, if there are some.
    """

    augment: Sequence[Augment]
    encode: Encode
    seed: str
    max_tokens: int
    draw: DrawPhrase
    sentences: int
    indices: np.ndarray
    drawn: np.ndarray
    words: Sequence[np.ndarray] | None = None

    def __call__(self, batch: dict[str, list], positions: Sequence[int]) -> dict[str, list]:
        """Return the changed pairs of a batch, but for those with a side above `max_tokens`.

        Args:
            positions: The position of each pair among the drawn ones.
        """
        names = [*batch, _INDEX, _ALIGNED_WORDS]
        columns: dict[str, list] = {name: [] for name in names}
        for row, position in enumerate(positions):
            before = SentencePair(batch["source"][row], batch["target"][row])
            pair, words = self._change(before, position)
            if pair == before:
                continue
            changed = {name: values[row] for name, values in batch.items()} | pair._asdict()
            changed[_INDEX] = int(self.indices[position])
            changed[_ALIGNED_WORDS] = [*chain.from_iterable(sorted(words))]
            for name, value in changed.items():
                columns[name].append(value)
        columns |= encode_sides(columns, self.encode)
        sides = zip(columns["input_ids"], columns["labels"], strict=True)
        longest = np.array([max(len(source), len(target)) for source, target in sides], int)
        kept = np.flatnonzero(longest <= self.max_tokens).tolist()
        for name, values in columns.items():
            columns[name] = [values[row] for row in kept]
        return columns

    def _change(self, pair: SentencePair, position: int) -> tuple[SentencePair, set[WordPair]]:
        """Return a drawn pair and its aligned words after its changes, or the same pair."""
        words = set[WordPair]()
        if self.words is not None:
            words = _to_words(self.words[position])
        index = self.indices[position]
        random = Random(f"{self.seed} {index}")
        if index >= self.sentences:
            before = pair
            pair, words = self.draw(pair, words, random)
            if pair == before:
                return pair, words
        for function, is_drawn in zip(self.augment, self.drawn[position], strict=True):
            if is_drawn:
                last, pair = pair, function(pair, random)
                words = follow_words(words, last, pair)
        return pair, words


def _to_words(numbers: Sequence[int] | np.ndarray) -> set[WordPair]:
    """Return aligned words, given their numbers one after another."""
    rows = np.reshape(numbers, (-1, 2)).astype(int).tolist()
    return {(source, target) for source, target in rows}


def find_augmentations(
    augmentations: Mapping[str, float],
    texts: datasets.Dataset,
    key: str,
    cache_dir: Path,
    tags: Sequence[str] = (),
) -> dict[Augment, float]:
    """
    Return the functions of a recipe's augmentations with their shares, in the same order.

    A perturbation that is not meant for the scripts of many sources skips them, with a warning.

    Args:
        texts, key: The training text and its hash; the lexicon of inline terms is fitted to it.
        tags: Words at the start of sources, which no augmentation changes.
    """
    functions: dict[str, Augment] = {
        "noise_pairs": replace_by_noise,
        "placeholders": insert_placeholders,
    }
    functions |= {name: partial(perturb_pair, name=name) for name in PERTURBATIONS}
    if "inline_terms" in augmentations:
        lexicon = _load_lexicon(texts, key, cache_dir)
        words = sorted({*chain.from_iterable(lexicon.values())})
        functions["inline_terms"] = partial(insert_inline_terms, lexicon=lexicon, words=words)
    rows = range(0, len(texts), max(1, len(texts) // _SAMPLE))
    sources = texts.select(rows)["source"]
    sample = [source.removeprefix(tag_of(source, tags)) for source in sources]
    for name in augmentations:
        if name not in PERTURBATIONS:
            continue
        skipped = [text for text in sample if not PERTURBATIONS[name].suits(text)]
        if len(skipped) > _MANY * len(sample):
            scripts = ", ".join(find_scripts(skipped))
            reason = f"it needs {PERTURBATIONS[name].needs}, and they are in {scripts}"
            logger.warning(
                "`%s` of `augment` skips %.0f %% of the sources: %s.",
                name,
                100 * len(skipped) / len(sample),
                reason,
            )
    if tags:
        for name, augment in functions.items():
            functions[name] = partial(_augment_after_tag, augment=augment, tags=tags)
    return {functions[name]: share for name, share in augmentations.items()}


def _augment_after_tag(
    pair: SentencePair, random: Random, augment: Augment, tags: Sequence[str]
) -> SentencePair:
    tag = tag_of(pair.source, tags)
    changed = augment(pair._replace(source=pair.source.removeprefix(tag)), random)
    return changed._replace(source=f"{tag}{changed.source}")


def _load_lexicon(texts: datasets.Dataset, key: str, cache_dir: Path) -> Lexicon:
    """Return the lexicon of a text, and fit it only if the cache does not hold it."""

    def write(folder: Path) -> None:
        first = texts.select(range(min(len(texts), _LEXICON_PAIRS)))
        lexicon = fit_lexicon(list(map(SentencePair, first["source"], first["target"])))
        content = json.dumps(lexicon, ensure_ascii=False)
        (folder / _LEXICON_FILE).write_text(content, encoding="utf-8")

    content = (_FORMAT, key, _LEXICON_PAIRS)
    folder = cached_work(cache_dir, "lexicon", content, write)
    lexicon = json.loads((folder / _LEXICON_FILE).read_text(encoding="utf-8"))
    if not lexicon:
        raise UserError(
            "`inline_terms` of `augment` must be given for text whose words have reliable "
            "translations, but none of its words has one. Leave it out, or give more text."
        )
    return lexicon
