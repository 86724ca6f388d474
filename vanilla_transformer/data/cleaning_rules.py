"""
The rules that drop pairs of a corpus: the ones that a recipe enables, and the checks of a pair.

A pair that breaks several counts for the first one in `RULES`. `data.cleaning` applies the rules to
a corpus.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from itertools import starmap
from statistics import median
from typing import Annotated, Any

import regex
from pydantic import BeforeValidator, Field, model_validator

from vanilla_transformer.data.damage import has_bad_encoding, has_markup
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import (
    is_clearly_another,
    language_code,
    load_identifier,
)
from vanilla_transformer.text.scripts import find_scripts, normalize
from vanilla_transformer.text.translation_warnings import (
    has_other_numbers,
    has_other_scripts,
    length_ratio,
    letter_ratio,
)
from vanilla_transformer.user_input.names import did_you_mean
from vanilla_transformer.user_input.schemas import Schema, split_words

from .readers import CorpusSpec, SentencePair

# In the order in which they apply: rules on the text of one pair, on all pairs, by models, and on
# tokens.
RULES = {
    "invalid_unicode": "that are not valid Unicode",
    "empty": "without text on a side",
    "min_score": "with a lower score in the corpus than min_score",
    "identical": "with a target that is its source",
    "bad_encoding": (
        "with control characters, U+FFFD, or UTF-8 that was read as Windows-1252 or Latin-1"
    ),
    "markup": "with tags, comments or entities of HTML or XML",
    "max_characters": "with more characters than max_characters",
    "max_character_ratio": "beyond max_character_ratio",
    "min_letter_ratio": "with a smaller share of letters than min_letter_ratio",
    "other_numbers": "with a number, up to 100 maybe as a word, that only one side has",
    "other_scripts": "with a side without the scripts that their corpus uses",
    "other_languages": "with a side that is clearly not in its language, which needs py3langid",
    "duplicates": (
        "that repeat another one but for case, white space, invisible characters and "
        "composed letters"
    ),
    "near_duplicates": "that repeat another one but for case, digits, punctuation and spaces",
    "repeated_sources": "with the source of another one of the same direction",
    "repeated_targets": "with the target of another one of the same direction",
    "misaligned": "whose sides do not seem to be translations of each other, by a lexical model",
    "score": "with a low score by models",
    "max_length": "longer than max_length",
    "max_length_ratio": "beyond max_length_ratio",
}
REPETITIONS = ("duplicates", "near_duplicates", "repeated_sources", "repeated_targets")
ON_TOKENS = ("max_length", "max_length_ratio")


def read_drop(value: object) -> tuple[str, ...]:
    """Return the names of the key `drop` in the order of `DROPPED`: a list of them, or text as in a
    flag.
    """
    names = value or ()
    if isinstance(value, str):
        names = split_words(value) if value.strip("[] ") else ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"`drop` must be a list of names, such as [empty, duplicates], got {value!r}."
        )
    for name in names:
        if name not in DROPPED:
            hint = did_you_mean(name, DROPPED)
            raise UserError(
                f"`drop` must name kinds of pairs of {', '.join(DROPPED)}, got {name!r}.{hint}"
            )
    return tuple(name for name in DROPPED if name in names)


Length = Annotated[int | None, Field(ge=1)]
Ratio = Annotated[float | None, Field(ge=1)]
Share = Annotated[float | None, Field(ge=0, le=1)]
_Kept = Annotated[float | None, Field(gt=0, le=1)]


class ScoreRule(Schema, frozen=True):
    """
    The section `score` of a recipe: drop pairs with a low score, by dual conditional cross-entropy
    or by quality.

    Attributes:
        forward, backward (`str`): A model of the direction of the corpus, and one of the opposite
            direction.
        quality (`str`): Instead: a COMET model that scores without references.
        min_score (`float`): Drop pairs with a lower score. Scores are in (0, 1], of quality about
            so.
        keep (`float`): Instead: the share of pairs of each corpus to keep, the ones with the
            highest scores.
    """

    noun = "key of `score`"
    forward: str = ""
    backward: str = ""
    quality: str = ""
    min_score: _Kept = None
    keep: _Kept = None

    @model_validator(mode="after")
    def _check_together(self) -> "ScoreRule":
        is_of_quality = bool(self.quality)
        models = [bool(self.forward), bool(self.backward)]
        if any(models) == is_of_quality or any(models) != all(models):
            raise UserError(
                "`score` must name either a model `quality`, or both models `forward` and "
                "`backward`."
            )
        if (self.min_score is None) == (self.keep is None):
            raise UserError("`score` must have either `min_score` or `keep`, a number from 0 to 1.")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that score: one for each direction, or one of quality."""
        return (self.quality,) if self.quality else (self.forward, self.backward)

    def threshold(self, scores: Sequence[float]) -> float:
        """Return the lowest score to keep, given the scores of a corpus."""
        if self.keep is None:
            return float(self.min_score or 0.0)
        count = max(1, round(self.keep * len(scores)))
        return float(sorted(scores)[-count])


