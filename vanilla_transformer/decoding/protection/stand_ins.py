"""
Stand-ins: words that a model translates instead of text to keep.

A model has never seen `{name}` or `https://a.example/x`. Made to write it, it writes it anywhere,
and the sentence around it suffers. It has seen names, numbers and domains, and copies them to the
right place. So a sentence is decoded with such words, and the text to keep is put back.

Which words a model copies differs by direction: names are transliterated into Russian, and small
numbers are spelled. Some models lose a name in quotation marks, which a stand-in replaces, too. A
probe of at most 200 sentences tells.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.protection import UNIT, WORD_CHARACTER, Range, find_texts, kind_of

from .kept_text import QUOTATION_MARKS, is_in_marks

_NAMES = ("Tom", "Maria", "Anna", "John", "David", "Peter", "Julia", "Robert", "Paul", "Daniel")
_NUMBERS = ("47", "83", "26", "64", "38", "92", "57", "75")
_DOMAINS = ("example.com", "google.com")
# Sentences of some languages that take a word; others get the ones of English.
_FRAMES = {
    "ar": (
        "رأيت {}.",
        "أين {}؟",
        "{} هنا.",
        "هذا من {} أيضا.",
        "اتصل بـ {} غدا.",
        "{} طلب مني المساعدة.",
        "هل تعرف لماذا تأخر {}؟",
        "أعطينا {} كتابا جديدا.",
    ),
    "de": (
        "Ich habe {} gesehen.",
        "Wo ist {}?",
        "{} ist hier.",
        "Das ist auch von {}.",
        "Ruf morgen {} an.",
        "{} hat mich um Hilfe gebeten.",
        "Weißt du, warum {} zu spät kommt?",
        "Wir haben {} ein neues Buch gegeben.",
    ),
    "en": (
        "I saw {}.",
        "Where is {}?",
        "{} is here.",
        "This is from {}, too.",
        "Call {} tomorrow.",
        "{} asked me to help.",
        "Do you know why {} is late?",
        "We gave {} a new book.",
    ),
    "es": (
        "He visto a {}.",
        "¿Dónde está {}?",
        "{} está aquí.",
        "Esto también es de {}.",
        "Llama a {} mañana.",
        "{} me pidió ayuda.",
        "¿Sabes por qué {} llega tarde?",
        "Le dimos a {} un libro nuevo.",
    ),
    "fr": (
        "J'ai vu {}.",
        "Où est {} ?",
        "{} est ici.",
        "C'est aussi de {}.",
        "Appelle {} demain.",
        "{} m'a demandé de l'aide.",
        "Sais-tu pourquoi {} est en retard ?",
        "Nous avons donné un nouveau livre à {}.",
    ),
    "it": (
        "Ho visto {}.",
        "Dov'è {}?",
        "{} è qui.",
        "Anche questo è di {}.",
        "Chiama {} domani.",
        "{} mi ha chiesto aiuto.",
        "Sai perché {} è in ritardo?",
        "Abbiamo dato a {} un libro nuovo.",
    ),
    "ja": (
        "{}を見ました。",
        "{}はどこですか。",
        "{}はここです。",
        "これも{}からです。",
        "明日{}に電話してください。",
        "{}が私に助けを求めました。",
        "{}がなぜ遅れているか知っていますか。",
        "{}に新しい本をあげました。",
    ),
    "nl": (
        "Ik heb {} gezien.",
        "Waar is {}?",
        "{} is hier.",
        "Dit is ook van {}.",
        "Bel {} morgen.",
        "{} heeft mij om hulp gevraagd.",
        "Weet je waarom {} te laat is?",
        "We hebben {} een nieuw boek gegeven.",
    ),
    "pl": (
        "Widzę {}.",
        "Gdzie jest {}?",
        "{} jest tutaj.",
        "To też jest od {}.",
        "Zadzwoń jutro do {}.",
        "{} prosi mnie o pomoc.",
        "Czy wiesz, dlaczego {} się spóźnia?",
        "To nowa książka, którą ma {}.",
    ),
    "pt": (
        "Eu vi {}.",
        "Onde está {}?",
        "{} está aqui.",
        "Isto também é de {}.",
        "Ligue para {} amanhã.",
        "{} me pediu ajuda.",
        "Você sabe por que {} está atrasado?",
        "Nós demos um livro novo a {}.",
    ),
    "ru": (
        "Я вижу {}.",
        "Где {}?",
        "{} здесь.",
        "Это тоже от {}.",
        "Позвони {} завтра.",
        "{} просит меня о помощи.",
        "Ты знаешь, почему {} опаздывает?",
        "Мы дали {} новую книгу.",
    ),
    "tr": (
        "{} gördüm.",
        "{} nerede?",
        "{} burada.",
        "Bu da {} için.",
        "Yarın {} ara.",
        "{} benden yardım istedi.",
        "{} neden geç kaldı, biliyor musun?",
        "Yeni kitap {} için.",
    ),
    "zh": (
        "我看见了{}。",
        "{}在哪里？",
        "{}在这里。",
        "这也是{}的。",
        "明天给{}打电话。",
        "{}请我帮忙。",
        "你知道{}为什么迟到吗？",
        "我们给了{}一本新书。",
    ),
}
_MOST_FAILURES = 2
_BESIDE_WORD = regex.compile(WORD_CHARACTER, regex.V1)
# Fields whose value is a number
_NUMBER_FIELD = regex.compile(
    r"%(?:\d+\$)?[-+0# ]*\d*(?:hh?|ll?|[jztLq])?[diuxX]|%n|%L\d|%\(n\w*\)d"
    r"|[%#$@]?\{{1,2}\s*[%$]?(?:n|num|number|count|total|size|amount)\s*\}{1,2}"
    rf"|[%{{].*?[dfs@\d}}]{UNIT}",
    regex.V1,
)
# Tags and entities without a word, BBCode, and marks around the text of a link
_NO_WORD = regex.compile(
    r"</.*|<(?:br|hr|img|wbr|input)\b[^<>]*>|&[^;]*;|%%|\[/?[a-z]+\b[^\[\]]*\]|:[\w:+-]+:`|(?:<.*>)?`_*",
    regex.IGNORECASE,
)
_KINDS_OF_WORDS = {"url": "domains", "email": "domains", "emoji": None, "number": None}

# Returns the translation of each source.
TranslateTexts = Callable[[Sequence[str]], Sequence[str]]


class StandIns(NamedTuple):
    """
    Words that a model copies in a direction, the best ones first.

    Attributes:
        quotation_marks: Opening marks that are still around a name in its translations, in some
            form.
    """

    names: Sequence[str] = ()
    numbers: Sequence[str] = ()
    domains: Sequence[str] = ()
    quotation_marks: Sequence[str] = tuple(QUOTATION_MARKS)

    @classmethod
    def from_config(cls, config: Any, direction: Direction) -> "StandIns | None":
        """Return the words that the configuration of a model has as `stand_ins` for a direction, or
        None.

        Raises:
            UserError: The entry is damaged.
        """
        stored = getattr(config, "stand_ins", None)
        if stored is None:
            return None
        try:
            words = stored.get(direction_key(direction))
            if words is None:
                return None
            return cls(**{name: tuple(words[name]) for name in words})
        except (AttributeError, TypeError) as error:
            raise UserError(
                "`stand_ins` in the configuration is damaged. Remove it, or run "
                "`vanilla-transformer calibrate` again."
            ) from error

    def choose(self, source: str, kept: Sequence[Range], attempt: int) -> list[str] | None:
        """
        Return the text instead of each kept range of a source; None if there are too few
        words.

        Numbers, emoji and tags without a word stand for themselves at first.

        Args:
            attempt: The number of times that others were tried for this source.
        """
        chosen = list[str]()
        stands_in = False
        for start, end in kept:
            kind = self._kind(source, (start, end), attempt)
            if kind is None:
                chosen.append(source[start:end])
                continue
            words = self._words_of(kind, attempt)
            word = next((word for word in words if word not in source and word not in chosen), None)
            if word is None:
                return None
            chosen.append(word)
            stands_in = True
        return chosen if stands_in else None

    def _kind(self, source: str, span: Range, attempt: int) -> str | None:
        """Return the kind of word that stands for a range of a source, or None for itself."""
        start, end = span
        text = source[start:end]
        if _NO_WORD.fullmatch(text):
            return None
        kind = kind_of(text)
        if kind == "number" and attempt:
            return "numbers"
        if kind in _KINDS_OF_WORDS:
            return _KINDS_OF_WORDS[kind]
        touches = source[max(0, start - 1) : start] + source[end : end + 1]
        if _NUMBER_FIELD.fullmatch(text) or _BESIDE_WORD.search(touches):
            return "numbers"
        return "names"

    def _words_of(self, kind: str, attempt: int) -> list[str]:
        """Return the words for a kind, from another one on after the first attempt, and then words
        of other kinds.
        """
        words = [*getattr(self, kind)]
        if attempt:
            middle = len(words) // 2
            words = words[middle:] + words[:middle]
        if kind != "names":
            words += self.names
        return [*words, *self.numbers]


def direction_key(direction: Direction) -> str:
    """Return the name of a direction in a configuration, which is empty where a model has one."""
    return "-".join(filter(None, direction))


def probe_stand_ins(translate: TranslateTexts, language: str | None) -> StandIns:
    """
    Return the words that a model copies in six of eight sentences, those first that it copies in
    all; and the quotation marks that it keeps around the first name.

    Args:
        translate: The model, in one direction.
        language: The code of its source language, if it is known.
    """
    code = (language or "en").replace("_", "-").partition("-")[0]
    failures = dict.fromkeys([*_NAMES, *_NUMBERS, *_DOMAINS], 0)
    frames = _FRAMES.get(code, _FRAMES["en"])
    for frame in frames:
        words = [word for word, count in failures.items() if count <= _MOST_FAILURES]
        translations = translate([frame.format(word) for word in words]) if words else []
        for word, translation in zip(words, translations, strict=True):
            failures[word] += len(find_texts([word], translation)[word]) != 1
    kinds = []
    for candidates in (_NAMES, _NUMBERS, _DOMAINS):
        words = [word for word in candidates if failures[word] <= _MOST_FAILURES]
        kinds.append(tuple(sorted(words, key=failures.__getitem__)))
    names, numbers, domains = kinds
    quotation_marks = probe_quotation_marks(translate, names, frames)
    return StandIns(names, numbers, domains, quotation_marks)


def probe_quotation_marks(
    translate: TranslateTexts, names: Sequence[str], frames: Sequence[str]
) -> tuple[str, ...]:
    """Return the opening quotation marks that a model keeps around a name in some form, in three of
    four sentences.
    """
    if not names:
        return ()
    frames = frames[::2]
    texts = []
    for opening, closings in QUOTATION_MARKS.items():
        texts += [frame.format(opening + names[0] + closings[0]) for frame in frames]
    translations = iter(translate(texts))
    copied = []
    for opening in QUOTATION_MARKS:
        failures = 0
        for _ in frames:
            translation = next(translations)
            places = find_texts(names[:1], translation)[names[0]]
            failures += not (len(places) == 1 and is_in_marks(translation, *places[0]))
        if failures < _MOST_FAILURES:
            copied.append(opening)
    return tuple(copied)


def find_forms(word: str, translation: str, keeps_ending: bool) -> list[Range]:
    """
    Return where a translation has a word in any case and with an ending, as languages inflect
    names.

    Args:
        keeps_ending: Whether the ending is no part of the place, because the source has one, too.
    """
    if not word.isalpha():
        return find_texts([word], translation)[word]
    form = (
        rf"(?i)(?<!{WORD_CHARACTER}){word}((?:['’]?\p{{L}}{{1,3}})?)(?!{WORD_CHARACTER}|[.,:/]\d)"
    )
    places = list[Range]()
    for match in regex.finditer(form, translation, regex.V1):
        end = match.start(1) if keeps_ending else match.end()
        places.append((match.start(), end))
    return places
