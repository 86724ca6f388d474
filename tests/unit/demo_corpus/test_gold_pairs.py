"""Sentences built from structures, against English and German written by hand, for each point of grammar."""

from dataclasses import replace
from typing import Any

import pytest

from tools.demo_corpus.lexicon import (
    ALTHOUGH,
    AND,
    ANY,
    BARE,
    BE_ALLOWED_TO,
    BECAUSE,
    BEFORE,
    BUT,
    CAN,
    CLOCKS,
    DEFINITE,
    EVERY,
    FIXED_PLACES,
    FOR,
    FREQUENCIES,
    FUTURE_TIMES,
    HABIT_TIMES,
    HAVE_TO,
    HER,
    HOW_MANY,
    IF,
    IN,
    INDEFINITE,
    INTO,
    LIKE_TO,
    LONG,
    MANNERS,
    MANY,
    MUST,
    MY,
    NAMES,
    NEGATIVE,
    OLD,
    OUR,
    PAST_TIMES,
    PLACE_PREPOSITIONS,
    PLEASE,
    PRESENT_TIMES,
    QUESTION_WORDS,
    SHOULD,
    SOME,
    STAYING_WITH,
    THAT,
    THEIR,
    THIS,
    TO,
    TWO_WAY,
    WANT_TO,
    WHETHER,
    WHICH,
    WITH,
    WITHOUT,
    WOULD_LIKE_TO,
    YOUR,
    adjective,
)
from tools.demo_corpus.nouns import EURO, METRE, PAGE, YEAR, noun
from tools.demo_corpus.phrases import (
    HE,
    IT_EXPLETIVE,
    LISTENER,
    SHE,
    SPEAKER,
    SPEAKERS,
    THEY,
)
from tools.demo_corpus.spelling import spell_out
from tools.demo_corpus.structures import (
    Adverb,
    Adverbial,
    Argument,
    Both,
    Clause,
    Determiner,
    Existence,
    Infinitive,
    Interrogative,
    Measure,
    Mood,
    NounPhrase,
    Preposition,
    PrepositionalPhrase,
    Profession,
    Pronoun,
    Quality,
    RelativePronoun,
    Sentence,
    Slot,
    Subordinate,
    Verb,
)
from tools.demo_corpus.verbs import VERBS

ANNA, PAUL = NAMES[0], NAMES[3]
NOW, TODAY = PRESENT_TIMES
YESTERDAY, TOMORROW, EVERY_DAY = PAST_TIMES[0], FUTURE_TIMES[0], HABIT_TIMES[0]
ALWAYS, NEVER, OFTEN = FREQUENCIES[:3]
HALF_PAST_SIX = next(clock for clock in CLOCKS if clock.english == "at half~past six")
WHO, WHAT = Interrogative(True), Interrogative(False)


def np(words: str, determiner: Determiner = DEFINITE, plural: bool = False, count: int | None = None) -> NounPhrase:
    """ "old big house": a noun phrase out of its English adjectives and its English singular."""
    *adjectives, head = words.split()
    return NounPhrase(noun(head), determiner, plural, tuple(adjective(word) for word in adjectives), count)


def verb(infinitive: str, english: str = "") -> Verb:
    return next(v for v in VERBS if v.infinitive == infinitive and english in ("", v.english))


def pp(preposition: Preposition, argument: Argument, slot: Slot = "place") -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, argument, slot)


def at(place: str, determiner: Determiner = DEFINITE, slot: Slot = "place") -> PrepositionalPhrase:
    return pp(PLACE_PREPOSITIONS[place.split()[-1]][0], np(place, determiner), slot)


def to(place: str) -> PrepositionalPhrase:
    return pp(PLACE_PREPOSITIONS[place.split()[-1]][1], np(place), "complement")


def doing(
    subject: Argument, infinitive: str, object: Argument | None = None, *adverbials: Adverbial, **rest: Any
) -> Clause:
    return Clause(subject, verb(infinitive), object=object, adverbials=adverbials, **rest)


def being(subject: Argument, word: str, *adverbials: Adverbial, **rest: Any) -> Clause:
    return Clause(subject, verb("sein"), predicate=Quality(adjective(word)), adverbials=adverbials, **rest)


