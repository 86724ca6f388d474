"""Check the text of a language pair before training: scripts, tokens, scores, and findings with
their remedies.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from random import Random
from statistics import median
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.cleaning_rules import (
    has_unequal_numbers,
    hash_repetition,
    is_in_bad_encoding,
    is_in_other_languages,
    is_in_other_scripts,
    is_marked_up,
    load_normalizer,
)
from vanilla_transformer.data.damage import has_markup
from vanilla_transformer.data.data_arguments import DataArguments, augmentations
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import identify, language_code
from vanilla_transformer.text.protection import find_protected
from vanilla_transformer.text.scripts import UNSPACED, bleu_tokenizer, find_scripts
from vanilla_transformer.text.translation_warnings import length_ratio
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

_SAMPLE = 20_000  # pairs that are examined
_COMPARED = 2_000_000  # pairs among which duplicates are counted
_IDENTIFIED = 1_000  # pairs whose languages are identified
_VOCABULARY = 8_000  # entries of a tokenizer that is trained for the check, at most
_UNEVEN = 1.5  # times the tokens of the other side
_RATIO = 2.5  # times the usual ratio of lengths, or its inverse
_MIXED = 0.1  # of the lines with quotation marks
_USUAL_END = 0.1  # of the lines, from which on a mark usually ends them
_EXAMPLE = 100  # characters
_OPENING = re.compile(r"(?<!\w)[\"“„«»「](?=\w)")
SIDES = ("source", "target")


@dataclass(frozen=True)
class Finding:
    """
    Something in the text that training or scores suffer from.

    Attributes:
        name: Such as `duplicates`.
        text: One sentence with numbers.
        example: A line of the text, or of both sides.
        remedy: The key of a recipe, or the command, that mends it.
    """

    name: str
    text: str
    example: str
    remedy: str


@dataclass(frozen=True)
class Side:
    """
    One side of the text.

    Attributes:
        scripts: Names of Unicode, in alphabetical order.
        tokens_per_word: Tokens between white space; None in scripts without spaces between words.
        characters_per_token: Characters of a token.
        normalized: Share of the lines that `normalization: nfc` changes.
        changes: Characters that it changes, with the number of changes.
        bleu_tokenizer: Name of sacreBLEU's tokenizer for this side as references.
    """

    language: str | None
    scripts: Sequence[str]
    tokens_per_word: float | None
    characters_per_token: float
    normalized: float
    changes: Mapping[str, int]
    bleu_tokenizer: str

    def column(self) -> dict[str, str]:
        """Return the names and values of this side's column on the page."""
        per_word = "no spaces"
        if self.tokens_per_word is not None:
            per_word = f"{self.tokens_per_word:.2f}"
        return {
            "language": self.language or "not given",
            "scripts": ", ".join(self.scripts) or "none",
            "tokens a word": per_word,
            "characters a token": f"{self.characters_per_token:.2f}",
            "lines normalized": f"{self.normalized:.1%}",
            "characters normalized": _show_counts(self.changes),
        }


