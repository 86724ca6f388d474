"""
The sentences of a request: its texts, split and encoded once, each with what it has for itself.

Constraints, target prefixes and seeds are given for all texts or for each one. Here they become token ids and numbers
of each sentence, so that later steps see only sentences.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import accumulate, islice, repeat
from typing import Any, NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import Segment, encode_segments, source_limits, split_lines
from vanilla_transformer.text.inline_terms import AnnotatedText
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages
from vanilla_transformer.text.protection import Range, find_protected, merge

from .constraints import check_token_ids, tokenize_constraint
from .engine.phrase_constraints import ConstraintError, Phrases
from .engine.requests import SentenceSeeds
from .options import PHRASES, PREFIXES, OptionError, TranslationOptions, check_languages
from .sentence_splitter import SentenceSplitter, find_splitter, split_line

Encode = Callable[[list[str], TranslationOptions], list[list[int]]]  # returns the token ids of each text
_CONSTRAINTS_RULE, _PREFIX_RULE = f"`constraints` must be {PHRASES}", f"`target_prefix` must be {PREFIXES}"


class Sentence(NamedTuple):
    """
    A line or sentence that is decoded by itself.

    Attributes:
        separator: The white space before the next sentence of the text.
        tokens: Token ids, which may begin with tokens of languages; a search encodes sentences without them.
        seed: Seed of its samples, if the request has a seed.
        phrases: Token ids of the phrases that its translation must contain.
        prefix: Token ids with which its translation must begin; None if the request has no prefixes.
        annotation: The text with inline terms, if `tokens` are the ids of that.
        kept: Places of text that must survive, if patterns do not tell; see [`ProtectedSearch`].
    """

    text: str
    separator: str
    tokens: Sequence[int]
    seed: int | None = None
    phrases: Phrases = ()
    prefix: Sequence[int] | None = None
    annotation: AnnotatedText | None = None
    kept: Sequence[Range] | None = None


class SentenceReader:
    """
    Read the sentences of a request, whose texts come in order, all at once or in windows.

    Args:
        options: Options of the request.
        tokenizer: Tokenizer of the model.
        encode: Returns the token ids of sources.
        config: Configuration of the model, see [`source_limits`].
        count: The number of texts, if it is known.
    """

    def __init__(self, options: TranslationOptions, tokenizer: Any, encode: Encode, config: Any, count: int | None):
        self._encode, self._limits = (lambda texts: encode(texts, options)), source_limits(config)
        self._is_alone = options.alternatives is not None
        self._splitter, self._protect = splitter_of(options), options.protect
        seed = options.seed
        self._seed = SentenceSeeds(seed) if isinstance(seed, int) else seed
        self._phrases = self._prefixes = None
        if options.constraints is not None or options.force_words_ids is not None:
            self._phrases = TextConstraints(options.constraints, options.force_words_ids, tokenizer, count)
        if options.is_prefixed:
            given = "" if options.target_prefix is None else options.target_prefix
            self._prefixes = TextPrefixes(given, tokenizer, count)
        check_languages(tokenizer, Direction(options.src_lang, options.tgt_lang))

    def read(self, texts: Sequence[str]) -> list[list[Sentence]]:
        """Return the sentences of each text; none for blank text."""
        segments = self._split(texts)
        counts = [sum(bool(segment.tokens) for segment in each) for each in segments]
        phrases = repeat(()) if self._phrases is None else iter(self._phrases.of_segments(counts))
        prefixes = repeat(None) if self._prefixes is None else iter(self._prefixes.of_segments(counts))
        if self._is_alone and max(counts, default=0) > 1:
            raise OptionError(f"A text with alternatives must be one line or sentence, got one of {max(counts)}.")
        if self._seed is None and self._phrases is None and self._prefixes is None:
            return [[Sentence(*segment) for segment in each] for each in segments]
        return [
            [
                Sentence(*segment, self._next_seed(segment.text), next(phrases), next(prefixes))
                if segment.tokens
                else Sentence(*segment)
                for segment in each
            ]
            for each in segments
        ]

    def _split(self, texts: Sequence[str]) -> list[list[Segment]]:
        lines = [split_lines(text) for text in texts]
        longest, most = self._limits
        if self._splitter is not None:
            lines, longest = (
                [[part for line in each for part in split_line(line, self._splitter)] for each in lines],
                most,
            )
        return encode_segments([join_cut(each, self._protect) for each in lines], self._encode, longest, most)

    def _next_seed(self, text: str) -> int | None:
        return None if self._seed is None else self._seed(text)


def join_cut(segments: Sequence[Segment], protect: bool) -> list[Segment]:
    """Return the segments of a text, with those joined that cut text to keep, see [`find_protected`]."""
    if len(segments) == 1 or not protect:
        return list(segments)
    text = "".join(each.text + each.separator for each in segments)
    ends = list(accumulate(len(each.text + each.separator) for each in segments))
    own = [
        (end - len(each.text + each.separator), end - len(each.separator))
        for end, each in zip(ends, segments, strict=True)
    ]
    ranges = merge([*own, *find_protected(text, protect)])
    if len(ranges) == len(segments):
        return list(segments)
    following = [start for start, _ in ranges[1:]] + [len(text)]
    return [Segment(text[start:end], text[end:last]) for (start, end), last in zip(ranges, following, strict=True)]


def splitter_of(options: TranslationOptions) -> SentenceSplitter | None:
    """Return the function that splits lines, or None if they stay whole."""
    splitter, wanted = options.sentence_splitter, options.split_sentences
    if wanted is False or (wanted is None and splitter is None):
        return None
    if isinstance(splitter, str | None):
        language = options.source_language or options.src_lang or "en"
        return find_splitter("abbreviations" if splitter is None else splitter, language)
    return splitter


# --- Languages ------------------------------------------------------------------------------------------------------


def begin_with_languages(tokenizer: Any, sources: Sequence[Sequence[int]], direction: Direction) -> list[list[int]]:
    """Return the token ids of sources with the tokens of the languages, unless they begin with a tag."""
    languages = find_languages(tokenizer)
    if languages is None or (languages.is_forced and direction == NO_DIRECTION):  # by the state of its tokenizer
        return list(sources)  # type: ignore[arg-type]
    if all(map(languages.begins_with_tag, sources)):
        return [list(source) for source in sources]
    try:
        tokens = languages.tokens(direction).source
    except UserError as error:
        raise OptionError(str(error)) from error
    begun = languages.begin(sources, tokens)
    return [
        list(source) if languages.begins_with_tag(source) else longer
        for source, longer in zip(sources, begun, strict=True)
    ]


def forced_language(tokenizer: Any, direction: Direction) -> dict[str, Any]:
    """Return the options of decoding that make a translation begin with its language, as M2M-100 and NLLB need."""
    languages = find_languages(tokenizer)
    if languages is None or not languages.is_forced or direction == NO_DIRECTION:
        return {}
    (token,) = languages.tokens(direction).target
    return {"forced_bos_token_id": token}


# --- What each text has for itself ----------------------------------------------------------------------------------


class TextConstraints:
    """
    Tokenize the phrases of each text of a request, in the order of the texts.

    Args:
        given: A list of phrases that each translation must contain, or an iterable of such a list for each text, or
            None. The last word of a phrase may be continued by further letters only if the phrase ends with `*`.
        force_words_ids: A list of phrases as token ids, for all texts; as in `generate()` of transformers 4.
        tokenizer: Tokenizer of the translations.
        count: The number of texts, if it is known.
    """

    def __init__(self, given: Any, force_words_ids: Any, tokenizer: Any, count: int | None = None):
        self._tokenizer = tokenizer
        self._forced = check_token_ids(force_words_ids)
        if given is None:
            given = []
        self._are_shared = isinstance(given, Sequence) and (not given or isinstance(given[0], str))
        if not self._are_shared and isinstance(given, Sized) and count not in (None, len(given)):
            raise ConstraintError(f"{_CONSTRAINTS_RULE}, but there are {len(given)} lists for {count} texts.")
        self._each: Iterator[Phrases] = (
            repeat(self._tokenize(given)) if self._are_shared else map(self._tokenize, given)
        )

    def of_segments(self, counts: Sequence[int]) -> list[Phrases]:
        """Return the phrases of each segment of the next texts, which have so many segments.

        Phrases for all texts are not for blank ones, which have no segment.
        """
        phrases = list(islice(self._each, len(counts)))
        if len(phrases) < len(counts):
            raise ConstraintError(
                f"{_CONSTRAINTS_RULE}, but there are lists for {len(phrases)} of {len(counts)} texts."
            )
        for own, count in zip(phrases, counts, strict=True):
            if own and count != 1 and not (count == 0 and self._are_shared):
                found = "a blank one" if count == 0 else f"one of {count}"
                raise ConstraintError(f"A text with constraints must be one line or sentence, got {found}.")
        return [own for own, count in zip(phrases, counts, strict=True) for _ in range(count)]

    def _tokenize(self, phrases: Any) -> Phrases:
        if isinstance(phrases, str) or not isinstance(phrases, Sequence):
            raise ConstraintError(f"{_CONSTRAINTS_RULE}, got {phrases!r} for a text.")
        return [*(tokenize_constraint(self._tokenizer, phrase) for phrase in phrases), *self._forced]


class TextPrefixes:
    """
    Tokenize the prefix of each text of a request, in the order of the texts.

    Args:
        given: A string for all texts, or an iterable with the string of each one.
        tokenizer: Tokenizer of the translations.
        count: The number of texts, if it is known.
    """

    def __init__(self, given: Any, tokenizer: Any, count: int | None = None):
        self._tokenizer, self._is_shared = tokenizer, isinstance(given, str)
        if not self._is_shared and isinstance(given, Sized) and count not in (None, len(given)):
            raise ConstraintError(f"{_PREFIX_RULE}, but there are {len(given)} for {count} texts.")
        self._each: Iterator[list[int]] = (
            repeat(self._tokenize(given)) if self._is_shared else map(self._tokenize, given)
        )

    def of_segments(self, counts: Sequence[int]) -> list[list[int]]:
        """Return the prefix of each segment of the next texts, which have so many segments: of the first one only."""
        prefixes = list(islice(self._each, len(counts)))
        if len(prefixes) < len(counts):
            raise ConstraintError(f"{_PREFIX_RULE}, but there are {len(prefixes)} for {len(counts)} texts.")
        if not self._is_shared and any(own and not count for own, count in zip(prefixes, counts, strict=True)):
            raise ConstraintError("A blank text must not have a target prefix, got one.")
        none: list[int] = []
        return [
            own if place == 0 else none for own, count in zip(prefixes, counts, strict=True) for place in range(count)
        ]

    def _tokenize(self, prefix: Any) -> list[int]:
        if not isinstance(prefix, str):
            raise ConstraintError(f"{_PREFIX_RULE}, got {prefix!r}.")
        words = " ".join(prefix.split())
        if not words:
            return []
        tokens = self._tokenizer(text_target=[words], add_special_tokens=False)["input_ids"][0]
        wrong = [token for token in tokens if token in self._tokenizer.all_special_ids]
        if wrong or not tokens:
            found = self._tokenizer.convert_ids_to_tokens(wrong[0]) if wrong else "no token"
            raise ConstraintError(f"A target prefix must be in the model's vocabulary, but {prefix!r} gives {found}.")
        return list(tokens)
