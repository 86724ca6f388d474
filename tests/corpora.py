"""Tokenized corpora of given lengths in memory, and files of English-German sentences from a few
templates, with the words that translate each other.
"""

import random
from pathlib import Path

import datasets
import numpy as np

from vanilla_transformer.data.corpus import Epochs
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import (
    EncodedPair,
    EncodedPairs,
    TokenTable,
    to_dataset,
)


def encoded_pairs(pairs, chunks=1):
    """Return pairs in a table of several Arrow chunks."""
    bounds = np.linspace(0, len(pairs), chunks + 1).astype(int)
    parts = [
        to_dataset(pairs[begin:end])
        for begin, end in zip(bounds, bounds[1:], strict=False)
        if end > begin
    ]
    return EncodedPairs(TokenTable(datasets.concatenate_datasets(parts)))


class LengthsCorpus(Epochs):
    """Pairs of the given lengths, the same in every epoch.

    Each token of a source is the number of its pair.
    """

    is_constant = True

    def __init__(self, lengths):
        self.lengths = lengths
        self.pairs = self.tokenize(0)

    def tokenize(self, epoch):
        return encoded_pairs(
            [EncodedPair([n] * length, [epoch] * length) for n, length in enumerate(self.lengths)]
        )

    def epoch(self, number, stage=0):
        return self.pairs


class FreshCorpus(LengthsCorpus):
    """Pairs in another table for each epoch, as with BPE-dropout.

    Each token of a target is the epoch.
    """

    is_constant = False

    def epoch(self, number, stage=0):
        return self.tokenize(number)


# Nominative, accusative.
_ARTICLES = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
# No content word is in a tenth of the sentences.
_NOUNS = {  # by gender
    "m": (
        "dog Hund man Mann table Tisch apple Apfel key Schlüssel hat Hut letter Brief tree "
        "Baum spoon Löffel"
    ),
    "f": (
        "woman Frau cat Katze lamp Lampe flower Blume bag Tasche bottle Flasche clock Uhr door Tür"
    ),
    "n": (
        "child Kind book Buch house Haus picture Bild horse Pferd bicycle Fahrrad window "
        "Fenster glass Glas"
    ),
}
_ADJECTIVES = (
    "red rote old alte small kleine new neue white weiße black schwarze green grüne "
    "big große young junge clean saubere dirty schmutzige heavy schwere light leichte fast "
    "schnelle quiet leise cheap billige expensive teure round runde broken kaputte warm warme cold "
    "kalte strange seltsame empty leere full volle soft weiche hard harte"
)
_VERBS = {  # third person, its translation, infinitive
    "see": ("sees", "sieht", "sehen"),
    "buy": ("buys", "kauft", "kaufen"),
    "find": ("finds", "findet", "finden"),
    "paint": ("paints", "malt", "malen"),
}
_MODALS = {"can": "kann", "must": "muss", "may": "darf"}
_ADVERBS = {"today": "heute", "here": "hier", "often": "oft"}

# A word of a sentence: English, German, and its place in the German sentence.
_Word = tuple[str, str, int]


def aligned_pairs(count: int, seed: int = 0) -> list[tuple[SentencePair, str]]:
    """Return distinct pairs, each with its gold alignment in the format of Moses: `0-0 1-1 2-4`.

    A modal verb sends the full verb to the end in German, and an adverb comes before it.
    """
    draw, alignments = random.Random(seed), dict[SentencePair, str]()
    while len(alignments) < count:
        pair, alignment = _spell(_sentence(draw))
        alignments.setdefault(pair, alignment)
    return [*alignments.items()]


def write_aligned_corpus(folder: Path, **counts: int) -> None:
    """Write `NAME.en`, `NAME.de` and `NAME.align` for each name, with distinct pairs in all."""
    rows = aligned_pairs(sum(counts.values()))
    for name, count in counts.items():
        lines = {"en": "", "de": "", "align": ""}
        for pair, alignment in rows[:count]:
            lines["en"] += f"{pair.source}\n"
            lines["de"] += f"{pair.target}\n"
            lines["align"] += f"{alignment}\n"
        rows = rows[count:]
        for end, text in lines.items():
            (folder / f"{name}.{end}").write_text(text, encoding="utf-8")


def _sentence(draw: random.Random) -> list[_Word]:
    """Draw a sentence, word by word in the English order."""
    verb = draw.choice([*_VERBS])
    modal = draw.choice([*_MODALS])
    adverb = draw.choice([*_ADVERBS])
    third_person, present, infinitive = _VERBS[verb]
    subject, object_ = _noun_phrase(draw, 0, 0), _noun_phrase(draw, 1, 4)
    verbs = [(modal, _MODALS[modal], 3), (verb, infinitive, 8)]
    if draw.random() < 0.5:
        verbs = [(third_person, present, 3)]
    return [*subject, *verbs, *object_, (adverb, _ADVERBS[adverb], 7)]


def _noun_phrase(draw: random.Random, case: int, start: int) -> list[_Word]:
    gender = draw.choice([*_NOUNS])
    noun, german_noun = _draw_entry(draw, _NOUNS[gender])
    adjective, german_adjective = _draw_entry(draw, _ADJECTIVES)
    ending = "n" if gender == "m" and case else ""
    return [
        ("the", _ARTICLES[gender][case], start),
        (adjective, german_adjective + ending, start + 1),
        (noun, german_noun, start + 2),
    ]


def _draw_entry(draw: random.Random, entries: str) -> tuple[str, str]:
    """Draw a word and its translation, which follows it in `entries`."""
    words = entries.split()
    index = 2 * draw.randrange(len(words) // 2)
    return words[index], words[index + 1]


def _spell(words: list[_Word]) -> tuple[SentencePair, str]:
    order = sorted(range(len(words)), key=lambda number: words[number][2])
    links = sorted((source, target) for target, source in enumerate(order))
    source = " ".join(word for word, _, _ in words)
    target = " ".join(words[number][1] for number in order)
    alignment = " ".join(f"{english}-{german}" for english, german in links)
    return SentencePair(_capitalized(source), _capitalized(target)), alignment


def _capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