@dataclass(frozen=True)
class LanguageReport:
    """The page about a language pair."""

    pairs: int
    sampled: int
    sides: Sequence[Side]
    findings: Sequence[Finding]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page."""
        yield f"{self.pairs:,} pairs, of which {self.sampled:,} were examined."
        yield ""
        source, target = (side.column() for side in self.sides)
        source["BLEU tokens"] = ""
        target["BLEU tokens"] = self.sides[1].bleu_tokenizer
        rows = [("", *SIDES)]
        rows += [(name, source[name], target[name]) for name in source]
        name_width = max(len(name) for name, _, _ in rows)
        source_width = max(len(value) for _, value, _ in rows)
        for name, value, target_value in rows:
            yield f"{name:{name_width}}  {value:{source_width}}  {target_value}".rstrip()
        for finding in self.findings:
            yield ""
            yield f"{finding.name}: {finding.text}"
            yield f"  example: {finding.example}"
            yield f"  remedy:  {finding.remedy}"
        yield ""
        yield f"{len(self.findings)} findings." if self.findings else "No findings."


def _show_counts(counts: Mapping[str, int], most: int = 3) -> str:
    shown = [f"{name} {count:,}" for name, count in counts.items()]
    return ", ".join(shown[:most]) or "none"


class Numbered(NamedTuple):
    """A pair with its line number, counted from 1."""

    line: int
    pair: SentencePair

    def show(self) -> str:
        """Return the pair on one line, cut, with its line number."""
        shown = []
        for text in self.pair:
            line = " ".join(text.split())
            shown.append(line[:_EXAMPLE] + "…" * (len(line) > _EXAMPLE))
        return f"line {self.line:,}: {' | '.join(shown)}"


@dataclass(frozen=True)
class _Text:
    """The text that checks read: some of its pairs, with a tokenizer, languages and the keys of the
    recipe.
    """

    sample: Sequence[Numbered]
    repeated: Sequence[Numbered]
    pairs: int
    tokenizer: PreTrainedTokenizerBase
    languages: Sequence[str | None]
    data: DataArguments

    def remedy(self, key: str, value: str) -> str:
        """Return how a key of the recipe mends something, or that it does so already."""
        if value in (self.data.drop or ()):
            return f"`{value}` in `drop` of the recipe mends it"
        if key != "drop" and getattr(self.data, key):
            return f"`{key}` of the recipe mends it"
        return f"{key}: [{value}]" if key == "drop" else f"{key}: {value}"

    def finding(
        self,
        name: str,
        faulty: Sequence[Numbered],
        words: str,
        remedy: str,
        examined: Sequence[Numbered] | None = None,
    ) -> Iterator[Finding]:
        """Yield a finding if some of the examined pairs have a fault; by default these are the
        sample.
        """
        if faulty:
            total = len(self.sample if examined is None else examined)
            share = f"{len(faulty):,} of {total:,} examined pairs ({len(faulty) / total:.1%})"
            yield Finding(name, f"{share} {words}.", faulty[0].show(), remedy)


def check_language(
    pairs: Iterable[SentencePair],
    source_language: str | None,
    target_language: str | None,
    data: DataArguments,
    invalid: Sequence[str] = (),
) -> LanguageReport:
    """
    Examine the text of a language pair. Of long texts a sample is examined, and duplicates are
    counted in all of it.

    Args:
        pairs: The text before cleaning.
        source_language, target_language: Codes of the languages, if they are known.
        data: The recipe's keys: its tokenizer or size of the vocabulary, and its rules of cleaning.
        invalid: Descriptions of lines that are not valid Unicode and not among the pairs, once
            these are read.
    """
    sample, repeated, count = _read(pairs)
    texts = list(chain.from_iterable(numbered.pair for numbered in sample))
    if not any(map(str.strip, texts)):
        raise UserError("There must be text to check, got no line with a character.")
    languages = [source_language, target_language]
    if not all(languages) and find_spec("py3langid"):
        identified = sample[:: max(1, len(sample) // _IDENTIFIED)]
        for side, code in enumerate(languages):
            if not code:
                counts = Counter(identify(numbered.pair[side]) for numbered in identified)
                languages[side] = f"{counts.most_common(1)[0][0]} (identified)"
    if data.tokenizer is not None:
        tokenizer = load_tokenizer(data.tokenizer)
    else:
        size, model = min(data.vocab_size, _VOCABULARY), data.tokenizer_model
        tokenizer = VanillaTransformerTokenizer.train_from_iterator(
            texts,
            size,
            model=model,
            normalization=data.normalization,
            pattern=data.tokenizer_pattern,
        )
    text = _Text(sample, repeated, count, tokenizer, languages, data)
    sides = [_describe(text, index) for index in (0, 1)]
    findings: list[Finding] = []
    for check in _CHECKS:
        findings += check(text, sides)
    if invalid:
        words = f"{len(invalid):,} lines are not valid Unicode and were not examined."
        remedy = text.remedy("drop", "invalid_unicode")
        findings.insert(0, Finding("invalid_unicode", words, invalid[0], remedy))
    return LanguageReport(count, len(sample), sides, findings)


def _read(pairs: Iterable[SentencePair]) -> tuple[list[Numbered], list[Numbered], int]:
    """Return a sample in order, pairs that repeat an earlier one, and the number of all pairs."""
    random = Random(0)
    sample: list[Numbered] = []
    repeated: list[Numbered] = []
    seen: set[bytes] = set()
    count = 0
    for count, pair in enumerate(pairs, 1):
        if len(sample) < _SAMPLE:
            sample.append(Numbered(count, pair))
        elif (index := random.randrange(count)) < _SAMPLE:
            sample[index] = Numbered(count, pair)
        if count <= _COMPARED:
            before = len(seen)
            seen.add(hash_repetition("duplicates", pair, ""))
            if len(seen) == before:
                repeated.append(Numbered(count, pair))
    return sorted(sample), repeated, count


def _describe(text: _Text, index: int) -> Side:
    texts = []
    for numbered in text.sample:
        sentence = numbered.pair[index]
        if sentence.strip():
            texts.append(sentence)
    ids = text.tokenizer(texts, add_special_tokens=False)["input_ids"]
    tokens = sum(map(len, ids))
    words = sum(len(line.split()) for line in texts)
    characters = sum(map(len, texts))
    scripts = find_scripts(texts)
    is_spaced = not UNSPACED & {*scripts}
    normal = [load_normalizer().normalize_str(line) for line in texts]
    changed = []
    for sentence, normal_form in zip(texts, normal, strict=True):
        if sentence != normal_form:
            changed.append((sentence, normal_form))
    changes = Counter[str]()
    for before, after in changed:
        for character, times in (Counter(before) - Counter(after)).items():
            name = unicodedata.name(character, f"U+{ord(character):04X}")
            if character == " ":
                name = "further spaces"
            elif unicodedata.category(character)[0] in "LM":
                name = "letters and marks apart (NFD)"
            changes[name] += times
    return Side(
        text.languages[index],
        scripts,
        tokens / max(1, words) if is_spaced else None,
        characters / max(1, tokens),
        len(changed) / max(1, len(texts)),
        dict(changes.most_common()),
        bleu_tokenizer(texts),
    )


# --- Checks ---------------------------------------------------------------------------------------


def _check_tokens(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Compare the tokens of both sides: a language with much longer sequences is learned worse."""
    counts = []
    for index, side in enumerate(sides):
        length = sum(len(numbered.pair[index]) for numbered in text.sample)
        counts.append(length / side.characters_per_token)
    longer = counts[1] > counts[0]
    ratio = counts[longer] / max(1.0, counts[not longer])
    if ratio > _UNEVEN:
        words = f"The {SIDES[longer]} has {ratio:.1f} tokens for each of the {SIDES[not longer]}."
        remedy = "a tokenizer trained on this text (leave `tokenizer` out)"
        if text.data.tokenizer is None:
            size = f"{2 * len(text.tokenizer):_}"
            remedy = f"vocab_size: {size}, or more text of this language"
        yield Finding("tokens", words, text.sample[0].show(), remedy)


