"""No English word has two German ones: the reason why a sentence has one translation."""

import itertools

from tools.demo_corpus import lexicon
from tools.demo_corpus.lexicon import ADJECTIVES, adjectives_for
from tools.demo_corpus.nouns import NOUNS, UNITS, nouns_of
from tools.demo_corpus.structures import Adverb, Noun, Verb
from tools.demo_corpus.verbs import VERBS


def adverbs() -> set[Adverb]:
    """All fixed adverbials of the lexicon, out of its constants and collections."""
    found: set[Adverb] = set()
    waiting = [value for name, value in vars(lexicon).items() if not name.startswith("__")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Adverb):
            found.add(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, tuple):
            waiting.extend(value)
    return found


def test_lexicon_has_one_translation_of_every_adverbial() -> None:
    """Save "where", which the verb decides: wohin with going, else wo."""
    found = adverbs() - set(lexicon.QUESTION_WORDS.values())
    translations = {(adverb.english, adverb.german) for adverb in found}
    assert len(found) > 70
    assert len({english for english, _ in translations}) == len(translations)


def test_lexicon_nouns_differ_and_show_their_number() -> None:
    words = [word for thing in NOUNS + UNITS for word in (thing.english, thing.english_plural)]
    assert len(set(words)) == len(words)


def test_lexicon_adjectives_have_one_translation_and_suit_some_nouns() -> None:
    assert len({word.english for word in ADJECTIVES}) == len(ADJECTIVES)
    for word in ADJECTIVES:
        assert sum(word in adjectives_for(thing) for thing in NOUNS) >= 2, word.english


def english_verb(verb: Verb) -> tuple[str, str, str, str]:
    return verb.english, verb.past, verb.particle, verb.english_preposition


def takes(kinds: tuple[str, ...]) -> set[Noun]:
    return set(nouns_of(kinds))


def test_lexicon_verbs_alike_in_english_go_with_different_nouns() -> None:
    """People essen and animals fressen; one knows (kennen) somebody, but knows (wissen) that."""
    alike = [pair for pair in itertools.combinations(VERBS, 2) if english_verb(pair[0]) == english_verb(pair[1])]
    different = [pair for pair in alike if pair[0].infinitive != pair[1].infinitive]
    assert len(different) >= 5
    for first, second in different:
        subjects = takes(first.subjects) & takes(second.subjects)
        objects = takes(first.objects) & takes(second.objects)
        both_have_objects = bool(first.objects) == bool(second.objects)
        assert not (subjects and objects and both_have_objects), (first.infinitive, second.infinitive)


def test_lexicon_verbs_find_subjects_and_objects() -> None:
    for verb in VERBS:
        assert not verb.subjects or takes(verb.subjects), verb.infinitive
        assert len(takes(verb.objects)) >= (2 if verb.objects else 0), verb.infinitive