def _read_score(section: object) -> object:
    if section is None or isinstance(section, ScoreRule):
        return section
    if not isinstance(section, Mapping):
        example = "{forward: MODEL, backward: MODEL, keep: 0.7}"
        raise UserError(f"`score` must be a mapping, such as {example}, got {section!r}.")
    return ScoreRule(**{str(name): value for name, value in section.items()})


class CleaningRules(Schema, frozen=True):
    """The rules that a recipe enables for a corpus. See `DataArguments` for the fields."""

    drop: Annotated[tuple[str, ...], BeforeValidator(read_drop)] = ()
    min_score: float | None = None
    max_characters: Length = None
    max_character_ratio: Ratio = None
    min_letter_ratio: Share = None
    max_length: Length = None
    max_length_ratio: Ratio = None
    score: Annotated[ScoreRule | None, BeforeValidator(_read_score)] = None

    @property
    def on_text(self) -> dict[str, Any]:
        """Return the rules that need neither models nor tokens."""
        values = {name: value for name, value in self if name not in ("drop", "score", *ON_TOKENS)}
        # As checkpoints and caches have it hashed since each of these names was a switch.
        return values | {f"drop_{name}": name in self.drop for name in DROPPED}


# The rules without a value, which the key `drop` enables by name.
DROPPED = {name: text for name, text in RULES.items() if name not in CleaningRules.model_fields}
# Pairs at the beginning of a corpus, whose scripts and lengths stand for the whole corpus
SAMPLED_PAIRS = 10_000
_SPELLED_OUT = 100  # the largest number that one side may have as a word


@dataclass(frozen=True)
class PairRules:
    """
    The rules of a corpus, the direction in which it translates, and the checks of single pairs in
    their order.

    A check returns whether a pair breaks its rule.
    """

    rules: CleaningRules
    direction: str = ""
    checks: Mapping[str, Callable[[SentencePair], bool]] = field(default_factory=dict)

    def find_broken(self, pair: SentencePair) -> str | None:
        """Return the name of the first rule that a pair breaks."""
        for name, is_broken in self.checks.items():
            if is_broken(pair):
                return name
        return None

    @classmethod
    def for_corpus(
        cls, spec: CorpusSpec, rules: CleaningRules, sample: Sequence[SentencePair]
    ) -> "PairRules":
        """Return the rules of a corpus that begins with a sample, by which scripts and lengths are
        usual or not.
        """
        drop = rules.drop
        plain = {"bad_encoding": is_in_bad_encoding, "markup": is_marked_up}
        checks: dict[str, Callable[[SentencePair], bool]] = {}
        for name, is_broken in plain.items():
            if name in drop:
                checks[name] = is_broken
        if (most := rules.max_characters) is not None:
            checks["max_characters"] = lambda pair: max(map(len, pair)) > most
        if (ratio := rules.max_character_ratio) is not None:
            usual = median(starmap(length_ratio, sample)) if sample else 1.0
            checks["max_character_ratio"] = lambda pair: (
                not 1 / ratio <= length_ratio(*pair) / usual <= ratio
            )
        if (least := rules.min_letter_ratio) is not None:
            checks["min_letter_ratio"] = lambda pair: min(map(letter_ratio, pair)) < least
        if "other_numbers" in drop:
            checks["other_numbers"] = has_unequal_numbers
        if "other_scripts" in drop:
            source_scripts = find_scripts(pair.source for pair in sample)
            target_scripts = find_scripts(pair.target for pair in sample)
            scripts = [source_scripts, target_scripts]
            checks["other_scripts"] = partial(is_in_other_scripts, scripts=scripts)
        if "other_languages" in drop:
            spec.require_languages()
            codes = [language_code(language) for language in spec.direction]
            if None in codes:
                known = ", ".join(sorted(load_identifier().labels))
                requirement = (
                    f"The languages of {spec.name} must have codes that py3langid knows ({known})"
                )
                unknown = spec.direction[codes.index(None)]
                raise UserError(
                    f"{requirement}, got {unknown}. Rename it, or leave `other_languages` out of "
                    "`drop`."
                )
            checks["other_languages"] = partial(is_in_other_languages, codes=[*map(str, codes)])
        return cls(rules, str(spec.direction), checks)


