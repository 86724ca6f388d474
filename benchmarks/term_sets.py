"""
Test sentences with glossaries: of the demo corpus's grammar, with nouns that its training text lacks, and of a user's
text, with the translations that its training text has.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from tools.demo_corpus.combinations import combinations, split_of
from tools.demo_corpus.draw import Draw
from tools.demo_corpus.generation import FRAMES
from tools.demo_corpus.nouns import noun
from tools.demo_corpus.spelling import spell_out
from tools.demo_corpus.structures import Noun, Sentence
from vanilla_transformer.data.lexicon import fit_lexicon
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text.term_forms import count_forms
from vanilla_transformer.text.units import split_words

# A noun of the corpus, another German noun for it, and a pair of nouns that take its place. German nouns have their
# gender, plural, genitive and, if they are weak, other singular cases.
_NEW = (
    ("dog", "Köter m Köter Köters", "goat", "Ziege f Ziegen Ziege"),
    ("cat", "Mieze f Miezen Mieze", "parrot", "Papagei m Papageien Papageien Papageien"),
    ("horse", "Gaul m Gäule Gauls", "donkey", "Esel m Esel Esels"),
    ("car", "Wagen m Wagen Wagens", "truck", "Laster m Laster Lasters"),
    ("house", "Gebäude n Gebäude Gebäudes", "castle", "Burg f Burgen Burg"),
    ("jacket", "Weste f Westen Weste", "scarf", "Schal m Schals Schals"),
    ("hat", "Mütze f Mützen Mütze", "glove", "Handschuh m Handschuhe Handschuhs"),
    ("bag", "Tüte f Tüten Tüte", "basket", "Korb m Körbe Korbes"),
    ("room", "Kammer f Kammern Kammer", "cellar", "Keller m Keller Kellers"),
    ("letter", "Schreiben n Schreiben Schreibens", "parcel", "Paket n Pakete Pakets"),
    ("picture", "Gemälde n Gemälde Gemäldes", "mirror", "Spiegel m Spiegel Spiegels"),
    ("boy", "Knabe m Knaben Knaben Knaben", "soldier", "Soldat m Soldaten Soldaten Soldaten"),
    ("doctor", "Mediziner m Mediziner Mediziners", "lawyer", "Anwalt m Anwälte Anwalts"),
    ("teacher", "Dozent m Dozenten Dozenten Dozenten", "baker", "Bäcker m Bäcker Bäckers"),
    ("table", "Pult n Pulte Pultes", "desk", "Schreibtisch m Schreibtische Schreibtisches"),
    ("bottle", "Kanne f Kannen Kanne", "pot", "Topf m Töpfe Topfes"),
    ("soup", "Brühe f Brühen Brühe", "salad", "Salat m Salate Salats"),
    ("forest", "Hain m Haine Hains", "meadow", "Wiese f Wiesen Wiese"),
    ("story", "Sage f Sagen Sage", "poem", "Gedicht n Gedichte Gedichts"),
    ("lamp", "Leuchte f Leuchten Leuchte", "clock", "Uhr f Uhren Uhr"),
)  # fmt: skip
_GENDERS: dict[str, Any] = {"m": "masculine", "f": "feminine", "n": "neuter"}


class TermSet(NamedTuple):
    """Sentences that each have a term, with the glossary that asks for its translation."""

    name: str
    pairs: list[SentencePair]
    glossary: Glossary


def build_term_sets(count: int, seed: int = 0) -> list[TermSet]:
    """Return `count` sentences with other translations of known nouns, and as many with unknown nouns."""
    known, unknown = {}, {}
    for english, german, other, other_german in _NEW:
        old = noun(english)
        known[old] = _with_german(old, german)
        unknown[old] = replace(_with_german(old, other_german), english=other, english_plural=f"{other}s")
    return [_build("known nouns, other translations", known, count, seed), _build("new nouns", unknown, count, seed)]


def find_term_sets(test: Sequence[SentencePair], training: Sequence[SentencePair]) -> list[TermSet]:
    """Return the test pairs in which words have their most frequent translation of the training text, or the second.

    A pair belongs to a set if its reference has the wanted translations of all terms of its source, with any ending.
    IBM model 1 finds the translations; forms with the same beginning count as one. Only those with a capital are
    terms: in German, nouns.
    """
    ranked = _rank_translations(training)
    sets = []
    for rank, name in enumerate(("most frequent translations", "second most frequent translations")):
        terms = [(word, forms[rank]) for word, forms in ranked.items() if len(forms) > rank]
        if terms:
            glossary = Glossary(terms, name=name)
            sets.append(TermSet(name, [pair for pair in test if _has_terms(pair, glossary)], glossary))
    return [each for each in sets if each.pairs]


def _rank_translations(pairs: Sequence[SentencePair]) -> dict[str, list[str]]:
    """Return the translations of each word in the lexicon of a text, the most frequent one first."""
    lexicon = fit_lexicon(pairs)
    counts: dict[str, Counter[str]] = {word: Counter() for word in lexicon}
    for source, target in pairs:
        words = set(split_words(target))
        for word in lexicon.keys() & {each.casefold() for each in split_words(source)}:
            found = {citation for form, citation in lexicon[word].items() if form in words}
            counts[word].update(citation for citation in sorted(found) if citation[0].isupper())
    return {word: [form for form, _ in found.most_common()] for word, found in counts.items()}


def _has_terms(pair: SentencePair, glossary: Glossary) -> bool:
    matches = glossary.find(pair.source)
    return bool(matches) and all(count_forms(match.target, pair.target) for match in matches)


def _with_german(old: Noun, german: str) -> Noun:
    word, gender, plural, genitive, *oblique = german.split()
    forms = {"german": word, "gender": _GENDERS[gender], "plural": plural, "genitive": genitive}
    return replace(old, **forms, oblique="".join(oblique))


def _build(name: str, nouns: dict[Noun, Noun], count: int, seed: int) -> TermSet:
    found = dict.fromkeys(islice(_sentences(nouns, seed), 2 * count))
    terms = [(new.english, new.german) for new in nouns.values()]
    terms += [(new.english_plural, new.plural) for new in nouns.values()]
    return TermSet(name, list(found)[:count], Glossary(terms, name=name))


def _sentences(nouns: dict[Noun, Noun], seed: int) -> Iterator[SentencePair]:
    """Yield the sentences of the test split that have one of the nouns, with the new ones in their place."""
    draw = Draw(f"terms:{seed}")
    while True:
        sentence: Sentence = draw.weighted(FRAMES)(draw)
        changed = _replace_nouns(sentence, nouns, {})
        if changed is not sentence and split_of(combinations(sentence)) == "test":
            yield SentencePair(*spell_out(changed))


def _replace_nouns(item: Any, nouns: dict[Noun, Noun], done: dict[int, Any]) -> Any:
    """Return a structure with other nouns; parts without any are the same objects, and so is what occurs twice."""
    if isinstance(item, Noun):
        return nouns.get(item, item)
    if isinstance(item, tuple):
        changed = tuple(_replace_nouns(each, nouns, done) for each in item)
        return item if all(one is other for one, other in zip(item, changed, strict=True)) else changed
    if not is_dataclass(item) or isinstance(item, type):
        return item
    if id(item) not in done:
        values = {field.name: getattr(item, field.name) for field in fields(item)}
        other = {name: _replace_nouns(value, nouns, done) for name, value in values.items()}
        is_same = all(value is other[name] for name, value in values.items())
        done[id(item)] = item if is_same else replace(item, **other)
    return done[id(item)]


__all__ = ["TermSet", "build_term_sets", "find_term_sets"]
