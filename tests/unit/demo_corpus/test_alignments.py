"""Gold alignments against links written by hand, for each point of the guideline in `words.py`."""

import pytest

from tools.demo_corpus import SPLITS, generate_sentences
from tools.demo_corpus.lexicon import CLOCKS, FIXED_PLACES, FREQUENCIES, FUTURE_TIMES, HABIT_TIMES, MANNERS, PAST_TIMES
from tools.demo_corpus.spelling import spell_out_aligned

from .test_gold_pairs import GOLD

# The links of sentences of `GOLD`; words without a link are left out.
LINKS = {
    # words in another order, tenses, articles that one side lacks
    "She sold this expensive big house.":
        "She=Sie sold=hat sold=verkauft. this=dieses expensive=teure big=große house.=Haus",
    "She gave the ball to the boy.": "She=Sie gave=hat gave=gegeben. the=den ball=Ball the=dem boy.=Jungen",
    "He is repairing Anna's old car.": "He=Er is=repariert repairing=repariert Anna's=Annas old=altes car.=Auto.",
    "The woman found the boy's hat.":
        "The=Die woman=Frau found=hat found=gefunden. the=des boy's=Jungen hat.=Hut",
    # times of day, modal verbs and gern
    "I got up at half past six yesterday.":
        "I=Ich got=bin got=aufgestanden. up=aufgestanden. at=um half=halb past=halb six=sieben yesterday.=gestern",
    "She does not have to buy the jacket.":
        "She=Sie does=muss not=nicht have=muss to=muss buy=kaufen. the=die jacket.=Jacke",
    "The boy does not like to eat apples.":
        "The=Der boy=Junge does=isst not=nicht like=gern to=gern eat=isst apples.=Äpfel.",
    # kein, contractions, prepositions of verbs
    "The woman did not buy a red car.":
        "The=Die woman=Frau did=hat not=kein buy=gekauft. a=kein red=rotes car.=Auto",
    "He is not a teacher.": "He=Er is=ist not=kein a=kein teacher.=Lehrer.",
    "She is not waiting for the train at the station.":
        "She=Sie is=wartet not=nicht waiting=wartet for=auf the=den train=Zug. at=am the=am station.=Bahnhof",
    # separable verbs, subordinate clauses
    "Please do not close the bag.": "Please=bitte do=Mach not=nicht close=Mach close=zu. the=die bag.=Tasche",
    "I know that the woman is opening the door.":
        "I=Ich know=weiß, that=dass the=die woman=Frau is=aufmacht. opening=aufmacht. the=die door.=Tür",
    "I am waiting for the woman that you are thinking of.":
        "I=Ich am=warte waiting=warte for=auf the=die woman=Frau, that=die you=du are=denkst. thinking=denkst. of.=an",
    "The house is bigger than the garden.": "The=Das house=Haus is=ist bigger=größer than=als the=der garden.=Garten.",
    # there is, and two main clauses with the same words
    "There is no milk in the kitchen.": "There=es is=gibt no=keine milk=Milch. in=In the=der kitchen.=Küche",
    "Are there any eggs in the kitchen?": "Are=Gibt there=es eggs=Eier? in=in the=der kitchen?=Küche",
    "She is looking for the book, but she cannot find it.":
        "She=Sie is=sucht looking=sucht for=sucht the=das book,=Buch, but=aber she=sie cannot=kann cannot=nicht "
        "find=finden. it.=es",
}  # fmt: skip
ADVERBS = (*CLOCKS, *FREQUENCIES, *FUTURE_TIMES, *HABIT_TIMES, *PAST_TIMES, *MANNERS.values())


def written_links(source: str, target: str, alignment: str) -> str:
    """Return an alignment as pairs of words."""
    words, others = source.split(), target.split()
    links = (map(int, link.split("-")) for link in alignment.split())
    return " ".join(f"{words[place]}={others[other]}" for place, other in links)


@pytest.mark.parametrize("english", LINKS)
def test_spell_out_aligned_gives_the_links_written_by_hand(english: str) -> None:
    sentence = next(sentence for sentence, text, _ in GOLD if text == english)
    pair, alignment = spell_out_aligned(sentence)
    assert written_links(*pair, alignment) == LINKS[english]


def test_spell_each_finds_as_many_units_in_both_languages() -> None:
    places = [adverb for pair in FIXED_PLACES.values() for adverb in pair]
    for adverb in (*ADVERBS, *places):
        assert len(adverb.english.split()) == len(adverb.german.split()), adverb


@pytest.mark.parametrize("split", SPLITS)
def test_spell_out_aligned_leaves_few_words_without_a_link(split: str) -> None:
    """Only the words that the guideline names: the to of recipients, and articles that the other side lacks."""
    for pair, alignment, _, _ in generate_sentences(split, 300):
        links = [tuple(map(int, link.split("-"))) for link in alignment.split()]
        for side, text in enumerate(pair):
            words = text.split()
            loose = [words[place] for place in set(range(len(words))) - {link[side] for link in links}]
            allowed = {"to", "to?", "to.", "a", "any"} if side == 0 else {"der", "die", "das", "den", "dem"}
            assert {word.lower() for word in loose} <= allowed, (pair, alignment)