def it(english: str) -> Pronoun:
    """Return the pronoun that stands for a thing."""
    return Pronoun(3, False, noun(english).gender, noun(english))


def gap(english: str, plural: bool = False) -> RelativePronoun:
    return RelativePronoun(noun(english), plural)


def described(words: str, relative: Clause, plural: bool = False) -> NounPhrase:
    plain = np(words, plural=plural)
    return NounPhrase(plain.noun, plain.determiner, plural, plain.adjectives, relative=relative)


def owned(owner: Argument, words: str) -> NounPhrase:
    plain = np(words)
    assert not isinstance(owner, (Pronoun, Interrogative, RelativePronoun, Both))
    return NounPhrase(plain.noun, DEFINITE, adjectives=plain.adjectives, possessor=owner)


MAN, WOMAN, CHILD, BOY = np("man"), np("woman"), np("child"), np("boy")
ON_TABLE, ONTO_TABLE = (pp(preposition, np("table"), "complement") for preposition in TWO_WAY["on"])

STATEMENTS = [
    # articles, cases and adjective endings
    (doing(MAN, "lesen", np("new book"), progressive=True),
     "The man is reading the new book.", "Der Mann liest das neue Buch."),
    (doing(WOMAN, "essen", np("fresh apple", INDEFINITE), progressive=True),
     "The woman is eating a fresh apple.", "Die Frau isst einen frischen Apfel."),
    (doing(CHILD, "essen", np("apple", INDEFINITE), progressive=True),
     "The child is eating an apple.", "Das Kind isst einen Apfel."),
    (doing(SHE, "verkaufen", np("expensive big house", THIS), tense="past"),
     "She sold this expensive big house.", "Sie hat dieses teure große Haus verkauft."),
    (doing(HE, "trinken", np("hot coffee", BARE), progressive=True),
     "He is drinking hot coffee.", "Er trinkt heißen Kaffee."),
    (doing(np("cat"), "trinken", np("cold milk", BARE), progressive=True),
     "The cat is drinking cold milk.", "Die Katze trinkt kalte Milch."),
    (doing(np("dog"), "fressen", np("bread"), progressive=True),
     "The dog is eating the bread.", "Der Hund frisst das Brot."),
    (doing(np("student", EVERY), "lesen", np("interesting book", MANY, True), tense="past"),
     "Every student read many interesting books.", "Jeder Student hat viele interessante Bücher gelesen."),
    (doing(SPEAKER, "sehen", np("beautiful garden", SOME, True)),
     "I see some beautiful gardens.", "Ich sehe einige schöne Gärten."),
    (doing(np("boy", NEGATIVE), "schlafen", progressive=True), "No boy is sleeping.", "Kein Junge schläft."),
    # weak nouns, dative objects, dative before accusative
    (doing(WOMAN, "kennen", BOY), "The woman knows the boy.", "Die Frau kennt den Jungen."),
    (doing(PAUL, "helfen", np("neighbour", MY), progressive=True),
     "Paul is helping my neighbour.", "Paul hilft meinem Nachbarn."),
    (doing(np("car"), "gehören", np("student", plural=True)),
     "The car belongs to the students.", "Das Auto gehört den Studenten."),
    (doing(SHE, "geben", np("red ball", INDEFINITE), YESTERDAY, recipient=CHILD, tense="past"),
     "She gave the child a red ball yesterday.", "Sie hat dem Kind gestern einen roten Ball gegeben."),
    (doing(SHE, "geben", np("ball"), recipient=BOY, recipient_last=True, tense="past"),
     "She gave the ball to the boy.", "Sie hat dem Jungen den Ball gegeben."),
    (doing(MAN, "zeigen", np("key", HER), recipient=SPEAKERS, progressive=True),
     "The man is showing us her key.", "Der Mann zeigt uns ihren Schlüssel."),
    (doing(np("dog"), "folgen", np("man", plural=True), tense="past"),
     "The dog followed the men.", "Der Hund ist den Männern gefolgt."),
    # genitive
    (doing(SPEAKER, "suchen", owned(np("brother", MY), "bicycle"), progressive=True),
     "I am looking for my brother's bicycle.", "Ich suche das Fahrrad meines Bruders."),
    (doing(HE, "reparieren", owned(ANNA, "old car"), progressive=True),
     "He is repairing Anna's old car.", "Er repariert Annas altes Auto."),
    (doing(WOMAN, "finden", owned(BOY, "hat"), tense="past"),
     "The woman found the boy's hat.", "Die Frau hat den Hut des Jungen gefunden."),
    # verb second, adverbials and their order
    (doing(WOMAN, "lesen", np("newspaper"), EVERY_DAY, front="time"),
     "Every day the woman reads the newspaper.", "Jeden Tag liest die Frau die Zeitung."),
    (doing(SHE, "lesen", np("letter"), NOW, progressive=True),
     "She is reading the letter now.", "Sie liest jetzt den Brief."),
    (doing(SHE, "lesen", np("letter"), NOW, progressive=True, negated=True),
     "She is not reading the letter now.", "Sie liest den Brief jetzt nicht."),
    (doing(SHE, "kaufen", np("apple", BARE, True), at("market"), YESTERDAY, tense="past"),
     "She bought apples at the market yesterday.", "Sie hat gestern auf dem Markt Äpfel gekauft."),
    (doing(SHE, "kaufen", np("hat", INDEFINITE), pp(FOR, np("son", HER), "benefit"), tense="past"),
     "She bought a hat for her son.", "Sie hat einen Hut für ihren Sohn gekauft."),
    (doing(np("child", plural=True), "spielen", None, at("garden"), pp(WITH, np("dog"), "companion"), TODAY,
           progressive=True),
     "The children are playing with the dog in the garden today.",
     "Die Kinder spielen heute mit dem Hund im Garten."),
    (doing(HE, "gehen", None, to("park"), pp(WITHOUT, np("cat", OUR), "companion"), tense="past"),
     "He went to the park without our cat.", "Er ist ohne unsere Katze in den Park gegangen."),
    (doing(ANNA, "essen", np("soup"), MANNERS["slowly"], progressive=True),
     "Anna is eating the soup slowly.", "Anna isst die Suppe langsam."),
    (doing(PAUL, "vergessen", np("key", BARE, True), OFTEN),
     "Paul often forgets keys.", "Paul vergisst oft Schlüssel."),
    (doing(THEY, "essen", np("bread", BARE), NEVER), "They never eat bread.", "Sie essen nie Brot."),
    # places: contraction, case after two-way prepositions, verbs of putting
    (doing(SHE, "gehen", None, to("station"), progressive=True),
     "She is going to the station.", "Sie geht zum Bahnhof."),
    (doing(HE, "gehen", None, pp(TO, np("sister"), "complement"), tense="future"),
     "He will go to the sister.", "Er wird zur Schwester gehen."),
    (doing(HE, "fahren", None, to("small village"), progressive=True),
     "He is driving to the small village.", "Er fährt ins kleine Dorf."),
    (doing(SPEAKERS, "fahren", None, FIXED_PLACES["Berlin"][1], tense="future"),
     "We will drive to Berlin.", "Wir werden nach Berlin fahren."),
    (doing(SHE, "wohnen", None, pp(STAYING_WITH, np("doctor"), "complement")),
     "She lives with the doctor.", "Sie wohnt beim Arzt."),
    (doing(SHE, "wohnen", None, pp(IN, np("room", MY), "complement")),
     "She lives in my room.", "Sie wohnt in meinem Zimmer."),
    (doing(np("letter"), "liegen", None, ON_TABLE, progressive=True),
     "The letter is lying on the table.", "Der Brief liegt auf dem Tisch."),
    (doing(HE, "legen", np("letter"), ONTO_TABLE, progressive=True),
     "He is putting the letter on the table.", "Er legt den Brief auf den Tisch."),
    (doing(HE, "stellen", np("bottle"), ONTO_TABLE, tense="past"),
     "He put the bottle on the table.", "Er hat die Flasche auf den Tisch gestellt."),
    (doing(np("cat"), "sitzen", None, pp(TWO_WAY["under"][0], np("chair"), "complement"), tense="past",
           progressive=True),
     "The cat was sitting under the chair.", "Die Katze hat unter dem Stuhl gesessen."),
    (doing(MAN, "legen", np("hat", HER), pp(INTO, np("bag"), "complement"), tense="past"),
     "The man put her hat into the bag.", "Der Mann hat ihren Hut in die Tasche gelegt."),
    # separable verbs, perfect, future, preterite
    (doing(MAN, "aufmachen", np("door"), progressive=True),
     "The man is opening the door.", "Der Mann macht die Tür auf."),
    (doing(SHE, "anrufen", HE, TOMORROW, HALF_PAST_SIX, tense="future"),
     "She will call him at half past six tomorrow.", "Sie wird ihn morgen um halb sieben anrufen."),
    (doing(SHE, "abholen", HE, tense="past"), "She picked him up.", "Sie hat ihn abgeholt."),
    (doing(SHE, "abholen", CHILD, tense="past"), "She picked up the child.", "Sie hat das Kind abgeholt."),
    (doing(SPEAKER, "aufstehen", None, HALF_PAST_SIX, YESTERDAY, tense="past"),
     "I got up at half past six yesterday.", "Ich bin gestern um halb sieben aufgestanden."),
    (doing(np("train"), "ankommen", None, at("station", slot="complement"), progressive=True),
     "The train is arriving at the station.", "Der Zug kommt am Bahnhof an."),
    (doing(LISTENER, "haben", np("cat", INDEFINITE), tense="past"),
     "You had a cat.", "Du hattest eine Katze."),
    (being(THEY, "tired", YESTERDAY, tense="past"), "They were tired yesterday.", "Sie waren gestern müde."),
    (doing(SHE, "zuhören", Both(ANNA, np("teacher")), progressive=True),
     "She is listening to Anna and the teacher.", "Sie hört Anna und dem Lehrer zu."),
    # modals
    (doing(BOY, "aufräumen", np("kitchen"), modal=MUST),
     "The boy must tidy up the kitchen.", "Der Junge muss die Küche aufräumen."),
    (doing(LISTENER, "singen", modal=CAN),
     "You can sing.", "Du kannst singen."),
    (doing(SPEAKER, "helfen", LISTENER, modal=CAN, negated=True),
     "I cannot help you.", "Ich kann dir nicht helfen."),
    (doing(SHE, "kaufen", np("jacket"), modal=HAVE_TO, negated=True),
     "She does not have to buy the jacket.", "Sie muss die Jacke nicht kaufen."),
    (doing(THEY, "spielen", modal=BE_ALLOWED_TO, tense="past", negated=True),
     "They were not allowed to play.", "Sie durften nicht spielen."),
    (doing(HE, "schreiben", np("letter", INDEFINITE), modal=WANT_TO, tense="past"),
     "He wanted to write a letter.", "Er wollte einen Brief schreiben."),
    (doing(LISTENER, "schlafen", modal=SHOULD), "You should sleep.", "Du solltest schlafen."),
    (doing(SPEAKER, "einladen", THEY, modal=WOULD_LIKE_TO),
     "I would like to invite them.", "Ich möchte sie einladen."),
    # liking
    (doing(BOY, "essen", np("apple", BARE, True), modal=LIKE_TO),
     "The boy likes to eat apples.", "Der Junge isst gern Äpfel."),
    (doing(BOY, "essen", np("apple", BARE, True), modal=LIKE_TO, negated=True),
     "The boy does not like to eat apples.", "Der Junge isst nicht gern Äpfel."),
    (doing(WOMAN, "gefallen", np("film")), "The woman likes the film.", "Der Film gefällt der Frau."),
    (doing(SPEAKER, "gefallen", np("song", plural=True), tense="past", negated=True),
     "I did not like the songs.", "Die Lieder haben mir nicht gefallen."),
    (doing(HE, "mögen", np("hot tea", BARE)), "He likes hot tea.", "Er mag heißen Tee."),
    # negation
    (doing(WOMAN, "kaufen", np("car"), YESTERDAY, tense="past", negated=True),
     "The woman did not buy the car yesterday.", "Die Frau hat das Auto gestern nicht gekauft."),
    (doing(WOMAN, "kaufen", np("red car", INDEFINITE), tense="past", negated=True),
     "The woman did not buy a red car.", "Die Frau hat kein rotes Auto gekauft."),
    (doing(THEY, "haben", np("brother", BARE, True), negated=True),
     "They do not have any brothers.", "Sie haben keine Brüder."),
    (doing(CHILD, "trinken", np("milk", BARE), progressive=True, negated=True),
     "The child is not drinking any milk.", "Das Kind trinkt keine Milch."),
    (doing(CHILD, "zumachen", np("window"), progressive=True, negated=True),
     "The child is not closing the window.", "Das Kind macht das Fenster nicht zu."),
    (doing(SHE, "warten", np("train"), at("station"), progressive=True, negated=True),
     "She is not waiting for the train at the station.", "Sie wartet nicht am Bahnhof auf den Zug."),
    (being(np("house"), "old", negated=True), "The house is not old.", "Das Haus ist nicht alt."),
    # predicates and comparison
    (Clause(np("brother", MY), verb("sein"), predicate=Profession(noun("doctor"))),
     "My brother is a doctor.", "Mein Bruder ist Arzt."),
    (Clause(HE, verb("sein"), predicate=Profession(noun("teacher")), negated=True),
     "He is not a teacher.", "Er ist kein Lehrer."),
    (Clause(np("house"), verb("sein"), predicate=Quality(adjective("big"), "comparative", np("garden"))),
     "The house is bigger than the garden.", "Das Haus ist größer als der Garten."),
    (Clause(np("book"), verb("sein"), predicate=Quality(adjective("expensive"), "equal", np("hat")), negated=True),
     "The book is not as expensive as the hat.", "Das Buch ist nicht so teuer wie der Hut."),
    # numbers
    (doing(np("car"), "kosten", NounPhrase(EURO, BARE, True, count=2005)),
     "The car costs two thousand and five euros.", "Das Auto kostet zweitausendfünf Euro."),
    (doing(SHE, "zählen", np("bird", BARE, True, 42), progressive=True),
     "She is counting forty-two birds.", "Sie zählt zweiundvierzig Vögel."),
    (doing(np("book"), "haben", NounPhrase(PAGE, BARE, True, count=317)),
     "The book has three hundred and seventeen pages.", "Das Buch hat dreihundertsiebzehn Seiten."),
    (Clause(MAN, verb("sein"), predicate=Measure(82, YEAR, OLD)),
     "The man is eighty-two years old.", "Der Mann ist zweiundachtzig Jahre alt."),
    (Clause(np("train"), verb("sein"), predicate=Measure(136, METRE, LONG)),
     "The train is one hundred and thirty-six metres long.", "Der Zug ist einhundertsechsunddreißig Meter lang."),
    # subordinate clauses
    (doing(SPEAKER, "wissen", tail=Subordinate(THAT, doing(WOMAN, "aufmachen", np("door"), progressive=True))),
     "I know that the woman is opening the door.", "Ich weiß, dass die Frau die Tür aufmacht."),
    (doing(HE, "glauben", negated=True, tail=Subordinate(THAT, doing(SHE, "anrufen", SPEAKER, tense="past"))),
     "He does not believe that she called me.", "Er glaubt nicht, dass sie mich angerufen hat."),
    (doing(ANNA, "fragen",
           tail=Subordinate(WHETHER, doing(PAUL, "gehen", None, FIXED_PLACES["home"][1], modal=WANT_TO))),
     "Anna asks whether Paul wants to go home.", "Anna fragt, ob Paul nach Hause gehen will."),
    (doing(SHE, "bleiben", None, FIXED_PLACES["home"][0], progressive=True,
           lead=Subordinate(BECAUSE, doing(IT_EXPLETIVE, "regnen", progressive=True))),
     "Because it is raining, she is staying at home.", "Weil es regnet, bleibt sie zu Hause."),
    (doing(HE, "arbeiten", progressive=True, tail=Subordinate(ALTHOUGH, being(HE, "sick"))),
     "He is working although he is sick.", "Er arbeitet, obwohl er krank ist."),
    (doing(SPEAKERS, "zumachen", np("window", plural=True), tense="future",
           lead=Subordinate(IF, being(IT_EXPLETIVE, "cold"))),
     "If it is cold, we will close the windows.", "Wenn es kalt ist, werden wir die Fenster zumachen."),
    (doing(SHE, "anrufen", np("mother", HER), tense="future",
           tail=Subordinate(BEFORE, doing(SHE, "einschlafen"))),
     "She will call her mother before she falls asleep.", "Sie wird ihre Mutter anrufen, bevor sie einschläft."),
    (doing(MAN, "kaufen", np("lamp"), progressive=True, tail=Subordinate(BECAUSE, being(it("lamp"), "cheap"))),
     "The man is buying the lamp because it is cheap.", "Der Mann kauft die Lampe, weil sie billig ist."),
    # relative clauses
    (being(described("man", doing(gap("man"), "kaufen", np("house"), progressive=True)), "old"),
     "The man who is buying the house is old.", "Der Mann, der das Haus kauft, ist alt."),
    (being(described("table", doing(SHE, "reparieren", gap("table"), front="object", tense="past")), "heavy"),
     "The table that she repaired is heavy.", "Der Tisch, den sie repariert hat, ist schwer."),
    (being(described("child", doing(SPEAKER, "helfen", gap("child", True), front="object", progressive=True), True),
           "sad"),
     "The children that I am helping are sad.", "Die Kinder, denen ich helfe, sind traurig."),
    (doing(SPEAKER, "warten", described("woman", doing(LISTENER, "denken", gap("woman"), front="object",
                                                        progressive=True)), progressive=True),
     "I am waiting for the woman that you are thinking of.", "Ich warte auf die Frau, an die du denkst."),
    (doing(HE, "kennen", described("boy", doing(gap("boy"), "aufstehen", tense="past"))),
     "He knows the boy who got up.", "Er kennt den Jungen, der aufgestanden ist."),
    # infinitives
    (doing(SHE, "versuchen", progressive=True, tail=Infinitive(doing(SHE, "aufmachen", np("bottle")))),
     "She is trying to open the bottle.", "Sie versucht, die Flasche aufzumachen."),
    (doing(HE, "vergessen", tense="past", tail=Infinitive(doing(HE, "waschen", np("shirt", YOUR)))),
     "He forgot to wash your shirt.", "Er hat vergessen, dein Hemd zu waschen."),
    (doing(ANNA, "gehen", None, to("station"), tense="past",
           tail=Infinitive(doing(ANNA, "abholen", np("friend", HER)), purpose=True)),
     "Anna went to the station to pick up her friend.", "Anna ist zum Bahnhof gegangen, um ihren Freund abzuholen."),
]  # fmt: skip

