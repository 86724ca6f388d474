"""The verbs of the corpus, each with its forms in both languages and with what it goes with.

The groups say which frame uses a verb. English verbs with two German counterparts are distinguished by the text
beside them: people "eat" (essen) and animals "eat" (fressen), one "knows" a person (kennen) and "knows that"
(wissen), one "puts" flat things (legen) and upright ones (stellen).
"""

from __future__ import annotations

from .structures import Preposition, Tense, Verb

_PRESENT: tuple[Tense, ...] = ("present",)
_PAST_TOO: tuple[Tense, ...] = ("present", "past")
_ANYWHERE = ("garden", "kitchen", "park", "school", "station", "market", "forest", "home")
_MEALS = ("kitchen", "garden", "park", "home")
_SHOPS = ("town", "Berlin", "Hamburg")
_CALM = ("garden", "park", "kitchen", "home", "school")

BE = Verb(
    "sein", "ist", "gewesen", "be", "was", auxiliary="sein", stative=True,
    singular=("bin", "bist", "ist"), preterite=("war", "warst", "waren"),
)  # fmt: skip
HAVE = Verb(
    "haben", "hat", "gehabt", "have", "had", objects=("owned", "loseable"), stative=True, modal=False,
    singular=("habe", "hast", "hat"), preterite=("hatte", "hattest", "hatten"), tenses=_PAST_TOO,
)  # fmt: skip
EAT = Verb(
    "essen", "isst", "gegessen", "eat", "ate", objects=("food",), imperative="iss", enjoyable=True,
    places=_MEALS, manners=("slowly", "quickly"),
)  # fmt: skip
DRINK = Verb(
    "trinken", "trinkt", "getrunken", "drink", "drank", objects=("drink",), enjoyable=True,
    places=_MEALS, manners=("slowly", "quickly"),
)  # fmt: skip
READ = Verb(
    "lesen", "liest", "gelesen", "read", "read", objects=("read",), imperative="lies", enjoyable=True,
    places=_CALM, manners=("slowly", "quickly"),
)  # fmt: skip
BUY = Verb("kaufen", "kauft", "gekauft", "buy", "bought", objects=("goods",), enjoyable=True, places=_SHOPS)
SEE = Verb(
    "sehen", "sieht", "gesehen", "see", "saw", objects=("person", "animal", "vehicle", "awaited", "place"),
    stative=True, modal=False,
)  # fmt: skip
KNOW = Verb(
    "kennen", "kennt", "gekannt", "know", "knew", objects=("person", "told", "known"), stative=True, modal=False,
    tenses=_PRESENT,
)  # fmt: skip
SEARCH = Verb(
    "suchen", "sucht", "gesucht", "look", "looked", objects=("person", "loseable"), english_preposition="for",
    places=_ANYWHERE,
)  # fmt: skip
FIND = Verb(
    "finden", "findet", "gefunden", "find", "found", objects=("lost", "pet"), momentary=True, modal=False,
    places=_ANYWHERE,
)  # fmt: skip
VISIT = Verb(
    "besuchen", "besucht", "besucht", "visit", "visited", objects=("person", "visited"), repeatable=True,
    enjoyable=True, ing="visiting",
)  # fmt: skip
PICK_UP = Verb(
    "abholen", "holt", "abgeholt", "pick", "picked", objects=("person",), prefix="ab", particle="up", repeatable=True,
    timed=True,
)  # fmt: skip
CALL = Verb(
    "anrufen", "ruft", "angerufen", "call", "called", objects=("person",), prefix="an", repeatable=True,
    enjoyable=True, timed=True,
)  # fmt: skip
HELP = Verb(
    "helfen", "hilft", "geholfen", "help", "helped", objects=("person",), case="dative", imperative="hilf",
    repeatable=True, enjoyable=True, places=("garden", "kitchen", "school", "home"),
)  # fmt: skip
LISTEN = Verb(
    "zuhören", "hört", "zugehört", "listen", "listened", objects=("person",), case="dative", prefix="zu",
    english_preposition="to", repeatable=True, enjoyable=True,
)  # fmt: skip
WAIT = Verb(
    "warten", "wartet", "gewartet", "wait", "waited", objects=("person", "awaited"), english_preposition="for",
    preposition=Preposition("for", "auf", "accusative"), repeatable=True, places=("park", "station", "garden", "home"),
)  # fmt: skip
PLAY = Verb(
    "spielen", "spielt", "gespielt", "play", "played", subjects=("person", "lively"), enjoyable=True,
    places=("garden", "park", "forest", "home"), manners=("quietly",),
)  # fmt: skip
SLEEP = Verb(
    "schlafen", "schläft", "geschlafen", "sleep", "slept", subjects=("person", "animal"), enjoyable=True,
    places=("garden", "kitchen", "home"), manners=("well",),
)  # fmt: skip
SING = Verb(
    "singen", "singt", "gesungen", "sing", "sang", subjects=("person",), enjoyable=True,
    places=("garden", "park", "school", "kitchen", "forest"), manners=("quietly", "well"),
)  # fmt: skip

