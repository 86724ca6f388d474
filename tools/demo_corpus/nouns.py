"""The nouns of the corpus. The kinds say how a noun is used (eaten, read, opened) and which adjectives suit it.

No noun has two meanings or two translations here, in either direction, and no English noun looks the same in
singular and plural, so that an English sentence has one German translation.
"""

from __future__ import annotations

from functools import cache

from .structures import Gender, Noun

_GENDERS: dict[str, Gender] = {"m": "masculine", "f": "feminine", "n": "neuter"}


def _noun(german: str, gender: str, plural: str, genitive: str, english: str, kinds: str, **rest: str) -> Noun:
    return Noun(
        german=german,
        gender=_GENDERS[gender],
        plural=plural,
        genitive=genitive,
        english=english,
        english_plural=rest.get("english_plural", english + "s"),
        kinds=frozenset(kinds.split()),
        oblique=rest.get("oblique", ""),
    )


_PEOPLE = (
    _noun("Mann", "m", "Männer", "Mannes", "man", "person adult male unowned", english_plural="men"),
    _noun("Frau", "f", "Frauen", "Frau", "woman", "person adult female unowned", english_plural="women"),
    _noun("Kind", "n", "Kinder", "Kindes", "child", "person young", english_plural="children"),
    _noun("Junge", "m", "Jungen", "Jungen", "boy", "person young male unowned", oblique="Jungen"),
    _noun("Mädchen", "n", "Mädchen", "Mädchens", "girl", "person young unowned"),
    _noun("Lehrer", "m", "Lehrer", "Lehrers", "teacher", "person adult male worker host"),
    _noun("Arzt", "m", "Ärzte", "Arztes", "doctor", "person adult male worker host"),
    _noun("Student", "m", "Studenten", "Studenten", "student", "person male worker", oblique="Studenten"),
    _noun("Nachbar", "m", "Nachbarn", "Nachbarn", "neighbour", "person adult male host", oblique="Nachbarn"),
    _noun("Freund", "m", "Freunde", "Freundes", "friend", "person male kin host"),
    _noun("Schwester", "f", "Schwestern", "Schwester", "sister", "person female kin host"),
    _noun("Bruder", "m", "Brüder", "Bruders", "brother", "person male kin host"),
    _noun("Tochter", "f", "Töchter", "Tochter", "daughter", "person female kin host offspring"),
    _noun("Sohn", "m", "Söhne", "Sohnes", "son", "person male kin host offspring"),
    _noun("Mutter", "f", "Mütter", "Mutter", "mother", "person adult female kin host single"),
)
_ANIMALS = (
    _noun("Hund", "m", "Hunde", "Hundes", "dog", "animal pet washable loseable owned lively"),
    _noun("Katze", "f", "Katzen", "Katze", "cat", "animal pet loseable owned lively"),
    _noun("Pferd", "n", "Pferde", "Pferdes", "horse", "animal grazer washable owned lively"),
    _noun("Vogel", "m", "Vögel", "Vogels", "bird", "animal countable"),
)
_FOOD = (
    _noun("Apfel", "m", "Äpfel", "Apfels", "apple", "food sized goods washable given countable grass"),
    _noun("Ei", "n", "Eier", "Eis", "egg", "food sized goods countable"),
    _noun("Kartoffel", "f", "Kartoffeln", "Kartoffel", "potato", "food sized goods washable countable grass",
          english_plural="potatoes"),
    _noun("Kuchen", "m", "Kuchen", "Kuchens", "cake", "food sized goods brought"),
    _noun("Brot", "n", "Brote", "Brotes", "bread", "food mass goods brought scraps grass"),
    _noun("Käse", "m", "Käse", "Käses", "cheese", "food mass goods brought scraps"),
    _noun("Suppe", "f", "Suppen", "Suppe", "soup", "food mass hot brought"),
    _noun("Milch", "f", "Milch", "Milch", "milk", "drink mass hot goods lapped"),
    _noun("Wasser", "n", "Wasser", "Wassers", "water", "drink mass cold lapped"),
    _noun("Kaffee", "m", "Kaffees", "Kaffees", "coffee", "drink mass hot goods"),
    _noun("Tee", "m", "Tees", "Tees", "tea", "drink mass hot goods"),
)  # fmt: skip
_THINGS = (
    _noun("Buch", "n", "Bücher", "Buches", "book",
          "read written text made goods owned flat given shown sent brought lost loseable heavy lasting countable"),
    _noun("Brief", "m", "Briefe", "Briefes", "letter", "read written text flat given shown sent lost loseable opened"),
    _noun("Zeitung", "f", "Zeitungen", "Zeitung", "newspaper", "read text flat given brought dated goods"),
    _noun("Film", "m", "Filme", "Filmes", "film", "told text made pleasing"),
    _noun("Lied", "n", "Lieder", "Liedes", "song", "told text made written pleasing"),
    _noun("Geschichte", "f", "Geschichten", "Geschichte", "story", "told text made read written pleasing",
          english_plural="stories"),
    _noun("Tisch", "m", "Tische", "Tisches", "table",
          "goods owned sized lasting heavy carried repaired coloured furniture table surface washable"),
    _noun("Stuhl", "m", "Stühle", "Stuhles", "chair",
          "goods owned sized lasting heavy carried repaired coloured furniture upright seat washable countable"),
    _noun("Lampe", "f", "Lampen", "Lampe", "lamp", "goods owned sized lasting carried repaired furniture upright"),
    _noun("Schlüssel", "m", "Schlüssel", "Schlüssels", "key", "sized owned flat given shown lost loseable dated"),
    _noun("Tasche", "f", "Taschen", "Tasche", "bag",
          "goods owned sized lasting heavy carried coloured soiled hollow given lost loseable brought opened closed "
          "inside tidied"),
    _noun("Flasche", "f", "Flaschen", "Flasche", "bottle",
          "goods sized heavy carried coloured hollow upright given brought opened closed countable"),
    _noun("Tasse", "f", "Tassen", "Tasse", "cup", "goods owned sized lasting soiled coloured hollow upright washable"),
    _noun("Bild", "n", "Bilder", "Bildes", "picture", "goods owned sized lasting shown sent given pleasing countable"),
    _noun("Ball", "m", "Bälle", "Balls", "ball", "goods owned sized dated coloured given brought lost loseable toy"),
    _noun("Auto", "n", "Autos", "Autos", "car",
          "goods owned sized lasting soiled coloured washable repaired shown vehicle"),
    _noun("Fahrrad", "n", "Fahrräder", "Fahrrades", "bicycle",
          "goods owned sized lasting soiled coloured washable repaired shown vehicle loseable"),
    _noun("Zug", "m", "Züge", "Zuges", "train", "unowned awaited dated coach"),
    _noun("Fenster", "n", "Fenster", "Fensters", "window", "opened closed sized dated repaired washable corner"),
    _noun("Tür", "f", "Türen", "Tür", "door", "opened closed sized dated coloured repaired washable corner"),
    _noun("Haus", "n", "Häuser", "Hauses", "house",
          "goods owned sized lasting shown repaired pleasing building tidied settled"),
    _noun("Jacke", "f", "Jacken", "Jacke", "jacket",
          "worn goods owned lasting soiled coloured washable lost loseable given flat pleasing"),
    _noun("Hut", "m", "Hüte", "Hutes", "hat", "worn goods owned lasting sized coloured lost loseable flat pleasing"),
    _noun("Hemd", "n", "Hemden", "Hemdes", "shirt", "worn goods owned lasting soiled coloured washable flat pleasing"),
)  # fmt: skip
_PLACES = (
    _noun("Garten", "m", "Gärten", "Gartens", "garden", "place homely sized scenic shown pleasing owned"),
    _noun("Küche", "f", "Küchen", "Küche", "kitchen", "place homely sized scenic shady shown pleasing tidied"),
    _noun("Zimmer", "n", "Zimmer", "Zimmers", "room", "place homely sized scenic shady shown tidied"),
    _noun("Park", "m", "Parks", "Parks", "park", "place unowned sized scenic shady pleasing"),
    _noun("Schule", "f", "Schulen", "Schule", "school", "place sized dated visited building settled"),
    _noun("Bahnhof", "m", "Bahnhöfe", "Bahnhofs", "station", "place unowned sized dated building"),
    _noun("Markt", "m", "Märkte", "Marktes", "market", "place unowned sized visited"),
    _noun("Wald", "m", "Wälder", "Waldes", "forest", "place unowned sized scenic shady"),
    _noun("Dorf", "n", "Dörfer", "Dorfes", "village", "place sized scenic visited known"),
    _noun("Stadt", "f", "Städte", "Stadt", "town", "place sized scenic visited known"),
)
NOUNS = _PEOPLE + _ANIMALS + _FOOD + _THINGS + _PLACES

EURO = _noun("Euro", "m", "Euro", "Euros", "euro", "unit")
YEAR = _noun("Jahr", "n", "Jahre", "Jahres", "year", "unit")
METRE = _noun("Meter", "m", "Meter", "Meters", "metre", "unit")
PAGE = _noun("Seite", "f", "Seiten", "Seite", "page", "unit")
INHABITANT = _noun("Einwohner", "m", "Einwohner", "Einwohners", "inhabitant", "unit")
UNITS = (EURO, YEAR, METRE, PAGE, INHABITANT)

_BY_ENGLISH = {noun.english: noun for noun in NOUNS + UNITS}


def noun(english: str) -> Noun:
    """Return the noun with this English singular.

    Raises:
        KeyError: if the lexicon has no such noun.
    """
    return _BY_ENGLISH[english]


@cache
def nouns_of(kinds: tuple[str, ...], excluded: str = "") -> tuple[Noun, ...]:
    """Return the nouns that are of at least one of these kinds, without nouns of the `excluded` kind."""
    return tuple(noun for noun in NOUNS if noun.kinds.intersection(kinds) and excluded not in noun.kinds)