QUESTIONS = [
    (doing(SHE, "lesen", np("book", INDEFINITE), progressive=True, front="nothing"),
     "Is she reading a book?", "Liest sie ein Buch?"),
    (doing(LISTENER, "haben", np("brother", ANY, True), front="nothing"),
     "Do you have any brothers?", "Hast du Brüder?"),
    (doing(np("student", plural=True), "zuhören", np("teacher"), tense="past", front="nothing"),
     "Did the students listen to the teacher?", "Haben die Studenten dem Lehrer zugehört?"),
    (doing(LISTENER, "gefallen", np("film"), front="nothing"), "Do you like the film?", "Gefällt dir der Film?"),
    (doing(WHO, "aufmachen", np("window"), tense="past"), "Who opened the window?", "Wer hat das Fenster aufgemacht?"),
    (doing(WOMAN, "lieben", WHO, front="object"), "Who does the woman love?", "Wen liebt die Frau?"),
    (doing(HE, "helfen", WHO, front="object", tense="past"), "Who did he help?", "Wem hat er geholfen?"),
    (doing(LISTENER, "warten", WHO, front="object", progressive=True),
     "Who are you waiting for?", "Auf wen wartest du?"),
    (doing(BOY, "tragen", WHAT, front="object", progressive=True),
     "What is the boy carrying?", "Was trägt der Junge?"),
    (doing(BOY, "essen", np("apple", WHICH), front="object", tense="past"),
     "Which apple did the boy eat?", "Welchen Apfel hat der Junge gegessen?"),
    (doing(SHE, "kaufen", np("book", HOW_MANY, True), front="object", tense="future"),
     "How many books will she buy?", "Wie viele Bücher wird sie kaufen?"),
    (doing(SHE, "schicken", np("letter"), recipient=WHO, recipient_last=True, front="recipient", progressive=True),
     "Who is she sending the letter to?", "Wem schickt sie den Brief?"),
    (doing(np("train"), "ankommen", None, QUESTION_WORDS["when"], front="time", tense="future"),
     "When will the train arrive?", "Wann wird der Zug ankommen?"),
    (doing(np("daughter", THEIR), "spielen", None, QUESTION_WORDS["where"], front="place", progressive=True),
     "Where is their daughter playing?", "Wo spielt ihre Tochter?"),
    (doing(LISTENER, "gehen", None, QUESTION_WORDS["where to"], front="complement", progressive=True),
     "Where are you going?", "Wohin gehst du?"),
    (doing(MAN, "verkaufen", np("house"), QUESTION_WORDS["why"], front="reason", progressive=True, negated=True),
     "Why is the man not selling the house?", "Warum verkauft der Mann das Haus nicht?"),
]  # fmt: skip