WEAR = Verb("tragen", "trägt", "getragen", "wear", "wore", objects=("worn",), enjoyable=True, repeatable=True)
OPEN = Verb("aufmachen", "macht", "aufgemacht", "open", "opened", objects=("opened",), prefix="auf", repeatable=True)
CLOSE = Verb("zumachen", "macht", "zugemacht", "close", "closed", objects=("closed",), prefix="zu", repeatable=True)
PUT_ON = Verb(
    "anziehen", "zieht", "angezogen", "put", "put", objects=("worn",), prefix="an", particle="on", ing="putting",
    repeatable=True,
)  # fmt: skip
WORK = Verb(
    "arbeiten", "arbeitet", "gearbeitet", "work", "worked", enjoyable=True,
    places=("garden", "kitchen", "school", "town", "Berlin", "Hamburg", "home"), manners=("slowly", "quickly"),
)  # fmt: skip
SELL = Verb(
    "verkaufen", "verkauft", "verkauft", "sell", "sold", objects=("goods",), places=_SHOPS,
)  # fmt: skip
WASH = Verb(
    "waschen", "wäscht", "gewaschen", "wash", "washed", objects=("washable",), repeatable=True, places=("garden",),
)  # fmt: skip
REPAIR = Verb(
    "reparieren", "repariert", "repariert", "repair", "repaired", objects=("repaired",), enjoyable=True,
    places=("garden", "home"),
)  # fmt: skip
GET_UP = Verb(
    "aufstehen", "steht", "aufgestanden", "get", "got", prefix="auf", particle="up", auxiliary="sein", timed=True,
    momentary=True, ing="getting", manners=("slowly",),
)  # fmt: skip

