"""
The sentences of a request: its texts, split and encoded once, each with what it has for itself.

Constraints, target prefixes and seeds are given for all texts or for each one. Here they become
token ids and numbers of each sentence, so that later steps see only sentences.
"""

from collections.abc import Callable, Container, Iterator, Sequence, Sized
from itertools import islice, pairwise, repeat, starmap
from typing import TYPE_CHECKING, Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import (
    Segment,
    encode_segments,
    reads_sequences,
    source_limits,
    split_lines,
)
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages
from vanilla_transformer.text.protection import find_protected, merge

from .constraints import check_token_ids, close_word, encode_words, tokenize_constraint
from .engine.phrase_constraints import ConstraintError, Phrases
from .engine.requests import SentenceSeeds
from .options import DRAFTS, PHRASES, PREFIXES, OptionError, TranslationOptions
from .sentence_splitter import SentenceSplitter, find_splitter, sentence_ranges
from .sentences import Draft, Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

# Returns the token ids of each text.
Encode = Callable[[list[str], TranslationOptions], list[list[int]]]
_CONSTRAINTS_RULE = f"`constraints` must be {PHRASES}"
_PREFIX_RULE = f"`target_prefix` must be {PREFIXES}"
_DRAFT_RULE = f"`draft` must be {DRAFTS}"