COMMANDS = [
    (doing(LISTENER, "aufmachen", np("door"), PLEASE), "Please open the door.", "Mach bitte die Tür auf."),
    (doing(LISTENER, "lesen", np("letter", THIS), PLEASE), "Please read this letter.", "Lies bitte diesen Brief."),
    (doing(LISTENER, "geben", np("key"), PLEASE, recipient=SPEAKER),
     "Please give me the key.", "Gib mir bitte den Schlüssel."),
    (doing(LISTENER, "zumachen", np("bag"), PLEASE, negated=True),
     "Please do not close the bag.", "Mach bitte die Tasche nicht zu."),
]  # fmt: skip

KITCHEN = at("kitchen")
EXISTENCES = [
    (Existence(np("chair", BARE, True, 3), KITCHEN),
     "There are three chairs in the kitchen.", "In der Küche gibt es drei Stühle."),
    (Existence(np("table", INDEFINITE), KITCHEN, "past"),
     "There was a table in the kitchen.", "In der Küche gab es einen Tisch."),
    (Existence(np("milk", BARE), KITCHEN, negated=True),
     "There is no milk in the kitchen.", "In der Küche gibt es keine Milch."),
    (Existence(np("egg", BARE, True), KITCHEN, mood="question"),
     "Are there any eggs in the kitchen?", "Gibt es in der Küche Eier?"),
]  # fmt: skip