TRANSITIVE = (
    EAT, DRINK, READ, BUY, SEE, KNOW, VISIT, HAVE,
    Verb("fressen", "frisst", "gefressen", "eat", "ate", subjects=("pet",), objects=("scraps",), manners=("quickly",),
         places=("kitchen", "garden")),
    Verb("fressen", "frisst", "gefressen", "eat", "ate", subjects=("grazer",), objects=("grass",), places=("garden",)),
    Verb("trinken", "trinkt", "getrunken", "drink", "drank", subjects=("pet",), objects=("lapped",),
         places=("garden", "kitchen")),
    Verb("schreiben", "schreibt", "geschrieben", "write", "wrote", objects=("written",), enjoyable=True,
         places=_CALM, manners=("slowly",)),
    SELL,
    SEARCH, FIND,
    Verb("tragen", "trägt", "getragen", "carry", "carried", objects=("carried",)),
    WEAR,
    Verb("brauchen", "braucht", "gebraucht", "need", "needed", objects=("owned", "opened", "worker"), stative=True,
         modal=False, tenses=("present", "future")),
    Verb("lieben", "liebt", "geliebt", "love", "loved", objects=("person", "animal"), stative=True, modal=False,
         tenses=_PRESENT),
    Verb("mögen", "mag", "gemocht", "like", "liked", objects=("person", "food", "drink", "animal"), stative=True,
         singular=("mag", "magst", "mag"), modal=False, tenses=_PRESENT),
    Verb("verstehen", "versteht", "verstanden", "understand", "understood", objects=("told", "person"), stative=True,
         modal=False, tenses=_PAST_TOO),
    Verb("vergessen", "vergisst", "vergessen", "forget", "forgot", objects=("told", "lost"), modal=False,
         tenses=("past",), ing="forgetting"),
    WASH,
    REPAIR,
)  # fmt: skip
SEPARABLE = (
    PICK_UP, CALL,
    Verb("einladen", "lädt", "eingeladen", "invite", "invited", objects=("person",), prefix="ein", imperative="lade",
         repeatable=True, enjoyable=True),
    OPEN, CLOSE, PUT_ON,
    Verb("mitbringen", "bringt", "mitgebracht", "bring", "brought", objects=("brought",), prefix="mit",
         particle="along"),
    Verb("aufräumen", "räumt", "aufgeräumt", "tidy", "tidied", objects=("tidied",), prefix="auf", particle="up"),
)  # fmt: skip
DATIVE = (
    HELP, LISTEN,
    Verb("danken", "dankt", "gedankt", "thank", "thanked", objects=("person",), case="dative"),
    Verb("folgen", "folgt", "gefolgt", "follow", "followed", subjects=("person", "pet"), objects=("person",),
         case="dative", auxiliary="sein"),
    Verb("antworten", "antwortet", "geantwortet", "answer", "answered", objects=("person",), case="dative"),
)  # fmt: skip
BELONG = Verb(
    "gehören", "gehört", "gehört", "belong", "belonged", subjects=("owned",), objects=("person",), case="dative",
    english_preposition="to", stative=True, modal=False, tenses=_PRESENT,
)  # fmt: skip
PLEASE_SOMEONE = Verb(
    "gefallen", "gefällt", "gefallen", "like", "liked", objects=("pleasing",), case="dative", swaps=True, stative=True,
    modal=False, tenses=_PAST_TOO,
)  # fmt: skip
PREPOSITIONAL = (
    WAIT,
    Verb("denken", "denkt", "gedacht", "think", "thought", objects=("person",), english_preposition="of",
         preposition=Preposition("of", "an", "accusative"), repeatable=True),
    Verb("sprechen", "spricht", "gesprochen", "talk", "talked", objects=("person",), english_preposition="to",
         preposition=Preposition("to", "mit", "dative"), imperative="sprich", repeatable=True, enjoyable=True,
         places=("garden", "school", "park", "market")),
)  # fmt: skip
DITRANSITIVE = (
    Verb("geben", "gibt", "gegeben", "give", "gave", objects=("given",), imperative="gib", recipient=True),
    Verb("zeigen", "zeigt", "gezeigt", "show", "showed", objects=("shown",), recipient=True),
    Verb("schicken", "schickt", "geschickt", "send", "sent", objects=("sent",), recipient=True),
)
INTRANSITIVE = (
    PLAY, SLEEP, SING,
    WORK,
    GET_UP,
    Verb("einschlafen", "schläft", "eingeschlafen", "fall", "fell", prefix="ein", particle="asleep", auxiliary="sein",
         imperative="schlaf", momentary=True, timed=True, manners=("quickly",)),
)  # fmt: skip
GO = Verb("gehen", "geht", "gegangen", "go", "went", auxiliary="sein", timed=True, repeatable=True, enjoyable=True)
DRIVE = Verb(
    "fahren", "fährt", "gefahren", "drive", "drove", auxiliary="sein", timed=True, repeatable=True, enjoyable=True,
    imperative="fahr",
)  # fmt: skip
ARRIVE = Verb(
    "ankommen", "kommt", "angekommen", "arrive", "arrived", subjects=("person", "awaited"), prefix="an",
    auxiliary="sein", timed=True, repeatable=True,
)  # fmt: skip
STAY = Verb("bleiben", "bleibt", "geblieben", "stay", "stayed", auxiliary="sein", repeatable=True, enjoyable=True)
LIVE = Verb("wohnen", "wohnt", "gewohnt", "live", "lived", stative=True, tenses=_PAST_TOO)
SIT = Verb(
    "sitzen", "sitzt", "gesessen", "sit", "sat", subjects=("person", "pet"), ing="sitting", enjoyable=True,
)  # fmt: skip
STAND = Verb("stehen", "steht", "gestanden", "stand", "stood", subjects=("person", "upright", "grazer"))
LIE = Verb("liegen", "liegt", "gelegen", "lie", "lay", subjects=("flat", "pet"), ing="lying")
LAY = Verb("legen", "legt", "gelegt", "put", "put", objects=("flat",), ing="putting")
PUT_UPRIGHT = Verb("stellen", "stellt", "gestellt", "put", "put", objects=("upright",), ing="putting")
COUNT = Verb("zählen", "zählt", "gezählt", "count", "counted", objects=("countable",))
COST = Verb("kosten", "kostet", "gekostet", "cost", "cost", subjects=("goods",), stative=True, modal=False)
RAIN = Verb("regnen", "regnet", "geregnet", "rain", "rained", subjects=())
ATTITUDES = (
    Verb("wissen", "weiß", "gewusst", "know", "knew", stative=True, singular=("weiß", "weißt", "weiß")),
    Verb("glauben", "glaubt", "geglaubt", "believe", "believed", stative=True),
    Verb("hoffen", "hofft", "gehofft", "hope", "hoped", stative=True),
    Verb("sagen", "sagt", "gesagt", "say", "said", stative=True),
)
KNOW_THAT, BELIEVE, HOPE, SAY = ATTITUDES
ASK = Verb("fragen", "fragt", "gefragt", "ask", "asked", stative=True)
TRY = Verb("versuchen", "versucht", "versucht", "try", "tried")
FORGET_TO = Verb("vergessen", "vergisst", "vergessen", "forget", "forgot", momentary=True, ing="forgetting")
PROMISE = Verb("versprechen", "verspricht", "versprochen", "promise", "promised")

# What people do, rather than what they have or know.
_ACTIVE = (*TRANSITIVE, *SEPARABLE, *DATIVE, *INTRANSITIVE)
DOINGS = tuple(
    verb for verb in _ACTIVE if not verb.stative and not verb.momentary and verb.modal and "person" in verb.subjects
)
VERBS = (
    *TRANSITIVE, *SEPARABLE, *DATIVE, *PREPOSITIONAL, *DITRANSITIVE, *INTRANSITIVE, *ATTITUDES, BELONG, PLEASE_SOMEONE,
    BE, GO, DRIVE, ARRIVE, STAY, LIVE, SIT, STAND, LIE, LAY, PUT_UPRIGHT, COUNT, COST, RAIN, ASK, TRY, FORGET_TO,
    PROMISE,
)  # fmt: skip