def is_in_bad_encoding(pair: SentencePair) -> bool:
    return any(map(has_bad_encoding, pair))


def is_marked_up(pair: SentencePair) -> bool:
    return any(map(has_markup, pair))


def has_unequal_numbers(pair: SentencePair) -> bool:
    """Return whether a side has a number that the other one lacks, as in the warning of
    translations, but for numbers up to 100, which a translator may have written as words.
    """
    return has_other_numbers(pair.source, pair.target, _SPELLED_OUT)


def is_in_other_scripts(pair: SentencePair, scripts: Sequence[Sequence[str]]) -> bool:
    """Return whether a side has letters of other scripts, as in the warning of translations."""
    return any(has_other_scripts(text, usual) for text, usual in zip(pair, scripts, strict=True))


def is_in_other_languages(pair: SentencePair, codes: Sequence[str]) -> bool:
    return any(is_clearly_another(text, code) for text, code in zip(pair, codes, strict=True))


# All but letters, numerals that are no digits, and their marks, such as vowel signs.
_NO_LETTERS = regex.compile(r"(?:[^\p{L}\p{Nl}\p{No}\p{M}\p{Cf}]\p{M}*+|\p{Cf})++")


def hash_pair(pair: SentencePair) -> bytes:
    """Return a 16-byte hash of a pair.

    The length of the source tells ("ab", "c") from ("a", "bc").
    """
    source = pair.source.encode()
    content = b"%d %s%s" % (len(source), source, pair.target.encode())
    return blake2b(content, digest_size=16).digest()


def hash_repetition(rule_name: str, pair: SentencePair, direction: str) -> bytes:
    """
    Return a 16-byte hash that pairs share if one of them repeats the other by a rule of
    `REPETITIONS`.

    Args:
        direction: Direction of the pair. A source may have a translation in each of several
            languages.
    """
    form = _letters if rule_name == "near_duplicates" else _normal_form
    pair = SentencePair(form(pair.source), form(pair.target))
    if rule_name == "repeated_sources":
        pair = SentencePair(pair.source, direction)
    elif rule_name == "repeated_targets":
        pair = SentencePair(direction, pair.target)
    return hash_pair(pair)


def _letters(text: str) -> str:
    """Return the letters of a text, without case. A text without letters is returned as it is."""
    return _NO_LETTERS.sub("", normalize("NFKC", text).casefold()) or text


def _normal_form(text: str) -> str:
    """Return a text as the tokenizer sees it, without case.

    A text of which nothing is left is returned as it is.
    """
    if text.isascii() and text.isprintable():  # nothing but runs of spaces can change
        return " ".join(text.split()).casefold()
    return load_normalizer().normalize_str(text).casefold() or text


@cache
def load_normalizer() -> Any:
    """Load the normalizer by which copies are compared, the one of trained tokenizers."""
    from vanilla_transformer.tokenization_vanilla_transformer import build_normalizer

    return build_normalizer("nfc", prefix="")


def rank_case(pair: SentencePair) -> int:
    """Return how unusual the case of a pair is, from 0: of copies that differ by case, the lowest
    one is kept.
    """
    texts = [normalize("NFC", text) for text in pair]
    return sum(text.istitle() + 2 * text.islower() + 3 * text.isupper() for text in texts)