def _check_normalization(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find text whose tokens depend on its form: no-break spaces, invisible characters, letters and
    marks apart.
    """
    normalize = load_normalizer().normalize_str
    for side, name in enumerate(SIDES):
        other = []
        for numbered in text.sample:
            sentence = numbered.pair[side]
            normal = normalize(sentence)
            if normal == sentence:
                continue
            ids = text.tokenizer(sentence)["input_ids"]
            if ids != text.tokenizer(normal)["input_ids"]:
                other.append(numbered)
        if other:
            words = (
                f"have other tokens in the {name} than their normal form: "
                f"{_show_counts(sides[side].changes)}"
            )
            remedy = "normalization: nfc"
            if text.data.tokenizer is not None:
                remedy = (
                    "a tokenizer trained by `train-tokenizer`, or `translate --normalize` "
                    "for text to translate"
                )
            (finding,) = text.finding("normalization", other, words, remedy)
            yield replace(finding, example=ascii(other[0].pair[side])[:_EXAMPLE])


def _check_scores(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find languages whose best tokenizer of BLEU is not installed."""
    needed = {"HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko"}
    extras = sorted({needed[script] for script in sides[1].scripts if script in needed})
    if extras and sides[1].bleu_tokenizer == "char":
        words = "BLEU counts characters, because the tokenizer of this language is not installed."
        remedy = f"pip install 'sacrebleu[{extras[0]}]'"
        yield Finding("bleu", words, text.sample[0].show(), remedy)


def _check_sentences(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find a usual mark at the end of lines at which lines are not split into sentences."""
    sources = [numbered.pair.source.strip() for numbered in text.sample]
    ends = Counter(source[-1] for source in sources if source)
    for mark, count in ends.items():
        is_end = unicodedata.category(mark) == "Po" and mark not in ":;,"
        is_usual = is_end and count > _USUAL_END * len(text.sample)
        if is_usual and len(split_simply(f"A{mark} B")) == 1:
            ending = []
            for numbered in text.sample:
                if numbered.pair.source.strip().endswith(mark):
                    ending.append(numbered)
            words = f"end in {mark}, at which lines are not split into sentences"
            remedy = "sentence_splitter='my_module:split' of the pipeline"
            yield from text.finding("sentences", ending, words, remedy)


def _check_augmentations(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find augmentations of the recipe that do not suit the script of the source."""
    from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS

    for name in augmentations(text.data):
        change = PERTURBATIONS.get(name)
        if change is None:
            continue
        unsuited = []
        for numbered in text.sample:
            if not change.suits(numbered.pair.source):
                unsuited.append(numbered)
        if 2 * len(unsuited) > len(text.sample):
            words, remedy = "have a source without them", f"`augment` without {name}"
            (finding,) = text.finding("augmentation", unsuited, words, remedy)
            yield replace(finding, text=f"{name} needs {change.needs}, and {finding.text}")


def _check_languages(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    codes = [(language or "").removesuffix(" (identified)") for language in text.languages]
    if not find_spec("py3langid") or not all(map(language_code, codes)):
        return
    identified = text.sample[:: max(1, len(text.sample) // _IDENTIFIED)]
    names = [language_code(code) or "" for code in codes]
    other = []
    for numbered in identified:
        if is_in_other_languages(numbered.pair, names):
            other.append(numbered)
    words = f"are in another language than {' and '.join(codes)}, by their letters"
    remedy = text.remedy("drop", "other_languages")
    yield from text.finding("other_languages", other, words, remedy, identified)


def _check_quotes(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find a target with several kinds of quotation marks, among which a model can only guess."""
    openings = [_OPENING.search(numbered.pair.target) for numbered in text.sample]
    kinds = Counter(mark[0] for mark in openings if mark)
    least = _MIXED * kinds.total()
    rare = [kind for kind, count in kinds.most_common()[1:] if count > least]
    if rare:
        usual = kinds.most_common(1)[0][0]
        shown = ", ".join(f"{kind} {kinds[kind]:,}" for kind in (usual, *rare))
        index = next(index for index, mark in enumerate(openings) if mark and mark[0] in rare)
        example = text.sample[index]
        remedy = "one kind in the file of the target: sed -i 's/[„“”«»「」]/\"/g' FILE"
        words = f"The target has several kinds of quotation marks: {shown}."
        yield Finding("quotes", words, example.show(), remedy)


def _check_duplicates(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    if text.repeated:
        compared = min(text.pairs, _COMPARED)
        count = len(text.repeated)
        share = f"{count:,} of {compared:,} pairs ({count / compared:.1%})"
        words = f"{share} repeat an earlier one."
        remedy = text.remedy("drop", "duplicates")
        yield Finding("duplicates", words, text.repeated[0].show(), remedy)


def _check_lengths(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    """Find pairs whose ratio of lengths is far from the usual one."""
    filled = [numbered for numbered in text.sample if _is_filled(numbered.pair)]
    ratios = [length_ratio(*numbered.pair) for numbered in filled]
    usual = median(ratios) if ratios else 1.0
    unusual = []
    for numbered, ratio in zip(filled, ratios, strict=True):
        if not 1 / _RATIO < ratio / usual < _RATIO:
            unusual.append(numbered)
    words = f"are {_RATIO} times as long or short in the target as usual ({usual:.2f})"
    remedy = text.remedy("max_length_ratio", "2.5")
    yield from text.finding("lengths", unusual, words, remedy, filled)


def _has_other_placeholders(pair: SentencePair) -> bool:
    """Return whether one side has protected text that the other one lacks, besides numbers and
    markup.
    """
    source_spans, target_spans = find_protected(pair.source), find_protected(pair.target)
    source = Counter(pair.source[start:end] for start, end in source_spans)
    target = Counter(pair.target[start:end] for start, end in target_spans)
    for piece in (source - target) + (target - source):
        if not has_markup(piece) and not any(map(str.isdecimal, piece)):
            return True
    return False


def _is_filled(pair: SentencePair) -> bool:
    return all(text.strip() for text in pair)


def _has_letters(pair: SentencePair) -> bool:
    return all(any(map(str.isalpha, text)) for text in pair)


# Faults of single pairs, their words, and whether a pair has one. The rule `drop` mends most of
# them by their names.
_PairCheck = tuple[str, str, Callable[[SentencePair], bool]]
_PAIR_CHECKS: list[_PairCheck] = [
    ("empty", "have no text on a side", lambda pair: not _is_filled(pair)),
    (
        "without_letters",
        "have a side without a letter",
        lambda pair: _is_filled(pair) and not _has_letters(pair),
    ),
    (
        "identical",
        "have a target that is its source",
        lambda pair: _has_letters(pair) and pair.source == pair.target,
    ),
    (
        "bad_encoding",
        "have text that was read in a wrong encoding, or control characters",
        is_in_bad_encoding,
    ),
    ("markup", "have tags or entities of HTML or XML", is_marked_up),
    ("numbers", "have a number that only one side has", has_unequal_numbers),
    (
        "placeholders",
        "have a placeholder, URL or emoji that only one side has",
        _has_other_placeholders,
    ),
]
_OTHER_REMEDIES = {
    "without_letters": ("min_letter_ratio", "0.3"),
    "numbers": ("drop", "other_numbers"),
}
_OTHER_REMEDIES["placeholders"] = ("augment", "{placeholders: 0.05}")


def _check_pairs(text: _Text, sides: Sequence[Side]) -> Iterator[Finding]:
    scripts = partial(is_in_other_scripts, scripts=[side.scripts for side in sides])
    other: _PairCheck = ("other_scripts", "have letters of other scripts than the rest", scripts)
    for name, words, has_fault in [*_PAIR_CHECKS, other]:
        faulty = [numbered for numbered in text.sample if has_fault(numbered.pair)]
        remedy = text.remedy(*_OTHER_REMEDIES.get(name, ("drop", name)))
        yield from text.finding(name, faulty, words, remedy)


_CHECKS = (
    _check_tokens,
    _check_normalization,
    _check_scores,
    _check_sentences,
    _check_augmentations,
    _check_languages,
    _check_duplicates,
    _check_lengths,
    _check_quotes,
    _check_pairs,
)
