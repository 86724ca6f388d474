"""The languages of a model that translates between many, and the tokens that name them to it.

M2M-100 and NLLB begin the source with its language, and decoding forces the translation to begin
with the other. Our models and OPUS-MT begin the source with a tag of the target language, such as
`>>de<<`, which decoding need not know.

Codes of languages are compared in any case and with `-` or `_`, and a code that is not known itself
stands for the language of which it is a variant: `EN` for `en`, and `pt_BR` for `pt`, but not `pt`
for `pt_BR`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.user_input.names import find_nearest

from .protection import remove_protected

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TARGET_TAG, SOURCE_TAG = ">>{}<<", "<<{}>>"  # the former as in OPUS-MT
# The entry of `tokenizer_config.json` with the directions that a model was trained on.
DIRECTIONS = "directions"
_CODE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_MOST_SHOWN = 12
# A code of ISO 639-2 or 639-3, whose form alone is known, or one of ISO 639-1.
ISO_CODE = re.compile(
    "[a-z]{3}"
    "|a[abefkmnrsvyz]|b[aegimnors]|c[aehorsuvy]|d[aevz]|e[elnostu]|f[afijory]|g[adlnuv]"
    "|h[aeiortuyz]|i[adegikostu]|j[av]|k[agijklmnorsuvwy]|l[abginotuv]|m[ghiklnrsty]"
    "|n[abdeglnorvy]|o[cjmrs]|p[ailst]|qu|r[mnouw]|s[acdegiklmnoqrstuvw]"
    "|t[aeghiklnorstwy]|u[gkrz]|v[eio]|w[ao]|xh|y[io]|z[ahu]"
)
CATEGORIES = ("zero", "one", "two", "few", "many", "other")  # of plurals, in the order of CLDR
_SYNONYMS = {"no": "nb"}  # which babel tells apart


def is_of_language(code: str, language: str) -> bool:
    """Return whether a code of a language is another one, or a variant of it: `de-AT` is of
    `de`.
    """
    code, language = code.lower().replace("_", "-"), language.lower().replace("_", "-")
    return code == language or code.startswith(f"{language}-")


def find_code(code: str, known: Iterable[str]) -> str | None:
    """Return the one of some known codes that a code stands for, the most exact one, or None."""
    candidates = [candidate for candidate in known if is_of_language(code, candidate)]
    return code if code in candidates else max(candidates, key=len, default=None)


def base_language(code: str) -> str:
    """Return the shortest code of a language without script and region, such as `de` for
    `deu_Latn`.
    """
    with requires_extra("documents", "Shortening the codes of languages"):
        from babel.core import get_global
    base = code.replace("_", "-").split("-")[0].lower()
    base = get_global("language_aliases").get(base, base).split("_")[0]
    return _SYNONYMS.get(base, base)


class Direction(NamedTuple):
    """The codes of a source and a target language; None is unknown."""

    source: str | None = None
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


NO_DIRECTION = Direction()


class DirectionTokens(NamedTuple):
    """The tokens that name a direction, at the start of a source and at the start of its
    translation.
    """

    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()


@dataclass(frozen=True)
class Languages:
    """
    The languages of a tokenizer.

    Args:
        sources, targets: The tokens of languages by their codes. Without `sources`, no token names
            the source.
        is_forced: Whether the token of the target language begins the translation, instead of the
            source.
        directions: The directions that the model was trained on, if they are known.
        default: The direction of a request that gives none; None where one must be given.
        is_at_end: Whether the token of the source language ends a source, as in mBART and the
            former NLLB.
    """

    sources: Mapping[str, int]
    targets: Mapping[str, int]
    is_forced: bool = False
    directions: Sequence[Direction] = ()
    default: Direction = NO_DIRECTION
    is_at_end: bool = False

    @property
    def replaced(self) -> int:
        """Return how many tokens the tokenizer itself begins a sentence with, which others
        replace.
        """
        return int(self.is_forced)

    @property
    def source_codes(self) -> list[str]:
        """Return the codes of the languages that the model translates from, as far as they are
        known.
        """
        if self.sources:
            return list(self.sources)
        trained = [direction.source for direction in self.directions if direction.source]
        return list(dict.fromkeys(trained))

    @property
    def possible_directions(self) -> list[Direction]:
        """Return the directions that the model was trained on or, if they are unknown, all between
        its languages.
        """
        if self.directions:
            return list(self.directions)
        directions = []
        for source, target in product(self.source_codes, self.targets):
            if source != target:
                directions.append(Direction(source, target))
        return directions

    def complete(self, source: str | None = None, target: str | None = None) -> Direction:
        """Return a direction, with defaults for languages that are not given; None where there is
        no default.
        """
        source = _only(self.source_codes) or self.default.source if source is None else source
        target = _only(self.targets) or self.default.target if target is None else target
        return Direction(source, target)

    def resolve(self, source: str | None = None, target: str | None = None) -> Direction:
        """Return a direction, with defaults for languages that are not given."""
        source, target = self.complete(source, target)
        if source is not None or self.sources:
            source = _known_code("source", source, self.source_codes)
        return Direction(source, _known_code("target", target, self.targets))

    def tokens(self, direction: Direction) -> DirectionTokens:
        """Return the tokens of a direction."""
        source, target = self.resolve(*direction)
        from_tokens = () if not self.sources else (self.sources[str(source)],)
        to_tokens = (self.targets[str(target)],)
        if self.is_forced:
            return DirectionTokens(from_tokens, to_tokens)
        return DirectionTokens(to_tokens + from_tokens)

    def begin(self, sentences: Iterable[Sequence[int]], tokens: Sequence[int]) -> list[list[int]]:
        """Return the token ids of sentences that begin with `tokens`, or end with them."""
        if not tokens:
            return [*map(list, sentences)]
        if self.is_at_end:
            return [[*sentence[: -self.replaced], *tokens] for sentence in sentences]
        return [[*tokens, *sentence[self.replaced :]] for sentence in sentences]

    def begins_with_tag(self, sentence: Sequence[int]) -> bool:
        """Return whether a tag of the target language was written at the start of the text of a
        source.
        """
        return not self.is_forced and bool(sentence) and sentence[0] in self.targets.values()


def find_languages(tokenizer: "PreTrainedTokenizerBase", at_end: bool = False) -> Languages | None:
    """Return the languages of a tokenizer, or None if no token names them, or some do `at_end` and
    that is False.
    """
    if codes := _language_tokens(tokenizer):
        is_at_end = tokenizer("a")["input_ids"][0] not in codes.values()
        if is_at_end and not at_end:
            return None
        default = Direction(tokenizer.src_lang, tokenizer.tgt_lang)
        return Languages(codes, codes, True, (), default, is_at_end)
    targets = _tagged(tokenizer, TARGET_TAG)
    if not targets:
        return None
    sources = _tagged(tokenizer, SOURCE_TAG)
    return Languages(sources, targets, directions=trained_directions(tokenizer))


def store_direction(tokenizer: "PreTrainedTokenizerBase", directions: Iterable[Direction]) -> None:
    """Store the direction of a model that has no tokens for languages with its tokenizer, or none
    if it is unknown.
    """
    known = {*directions}
    tokenizer.init_kwargs.pop(DIRECTIONS, None)
    if len(known) == 1 and None not in (*known,)[0]:
        tokenizer.init_kwargs[DIRECTIONS] = [list(direction) for direction in known]


def find_direction(
    tokenizer: "PreTrainedTokenizerBase", source: str | None = None, target: str | None = None
) -> Direction:
    """Return the direction in which a model translates, as far as it is known.

    Args:
        source, target: Codes of the languages, as far as they are given: one of several of the
            model, or a variant of the only one, such as de-AT, or the language of a model that does
            not know its own.
    """
    languages = find_languages(tokenizer)
    if languages is not None:
        return languages.resolve(source, target)
    stored = trained_directions(tokenizer)
    if len(stored) != 1:
        stored = [NO_DIRECTION]
        # Attributes of FSMT's tokenizer and of Marian's
        for source_name, target_name in (("src_lang", "tgt_lang"), ("source_lang", "target_lang")):
            source_code = getattr(tokenizer, source_name, None)
            target_code = getattr(tokenizer, target_name, None)
            if source_code and target_code:
                stored = [Direction(source_code, target_code)]
    (trained,) = stored
    for side, code, expected in find_differences(Direction(source, target), trained):
        raise UserError(f"The {side} language must be {expected}, as of the model, got {code}.")
    return Direction(source or trained.source, target or trained.target)


def find_differences(direction: Direction, expected: Direction) -> Iterator[tuple[str, str, str]]:
    """Yield the sides of two directions that are of different languages, each with both codes."""
    for side, code, other in zip(("source", "target"), direction, expected, strict=True):
        if code and other and not is_same_language(code, other):
            yield side, code, other


def is_same_language(code: str, other: str) -> bool:
    """Return whether two codes are of one language: `de-AT` and `de`, or `de` and `deu_Latn`."""
    first = re.split("[-_]", code.lower())[0]
    second = re.split("[-_]", other.lower())[0]
    return first == second or base_language(code) == base_language(other)


def find_locale(code: str) -> Any:
    """Return the locale of babel for a code, or None if that is unknown."""
    with requires_extra("documents", "Comparing languages"):
        from babel import Locale, UnknownLocaleError
    try:
        return Locale.parse(code.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None


def is_right_to_left(code: str) -> bool:
    """Return whether a language is written from right to left, as far as babel knows it."""
    locale = find_locale(name_language(code))
    return locale is not None and locale.character_order == "right-to-left"


def plural_categories(code: str | None, is_ordinal: bool = False) -> list[str]:
    """Return the categories of plurals, or of ordinals, that a language has, or none if it is not
    known.
    """
    locale = find_locale(name_language(code)) if code else None
    if locale is None:
        return []
    tags = locale.ordinal_form.tags if is_ordinal else locale.plural_form.tags
    return [category for category in CATEGORIES if category in tags or category == "other"]


def is_language(code: str) -> bool:
    """Return whether a code is of a language that babel knows, or without babel, whether it can be
    one of two letters.
    """
    try:
        from babel import Locale
    except ImportError:
        return re.fullmatch(r"[A-Za-z]{2}([-_]\w+)?", code) is not None
    return base_language(code) in Locale("en").languages


def name_language(code: str) -> str:
    """Return a code as documents spell it: `deu_Latn` as `de`, and `pt_BR` as `pt-BR`."""
    locale = None
    if re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", code):  # as NLLB names languages
        locale = find_locale(code)
    if locale:
        return "-".join(filter(None, (locale.language, locale.script)))
    return code.replace("_", "-")


def trained_directions(tokenizer: "PreTrainedTokenizerBase") -> list[Direction]:
    """Return the directions that a tokenizer stores."""
    stored = getattr(tokenizer, "init_kwargs", {}).get(DIRECTIONS, ())
    return [Direction(*codes) for codes in stored]


def add_language_tags(
    tokenizer: "PreTrainedTokenizerBase",
    directions: Iterable[Direction],
    with_sources: bool = False,
) -> None:
    """Add tags for the languages of directions, and store the directions with the tokenizer."""
    directions = list(dict.fromkeys(directions))
    for direction in directions:
        for side, code in zip(("source", "target"), direction, strict=True):
            has_tag = side == "target" or with_sources
            if has_tag and (code is None or _CODE.fullmatch(code) is None):
                raise UserError(
                    f"`{side}_language` of each corpus must be a code such as en, got {code!r}."
                )
    wanted = [TARGET_TAG.format(direction.target) for direction in directions]
    wanted += [SOURCE_TAG.format(direction.source) for direction in directions if with_sources]
    known = tokenizer.get_vocab().keys()
    tags = [tag for tag in dict.fromkeys(wanted) if tag not in known]
    if _language_tokens(tokenizer) or (tags and not tokenizer.is_fast):
        raise UserError(
            "Language tags need a fast tokenizer without other languages, got "
            f"{type(tokenizer).__name__}. Set `language_tags` to none, or `init_vocabulary` to "
            "replace."
        )
    tagged = trained_directions(tokenizer) if _tagged(tokenizer, TARGET_TAG) else []
    tokenizer.add_special_tokens({"extra_special_tokens": tags}, replace_extra_special_tokens=False)
    stored = dict.fromkeys([*tagged, *directions])
    tokenizer.init_kwargs[DIRECTIONS] = [list(direction) for direction in stored]


def similar_tags(tokenizer: "PreTrainedTokenizerBase", tag: str) -> list[int]:
    """Return the tokens of the tags of the same kind as `tag`, or none if it is no tag."""
    for form in (TARGET_TAG, SOURCE_TAG):
        if _code_of(tag, form) is not None:
            return list(_tagged(tokenizer, form).values())
    return []


def set_languages(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    source: str | None,
    target: str | None,
) -> None:
    """Let a model whose decoding forces the target language translate from one language to another
    by default.

    The tokenizer begins each side with its language, and decoding forces the target's.

    Args:
        source, target: Codes of the tokenizer, such as `"eng_Latn"` for NLLB or `"en"` for M2M-100.
    """
    codes = _language_tokens(tokenizer)
    source, target = _known_code("source", source, codes), _known_code("target", target, codes)
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    model.generation_config.forced_bos_token_id = codes[tokenizer.tgt_lang]


def _language_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[str, int]:
    """Return the tokens of codes with which a tokenizer itself marks its sides: `deu_Latn`, or
    `__de__` in M2M-100.
    """
    if not (hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang")):
        return {}
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    # There may be tags such as <BT>, too.
    codes = filter(_CODE.fullmatch, tokenizer.extra_special_tokens)
    return {code: tokenizer.convert_tokens_to_ids(code) for code in codes}


def _tagged(tokenizer: "PreTrainedTokenizerBase", form: str) -> dict[str, int]:
    """Return the tokens of the tags of a form by their codes, in the order of their ids."""
    added: Mapping[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
    tokens: dict[str, int] = {}
    for tag in {*added, *getattr(tokenizer, "supported_language_codes", ())}:
        code = _code_of(tag, form)
        if code is not None:
            tokens[code] = tokenizer.convert_tokens_to_ids(tag)
    return dict(sorted(tokens.items(), key=lambda item: item[1]))


def _code_of(tag: str, form: str) -> str | None:
    """Return the code in a tag of a form, or None if it is another token."""
    code = tag[2:-2]
    return code if tag == form.format(code) and _CODE.fullmatch(code) else None


def _only(codes: Iterable[str]) -> str | None:
    """Return the only one of the codes, or None."""
    codes = list(codes)
    return codes[0] if len(codes) == 1 else None


def _known_code(side: str, code: str | None, known: Iterable[str]) -> str | None:
    """Return the known code of a language, or refuse one that is missing or unknown.

    Where none is known, each is.
    """
    known = list(known)
    known_code = None if code is None else find_code(code, known)
    if known_code is not None or not known:
        return known_code or code
    shown = ", ".join(known[:_MOST_SHOWN])
    if len(known) > _MOST_SHOWN:
        shown = f"{shown}, … ({len(known)} languages)"
    longer: list[str] = []
    if code is not None:
        longer = [candidate for candidate in known if candidate.lower().startswith(code.lower())]
    nearest = longer[0] if longer else find_nearest(code or "", known)
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    shown_code = "none" if code is None else repr(code)
    raise UserError(f"The {side} language must be one of {shown}; got {shown_code}.{hint}")


# A text is in another language if that is this many times as probable as the expected one.
CLEARLY = 5.0
SHORTEST_IDENTIFIED = 30  # characters; the language of shorter text is a guess
_ALIASES = {"nb": "no"}  # py3langid distinguishes no and nn


@cache
def load_identifier() -> Any:
    """Load the classifier, once per process and its children."""
    with requires_extra("cleaning", "Identifying languages"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_code(language: str | None) -> str | None:
    """Return the code of a language as the classifier spells it, such as `pt` for `pt_BR`, or None
    if it has none.
    """
    base = base_language(language or "")
    code = _ALIASES.get(base, base)
    return code if code in load_identifier().labels else None


def identify(text: str) -> str:
    """Return the code of the most probable language of a text."""
    return load_identifier().classify(text)[0]


def is_clearly_another(text: str, code: str) -> bool:
    """Return whether another language than `code` is at least five times as probable for a text.

    Protected text does not count, and of a text with fewer than 30 other characters nothing is
    said.
    """
    text = remove_protected(text)
    if len(text) < SHORTEST_IDENTIFIED or identify(text) == code:
        return False
    ranking = load_identifier().rank(text)  # the most probable first
    return ranking[0][1] > CLEARLY * dict(ranking)[code]


@cache
def _has_identifier() -> bool:
    return find_spec("py3langid") is not None


def is_in_another_language(text: str, language: str | None) -> bool:
    """Return whether a text is clearly in another language, as far as the classifier is installed
    and knows this one.
    """
    is_known = language and len(text) >= SHORTEST_IDENTIFIED and _has_identifier()
    code = language_code(language) if is_known else None
    return code is not None and is_clearly_another(text, code)