class SentenceReader:
    """
    Read the sentences of a request, whose texts come in order, all at once or in windows.

    Args:
        options: Options of the request.
        tokenizer: Tokenizer of the model.
        encode: Returns the token ids of sources.
        config: Configuration of the model, see [`source_limits`].
        count: The number of texts, if it is known.
        memory: Texts that have a translation. A line that is one of them stays whole.
    """

    def __init__(
        self,
        options: TranslationOptions,
        tokenizer: "PreTrainedTokenizerBase",
        encode: Encode,
        config: "PreTrainedConfig",
        count: int | None,
        memory: Container[str] = (),
    ):
        self._options, self._tokenizer, self._memory = options, tokenizer, memory
        self._encode = lambda texts: encode(texts, options)
        self._limits = source_limits(config)
        self._splitter = splitter_of(options)
        seed = options.seed
        self._seed = SentenceSeeds(seed) if isinstance(seed, int) else seed
        self._phrases: TextValues | None = None
        self._prefixes: TextValues | None = None
        self._drafts: TextValues | None = None
        if options.is_drafted:
            is_shared = isinstance(options.draft, str)
            self._drafts = TextValues(options.draft, is_shared, _check_draft, _DRAFT_RULE, count)
        if options.is_constrained:
            self._forced = check_token_ids(options.force_words_ids)
            constraints = () if options.constraints is None else options.constraints
            is_shared = False
            if isinstance(constraints, Sequence):
                is_shared = not constraints or isinstance(constraints[0], str)
            self._phrases = TextValues(
                constraints, is_shared, self._tokenize_phrases, _CONSTRAINTS_RULE, count
            )
        if options.is_prefixed:
            prefixes = "" if options.target_prefix is None else options.target_prefix
            is_shared = isinstance(prefixes, str)
            self._prefixes = TextValues(
                prefixes, is_shared, self._tokenize_prefix, _PREFIX_RULE, count
            )

    def read(self, texts: Sequence[str], is_whole: bool = False) -> list[list[Sentence]]:
        """Return the sentences of each text; none for blank text, and one for a whole text that no
        option splits.
        """
        if is_whole and self._splitter is None:
            rows = zip(texts, self._encode([*texts]), strict=True)
            segments = [[Segment(text, "", ids)] for text, ids in rows]
        else:
            longest, most = self._limits
            if self._splitter is not None:
                longest = most
            protect = self._options.protect
            joined = [join_cut(self._split(text), protect) for text in texts]
            is_sequence = reads_sequences(self._tokenizer)
            segments = encode_segments(joined, self._encode, longest, most, is_sequence)
        columns = self._phrases, self._prefixes, self._drafts
        if self._seed is None and columns == (None, None, None):
            return [list(starmap(Sentence, of_text)) for of_text in segments]
        phrases: list[Any] = [()] * len(texts)
        prefixes: list[Any] = [None] * len(texts)
        if self._phrases is not None:
            phrases = self._phrases.take(len(texts))
        if self._prefixes is not None:
            prefixes = self._prefixes.take(len(texts))
        rows_of_texts = zip(segments, phrases, prefixes, strict=True)
        sentences = [self._complete(*parts) for parts in rows_of_texts]
        if self._drafts is None:
            return sentences
        drafts = self._drafts.take(len(texts))
        return list(map(self._add_draft, sentences, drafts))

    def _split(self, text: str) -> list[Segment]:
        """Split a text into lines and, with a splitter, these into sentences."""
        lines = split_lines(text)
        if self._splitter is None:
            return lines
        parts = list[Segment]()
        for line in lines:
            if line.text in self._memory:
                parts.append(line)
            else:
                parts += split_line(line, self._splitter)
        return parts

    def _complete(
        self, segments: Sequence[Segment], phrases: Phrases, prefix: Sequence[int] | None
    ) -> list[Sentence]:
        """Return the sentences of a text with its seeds, phrases and prefix, which the first one
        begins with.
        """
        count = sum(bool(segment.tokens) for segment in segments)
        is_of_all_texts = self._phrases is not None and self._phrases.is_shared
        if phrases and count != 1 and not (count == 0 and is_of_all_texts):
            kind = "a blank one" if count == 0 else f"one of {count}"
            requirement = "A text with constraints must be one line or sentence"
            raise ConstraintError(f"{requirement}, got {kind}.")
        has_own_prefix = self._prefixes is not None and not self._prefixes.is_shared
        if prefix and not count and has_own_prefix:
            requirement = "A blank text must not have a target prefix"
            raise ConstraintError(f"{requirement}, got one.")
        if self._options.alternatives is not None and count > 1:
            requirement = "A text with alternatives must be one line or sentence"
            raise OptionError(f"{requirement}, got one of {count}.")
        sentences = []
        for segment in segments:
            if not segment.tokens:
                sentences.append(Sentence(*segment))
                continue
            seed = None if self._seed is None else self._seed(segment.text)
            sentences.append(Sentence(*segment, seed, phrases, prefix))
            prefix = None if prefix is None else []
        return sentences

    def _add_draft(self, sentences: list[Sentence], draft: Draft) -> list[Sentence]:
        """Return the sentences of a text with its draft: with the sentences of the draft, if there
        are as many, or else with all of it.
        """
        texts = [part.text for part in self._split(draft.text)]
        sources = [part.text for part in self._split(draft.source)]
        if len(texts) != len(sentences):
            texts = [" ".join(texts)] * len(sentences)
            sources = [" ".join(sources)] * len(sentences)
        if len(sources) != len(texts):
            sources = [""] * len(texts)
        drafted = []
        for sentence, text, source in zip(sentences, texts, sources, strict=True):
            of_sentence = None
            if text:
                part = Draft(text, self._options.draft_bias, source)
                of_sentence = part.with_values(sentence.text)
            drafted.append(sentence._replace(draft=of_sentence))
        return drafted

    def _tokenize_phrases(self, phrases: object) -> Phrases:
        if isinstance(phrases, str) or not isinstance(phrases, Sequence):
            raise ConstraintError(f"{_CONSTRAINTS_RULE}, got {phrases!r} for a text.")
        tokens = [tokenize_constraint(self._tokenizer, phrase) for phrase in phrases]
        return [*tokens, *self._forced]

    def _tokenize_prefix(self, prefix: object) -> Sequence[int]:
        if not isinstance(prefix, str):
            raise ConstraintError(f"{_PREFIX_RULE}, got {prefix!r}.")
        words = " ".join(prefix.split())
        if not words:
            return []
        return close_word(words, encode_words(self._tokenizer, words, "A target prefix"))


def _check_draft(draft: object) -> Draft:
    if isinstance(draft, Draft):
        return draft
    if not isinstance(draft, str | None):
        raise OptionError(f"{_DRAFT_RULE}, got {draft!r}.")
    return Draft(draft or "")


