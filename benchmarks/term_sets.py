"""Test sentences of the demo corpus's grammar with nouns that its training text lacks, and glossaries of them."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from tools.demo_corpus.combinations import combinations, split_of
from tools.demo_corpus.draw import Draw
from tools.demo_corpus.generation import FRAMES
from tools.demo_corpus.nouns import noun
from tools.demo_corpus.spelling import SentencePair, spell_out
from tools.demo_corpus.structures import Noun, Sentence
from vanilla_transformer.text.glossary import Glossary

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
    """Sentences that each have a new noun, with the glossary that asks for it in the nominative."""

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
            yield spell_out(changed)


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


__all__ = ["TermSet", "build_term_sets"]