JOINED = [
    (Sentence("", being(np("jacket"), "expensive"), BUT, being(it("jacket"), "beautiful")),
     "The jacket is expensive, but it is beautiful.", "Die Jacke ist teuer, aber sie ist schön."),
    (Sentence("", being(np("apple"), "fresh"), AND, doing(BOY, "essen", it("apple"), progressive=True)),
     "The apple is fresh, and the boy is eating it.", "Der Apfel ist frisch und der Junge isst ihn."),
    (Sentence("", doing(SHE, "suchen", np("book"), progressive=True), BUT,
              doing(SHE, "finden", it("book"), modal=CAN, negated=True)),
     "She is looking for the book, but she cannot find it.", "Sie sucht das Buch, aber sie kann es nicht finden."),
]  # fmt: skip


def with_mood(clauses: list[tuple[Clause, str, str]], mood: Mood) -> list[tuple[Sentence, str, str]]:
    return [(Sentence("", replace(clause, mood=mood)), english, german) for clause, english, german in clauses]


GOLD = [
    *with_mood(STATEMENTS, "statement"),
    *with_mood(QUESTIONS, "question"),
    *with_mood(COMMANDS, "command"),
    *((Sentence("", existence), english, german) for existence, english, german in EXISTENCES),
    *JOINED,
]


@pytest.mark.parametrize(("sentence", "english", "german"), GOLD, ids=[english for _, english, _ in GOLD])
def test_spell_out_gives_the_pairs_written_by_hand(sentence: Sentence, english: str, german: str) -> None:
    assert spell_out(sentence) == (english, german)


def test_gold_pairs_are_distinct_and_more_than_100() -> None:
    assert len({english for _, english, _ in GOLD}) == len(GOLD) > 100


def test_spell_out_asks_where_with_a_verb_of_place() -> None:
    where = Adverb("where", "wo", "complement")
    clause = doing(np("key"), "liegen", None, where, progressive=True, mood="question", front="complement")
    assert spell_out(Sentence("", clause)) == ("Where is the key lying?", "Wo liegt der Schlüssel?")