class TextValues:
    """
    The value of an option for each text of a request, in the order of the texts.

    Args:
        values: One value for all texts, if it is shared, or an iterable with the value of each one.
        convert: Returns the token ids of a value.
        requirement: What the option must be, for errors.
        count: The number of texts, if it is known.
    """

    def __init__(
        self,
        values: Any,
        is_shared: bool,
        convert: Callable[[Any], Any],
        requirement: str,
        count: int | None,
    ):
        self.is_shared = is_shared
        self._requirement = requirement
        if is_shared:
            self._each: Iterator[Any] = repeat(convert(values))
            return
        if isinstance(values, Sized) and count not in (None, len(values)):
            problem = f"there are {len(values)} for {count} texts"
            raise ConstraintError(f"{requirement}, but {problem}.")
        self._each = map(convert, values)

    def take(self, count: int) -> list[Any]:
        """Return the values of so many texts, the next ones."""
        values = list(islice(self._each, count))
        if len(values) < count:
            problem = f"there are {len(values)} for {count} texts"
            raise ConstraintError(f"{self._requirement}, but {problem}.")
        return values


def join_cut(segments: Sequence[Segment], protect: bool) -> list[Segment]:
    """Return the segments of a text, with those joined that cut text to keep, see
    [`find_protected`].
    """
    if len(segments) == 1 or not protect:
        return list(segments)
    text = ""
    segment_ranges = []
    for segment in segments:
        start = len(text)
        segment_ranges.append((start, start + len(segment.text)))
        text += segment.text + segment.separator
    ranges = merge([*segment_ranges, *find_protected(text, protect)])
    if len(ranges) == len(segments):
        return list(segments)
    joined = []
    for (start, end), (following, _) in pairwise([*ranges, (len(text), 0)]):
        joined.append(Segment(text[start:end], text[end:following]))
    return joined


def splitter_of(options: TranslationOptions) -> SentenceSplitter | None:
    """Return the function that splits lines, or None if they stay whole."""
    splitter, wanted = options.sentence_splitter, options.split_sentences
    if wanted is False or (wanted is None and splitter is None):
        return None
    if isinstance(splitter, str | None):
        language = options.source_language or options.src_lang
        name = "abbreviations" if splitter is None else splitter
        return find_splitter(name, language)
    return splitter


def split_line(line: Segment, splitter: SentenceSplitter) -> Iterator[Segment]:
    """Split a line into sentences; the last one keeps the line's separator."""
    ranges = sentence_ranges(line.text, splitter)
    for (start, end), (following, _) in pairwise(ranges):
        yield Segment(line.text[start:end], line.text[end:following])
    yield Segment(line.text[ranges[-1][0] :], line.separator)


# --- Languages ------------------------------------------------------------------------------------


def begin_with_languages(
    tokenizer: "PreTrainedTokenizerBase",
    sources: Sequence[Sequence[int]],
    direction: Direction,
    at_end: bool = False,
) -> list[list[int]]:
    """Return the token ids of sources with the tokens of the languages, unless they begin with a
    tag.
    """
    languages = find_languages(tokenizer, at_end)
    # By the state of its tokenizer
    if languages is None or (languages.is_forced and direction == NO_DIRECTION):
        return list(sources)  # type: ignore[arg-type]
    if all(map(languages.begins_with_tag, sources)):
        return [list(source) for source in sources]
    try:
        tokens = languages.tokens(direction).source
    except UserError as error:
        raise OptionError(str(error)) from error
    rows = languages.begin(sources, tokens)
    for index, source in enumerate(sources):
        if languages.begins_with_tag(source):
            rows[index] = list(source)
    return rows


def forced_language(
    tokenizer: "PreTrainedTokenizerBase", direction: Direction, at_end: bool = False
) -> dict[str, Any]:
    """Return the options of decoding that make a translation begin with its language, as M2M-100
    and NLLB need.
    """
    languages = find_languages(tokenizer, at_end)
    if languages is None or not languages.is_forced or direction == NO_DIRECTION:
        return {}
    (token,) = languages.tokens(direction).target
    return {"forced_bos_token_id": token}
