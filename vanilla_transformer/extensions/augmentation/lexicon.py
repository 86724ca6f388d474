"""Find the translations of content words in a parallel text, by IBM model 1 (Brown et al.,
1993).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.text.units import is_word_of_letters, split_graphemes, split_words

# The forms in which a word is translated, and of each the most likely form of the same word.
Lexicon = dict[str, dict[str, str]]
_LEXICON_ITERATIONS = 5
_LEAST_PROBABILITY = 0.1  # in each direction
_LEAST_COUNT = 2  # of pairs that a word and its translation share
_MOST_FREQUENT = 0.1  # share of the sentences; words in more of them are function words
_SHARED_START = 3  # letters that forms of one word share


def fit_lexicon(pairs: Sequence[SentencePair]) -> Lexicon:
    """Return the content words of the source side, in lower case, and their translations in the
    text.
    """
    source_words, sources = _number_words([pair.source for pair in pairs], str.casefold)
    target_words, targets = _number_words([pair.target for pair in pairs], str)
    if not source_words or not target_words:
        return {}
    source_rows, target_rows, sizes = [], [], []
    for source, target in zip(sources, targets, strict=True):
        source_rows.append(np.repeat(source, len(target)))
        target_rows.append(np.tile(target, len(source)))
        sizes.append(len(source) * len(target))
    source_cells = np.concatenate(source_rows)
    target_cells = np.concatenate(target_rows)
    if not len(source_cells):  # no sentence has words on both sides
        return {}
    sentence = np.repeat(np.arange(len(sizes)), sizes)
    (source, target), forward, counts = _fit_lexicon(source_cells, target_cells, sentence)
    (back_target, back_source), backward, _ = _fit_lexicon(target_cells, source_cells, sentence)
    # In the order of `forward`.
    backward = backward[np.lexsort((back_target, back_source))]
    kept = (forward >= _LEAST_PROBABILITY) & (backward >= _LEAST_PROBABILITY)
    kept &= counts >= _LEAST_COUNT
    probabilities: dict[str, dict[str, float]] = {}
    for index in np.flatnonzero(kept):
        forms = probabilities.setdefault(source_words[source[index]], {})
        forms[target_words[target[index]]] = float(forward[index])
    lexicon: Lexicon = {}
    for word, forms in probabilities.items():
        starts = {}
        for form in forms:
            starts[form] = "".join(split_graphemes(form)[:_SHARED_START]).casefold()
        likeliest: dict[str, str] = {}  # form of each start
        for form in sorted(forms, key=lambda form: (forms[form], form), reverse=True):
            likeliest.setdefault(starts[form], form)
        lexicon[word] = {form: likeliest[starts[form]] for form in forms}
    return lexicon


def _number_words(
    texts: Sequence[str], change: Callable[[str], str]
) -> tuple[list[str], list[np.ndarray]]:
    """Return the content words of one side, and their numbers in each sentence, without
    repetitions.
    """
    sentences = []
    for text in texts:
        words = {change(word) for word in split_words(text) if is_word_of_letters(word)}
        sentences.append(words)
    counts = Counter(chain.from_iterable(sentences))
    most = _MOST_FREQUENT * len(sentences)
    known = sorted(word for word in counts if counts[word] <= most)
    numbers = {word: number for number, word in enumerate(known)}
    rows = []
    for words in sentences:
        row = sorted(numbers[word] for word in words & numbers.keys())
        rows.append(np.array(row, np.int64))
    return known, rows


def _fit_lexicon(
    condition: np.ndarray, word: np.ndarray, sentence: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `(condition, word)` of each kind, the probability of the word under the condition, and
    their common sentences.
    """
    words = int(word.max()) + 1
    kinds, cells, counts = np.unique(
        condition * words + word, return_inverse=True, return_counts=True
    )
    _, groups = np.unique(sentence * words + word, return_inverse=True)
    owners = kinds // words
    probabilities = np.ones(len(kinds))
    for _ in range(_LEXICON_ITERATIONS):
        shares = probabilities[cells]
        expected = np.bincount(cells, shares / np.bincount(groups, shares)[groups])
        probabilities = expected / np.bincount(owners, expected)[owners]
    return np.stack([owners, kinds % words]), probabilities, counts
