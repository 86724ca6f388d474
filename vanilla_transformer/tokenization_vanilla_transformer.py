# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tokenizer with one joint subword vocabulary for source and target (section 5.1 of "Attention Is
All You Need").
"""

import copy
import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import to_py_obj

from .errors import UserError

# In the order of their ids, which are the defaults of VanillaTransformerConfig.
_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SENTENCEPIECE, SENTENCEPIECE_FILE = "sentencepiece", "sentencepiece.model"
_SENTENCEPIECE_TOKENS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
# Of sequences that are no language: their tokens and settings, the patterns that split them, and
# the place within the name of a special token, which no text may be.
CHARACTERS, WORDS, REGEX = SEQUENCES = ("characters", "words", "regex")
_OF_SEQUENCES: dict[str, Any] = {**_SPECIAL_TOKENS, "unk_token": "<unk>", "sequences": True}
_SPLITS = {
    CHARACTERS: (r"[\s\S]", "isolated"),
    WORDS: (r"\s+", "removed"),
    REGEX: ("", "isolated"),
}
_SPECIAL_NAMES = r"(?<=<)(?=(?:pad|/?s|unk)>)"
# Numbers of fields in its files; the last one is within the second.
_PIECE, _NORMALIZATION, _COMPILED = 1, 3, 2
_MULTIPLE = 8  # of the number of pieces, which Bergamot's products of integers need
_MAX_SENTENCE_BYTES = 2**20  # of SentencePiece, which skips longer sentences
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # one character for each of the 256 bytes
_NAMES_OF_BYTES = frozenset(_BYTES)
# The syntax of regular expressions, in `tokenizers` and in JavaScript
_SYNTAX = re.compile(r"[\\^$.*+?()\[\]{}|/]")
# The words of GPT-2, but combining marks and joiners stay with their letters, as scripts from
# Devanagari to Thai need.
_WORDS = (
    r"'(?:[sdmt]|re|ve|ll)| ?(?:\p{L}[\p{M}\u200C\u200D]*)+"
    r"| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
NORMALIZATIONS = ("nfc", "nfkc", "none")
# Control characters but white space, soft hyphens, zero-width spaces, word joiners, and marks of
# writing direction.
_INVISIBLE = r"\u0000-\u0008\u000E-\u001B\u007F-\u0084\u0086-\u009F\u00AD"
_INVISIBLE += r"\u061C\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\uFEFF"
# Joiners shape letters from Arabic to Malayalam and join emoji. Between letters that nothing joins
# they mean nothing.
_JOINABLE = rf"[^\s\x1C-\x1F\p{{N}}\p{{P}}A-Za-z\u00AA-\u052F\u1E00-\u1FFF{_INVISIBLE}]"
_REMOVED = rf"[{_INVISIBLE}]|(?<!{_JOINABLE})[\u200C\u200D]+(?!{_JOINABLE})"
_SPACES = r"[\s\x1C-\x1F]{2,}|[^\S ]|[\x1C-\x1F]"
# Spaces that SentencePiece removes, and the places within the names of its pieces that no text may
# be.
_EXTRA_SPACES = r" +(?= |(?![\s\S]))"
_NAMES = r"(?<=<)(?=(?:/s|unk|0x[0-9A-F]{2})>)"
# The prefix of a text that is nothing but one of some tokens, for engines without `\A`, such as
# JavaScript's.
_LONE_START, _LONE_END = r"(?<![\s\S]){}(?=(?:", r")(?![\s\S]))"
_MAX_VOCAB_SIZE = 10**7  # trainers reserve memory for all entries
# WordPiece gives up on longer words, and its time grows with their square.
_MAX_WORDPIECE_WORD_LENGTH = 100
# Unigram: the bytes of SentencePiece's 16 characters, and how many candidates there are for each
# piece.
_MAX_PIECE_LENGTH = 64
_CANDIDATES_PER_PIECE = 4
_MAX_TRAINING_WORD_LENGTH = 256  # BPE and unigram split longer words while they train


class VanillaTransformerTokenizer(PreTrainedTokenizerFast):
    """
    Byte-level BPE, WordPiece or unigram tokenizer, or one with a model of SentencePiece, trained by
    `train_from_iterator`; or one of sequences that are no language.

    Every sentence, source or target (`text_target=`), ends with EOS; the decoder input starts with
    `bos_token`, but with padding for SentencePiece, which has no BOS. The vocabulary contains the
    256 bytes, so no text has an unknown token, and `decode(..., skip_special_tokens=True)` returns
    every string of Unicode scalar values as its normal form, see [`build_normalizer`];
    SentencePiece has its own, `nmt_nfkc`. A `</s>` in a text is five characters, not the special
    token: padding, BOS and EOS are never found in a text. Tokens that a user adds, special or not,
    are: `tokenizer.add_special_tokens({"mask_token": "<mask>"})` keeps each `<mask>` of a text in
    one piece.

    For sequences, such as molecules or phonemes, each character, word or match of a pattern is one
    token. Nothing is normalized, and what the training text lacks is `<unk>`. By `sequences` in the
    configuration of the tokenizer, pipelines know that they neither split nor keep text of them.

    `tokenizer.json` holds everything: `AutoTokenizer` loads a saved folder without this package
    too, as a `PreTrainedTokenizerFast`.
    """

    model_input_names = ["input_ids", "attention_mask"]
    vocab_files_names = {"tokenizer_file": "tokenizer.json", "vocab_file": SENTENCEPIECE_FILE}
    # The file beside `tokenizer.json`, which Marian and Bergamot read
    sentencepiece_model: bytes | None = None

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str],
        vocab_size: int = 37000,
        min_frequency: int = 2,
        show_progress: bool = False,
        model: str = "bpe",
        normalization: str = "nfc",
        pattern: str | None = None,
    ) -> "VanillaTransformerTokenizer":
        """
        Train a joint vocabulary on the sentences of both languages.

        The same texts give the same vocabulary in every process.

        Args:
            texts (iterable of `str`): Raw sentences, in any order.
            vocab_size (`int`): Entries including special tokens and the 256 bytes. The paper uses
                about 37,000.
            min_frequency (`int`): Rarer pairs are not merged.
            show_progress (`bool`): Show the progress bars of `tokenizers`.
            model (`str`):
                `"bpe"`, as in the paper for English-German; `"wordpiece"`, as for English-French;
                `"unigram"`; or `"sentencepiece"`, the unigram model of the library `sentencepiece`
                with a multiple of 8 pieces, which Marian and Bergamot read. It has one more entry,
                padding, and chooses pieces without `min_frequency`. For sequences:
                `"characters"`; `"words"`, which white space separates and decoding joins by spaces;
                or `"regex"`, matches of `pattern` and the text between them. All of them, or the
                most frequent ones, are the vocabulary.
            normalization (`str`): `"nfc"`, `"nfkc"` or `"none"`, see [`build_normalizer`]; not for
                SentencePiece and sequences.
            pattern (`str`): The regular expression of `"regex"`, in the syntax of Oniguruma.

        Raises:
            ValueError: the vocabulary has no room for bytes and special tokens, the model or the
                normalization is unknown, there is no text, or `texts` is a single string.
        """
        _check_training(texts, vocab_size, min_frequency, model, normalization, pattern)
        counted = _CountedTexts(texts)
        settings: dict[str, Any] = _SPECIAL_TOKENS
        sentencepiece_model = None
        if model in SEQUENCES:
            settings = _OF_SEQUENCES
            tokenizer = _train_on_sequences(counted, model, pattern, vocab_size, show_progress)
        elif model == SENTENCEPIECE:
            sentencepiece_model, settings = (
                _train_sentencepiece(counted, vocab_size),
                _SENTENCEPIECE_TOKENS,
            )
            tokenizer = _from_sentencepiece(sentencepiece_model)
        else:
            untrained = _byte_level(build_normalizer(normalization))
            options = {
                "vocab_size": vocab_size,
                "min_frequency": min_frequency,
                "special_tokens": list(_SPECIAL_TOKENS.values()),
                "initial_alphabet": _BYTES,
                "show_progress": show_progress,
            }
            tokenizer = _TRAINERS[model](untrained, counted, options)
        counted.check()
        eos = settings["eos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {eos}",
            pair=f"$A $B {eos}",
            special_tokens=[(eos, tokenizer.token_to_id(eos))],
        )
        trained = cls(
            tokenizer_object=tokenizer,
            split_special_tokens=True,
            clean_up_tokenization_spaces=False,
            **settings,
        )
        trained.sentencepiece_model = sentencepiece_model
        return trained

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a tokenizer, and read its model of SentencePiece, if there is one, to be saved
        again.
        """
        tokenizer = super().from_pretrained(*args, **kwargs)
        file = Path(tokenizer.init_kwargs.get("vocab_file") or "")
        if file.name == SENTENCEPIECE_FILE:  # no other file that a configuration names
            tokenizer.sentencepiece_model = file.read_bytes()
        spell_added_tokens(tokenizer.backend_tokenizer)
        return tokenizer

    def _save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        names = super()._save_pretrained(save_directory, *args, **kwargs)
        if self.sentencepiece_model is None:
            return names
        path = Path(save_directory, SENTENCEPIECE_FILE)
        path.write_bytes(self.sentencepiece_model)
        return (*names, str(path))

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """
        Add tokens to the vocabulary, which are found beside any character.

        Special ones, such as a mask or a language, take the spaces around them, unless the
        normalization is "none".
        """
        if not self.split_special_tokens:
            added = super().add_tokens(new_tokens, special_tokens)
            spell_added_tokens(self.backend_tokenizer)
            return added
        added = 0
        for token in [new_tokens] if isinstance(new_tokens, str | AddedToken) else new_tokens:
            is_special = special_tokens or getattr(token, "special", False)
            if is_special and str(token) not in (
                self.pad_token,
                self.bos_token,
                self.eos_token,
                self.unk_token,
            ):
                is_special = False  # or the backend would not find it in texts
                token = AddedToken(
                    str(token), normalized=not _strips_spaces(self.backend_tokenizer)
                )
            if not is_special and getattr(token, "normalized", True):
                find_anywhere(self.backend_tokenizer, str(token))
            added += super().add_tokens([token], is_special)
        spell_added_tokens(self.backend_tokenizer)
        return added

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """Convert ids to text, or several rows of ids to a list of texts."""
        token_ids = to_py_obj(token_ids)
        if skip_special_tokens:
            token_ids = _without(token_ids, set(self.all_special_ids))
        if (
            _are_rows(token_ids)
            and not self.clean_up_tokenization_spaces
            and not any(kwargs.values())
        ):
            return self.backend_tokenizer.decode_batch(
                token_ids, skip_special_tokens=skip_special_tokens
            )
        return super().decode(token_ids, skip_special_tokens, **kwargs)


def constructor_arguments(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the arguments, besides `tokenizer_object`, with which a tokenizer has the settings of
    another one.
    """
    named = {
        name: token
        for name, token in tokenizer.special_tokens_map.items()
        if isinstance(token, str)
    }
    # See `Languages` and `reads_sequences`.
    settings = tokenizer.init_kwargs
    stored = {name: settings[name] for name in ("directions", "sequences") if name in settings}
    return (
        named
        | stored
        | {
            "extra_special_tokens": tokenizer.extra_special_tokens,
            "split_special_tokens": tokenizer.split_special_tokens,
            "clean_up_tokenization_spaces": False,
        }
    )


def _without(token_ids: Any, special: set[int]) -> Any:
    """Remove special ids from a row, or from each row; a single id stays as it is."""
    if not isinstance(token_ids, Sequence):
        return token_ids
    if _are_rows(token_ids):
        return [_without(row, special) for row in token_ids]
    return (
        token_ids
        if special.isdisjoint(token_ids)
        else [token for token in token_ids if token not in special]
    )


def _are_rows(token_ids: Any) -> bool:
    return (
        isinstance(token_ids, list | tuple)
        and len(token_ids) > 0
        and isinstance(token_ids[0], list | tuple)
    )


def _check_training(
    texts: Iterable[str],
    vocab_size: int,
    min_frequency: int,
    model: str,
    normalization: str,
    pattern: str | None,
) -> None:
    if isinstance(texts, str):
        raise UserError(
            f"`texts` must be an iterable of sentences, got the one string {texts[:40]!r}."
        )
    known = (*_TRAINERS, SENTENCEPIECE, *SEQUENCES)
    if model not in known:
        raise UserError(f"`model` must be one of {', '.join(known)}, got {model!r}.")
    if model not in _TRAINERS and normalization != NORMALIZATIONS[0]:
        raise UserError(
            f"`normalization` must be left out for {model}, whose model has its own or none, got "
            f"{normalization!r}."
        )
    if (model == REGEX) != bool(pattern):
        raise UserError(
            f"`pattern` must be given for {REGEX} and no other model, got {pattern!r} for {model}."
        )
    if min_frequency < 0:
        raise UserError(f"`min_frequency` must not be negative, got {min_frequency}.")
    if vocab_size > _MAX_VOCAB_SIZE:
        raise UserError(f"`vocab_size` must be at most {_MAX_VOCAB_SIZE:,}, got {vocab_size}.")
    smallest = len(_SPECIAL_TOKENS) + len(_BYTES)
    if vocab_size < smallest:
        raise UserError(
            f"`vocab_size` must be at least {smallest} (256 bytes and {len(_SPECIAL_TOKENS)} "
            f"special tokens), got {vocab_size}."
        )


class _CountedTexts:
    """Count texts while they are read, because a trainer returns a vocabulary even without any
    text.
    """

    def __init__(self, texts: Iterable[str]):
        self._source = texts
        self.texts = 0
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._source:
            self.texts += 1
            self.characters += len(text)
            yield text

    def check(self) -> None:
        if not self.characters:
            raise UserError(
                f"A vocabulary needs text to train on, got {self.texts} texts without a character."
            )


def build_normalizer(normalization: str, prefix: str = " ") -> normalizers.Normalizer:
    """
    Build the normalizer of a tokenizer, which sees each text before it is split into words.

    The prefix, a space, is prepended, so a word has the same tokens at the start of a text and
    within it; the decoder removes exactly that space. `"none"` does nothing else.

    `"nfc"` gives text from word processors, PDF files and the web the tokens of clean text: each
    run of white space of Unicode becomes one space, and none is left at the ends; control
    characters, soft hyphens, zero-width spaces and marks of the direction of text are removed, and
    so are joiners between letters that nothing joins; letters and marks are composed (NFC).
    `"nfkc"` also replaces compatibility characters, such as ligatures, full-width letters, ² and ½
    (NFKC).
    """
    if normalization not in NORMALIZATIONS:
        raise UserError(
            f"`normalization` must be one of {', '.join(NORMALIZATIONS)}, got {normalization!r}."
        )
    if normalization == "none":
        return normalizers.Prepend(prefix)
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(_REMOVED), ""),
            normalizers.NFC() if normalization == "nfc" else normalizers.NFKC(),
            *([normalizers.Prepend(prefix)] if prefix else []),
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.Strip(left=not prefix, right=True),
        ]
    )


def spell_added_tokens(backend: Tokenizer) -> None:
    """
    Let a decoder of bytes return added tokens as they are.

    It would read `größer` as six bytes, since each letter of Latin-1 is the name of one. So steps
    before it write such a token by the names of all of its bytes.
    """
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
    steps = state.get("decoders", [state])
    if not any(step.get("type") == "ByteLevel" for step in steps):
        return
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    first_added, added = backend.get_vocab_size(with_added_tokens=False), list[dict[str, Any]]()
    for token_id, token in sorted(backend.get_added_tokens_decoder().items()):
        text = token.content
        if token_id >= first_added and not text.isascii() and _NAMES_OF_BYTES.issuperset(text):
            pattern = "^" + _SYNTAX.sub(r"\\\g<0>", text) + "$"
            ((content, _),) = spelling.pre_tokenize_str(text)
            added.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    kept = [step for step in steps if not _pattern(step).startswith("^")]
    if [*added, *kept] != steps:
        decoder = decoders.Sequence([])
        decoder.__setstate__(json.dumps({"type": "Sequence", "decoders": [*added, *kept]}).encode())
        backend.decoder = decoder


def find_anywhere(backend: Tokenizer, token: str) -> None:
    """
    Let a tokenizer find a token that is added next beside any character.

    Backends normalize tokens as they do texts. One with the prefix of a text would be found only
    after a space, and would have two names. So the last step of the normalizer removes the prefix
    of a lone token.
    """
    known = {each.content for each in backend.get_added_tokens_decoder().values()}
    steps = _steps(backend)
    prefix = next((step["prepend"] for step in steps if "prepend" in step), None)
    if token in known or prefix is None:
        return
    start, token = _LONE_START.format(prefix), _SYNTAX.sub(r"\\\g<0>", token)
    kept, tokens = [backend.normalizer] if len(steps) == 1 else [*backend.normalizer], []
    if (last := _pattern(steps[-1])).startswith(start):
        tokens = last.removeprefix(start).removesuffix(_LONE_END).split("|")
        kept.pop()
    pattern = "|".join(tokens if token in tokens else [*tokens, token])
    backend.normalizer = normalizers.Sequence(
        [*kept, normalizers.Replace(Regex(start + pattern + _LONE_END), "")]
    )


def _steps(backend: Tokenizer) -> list[dict[str, Any]]:
    """Return the steps of a normalizer, as `tokenizer.json` has them."""
    state = (
        json.loads(backend.normalizer.__getstate__()) if backend.normalizer else {"normalizers": []}
    )
    return state.get("normalizers", [state])


def _pattern(step: dict[str, Any]) -> str:
    return step.get("pattern", {}).get("Regex", "")


def _strips_spaces(backend: Tokenizer) -> bool:
    return any(_pattern(step) in (_REMOVED, _EXTRA_SPACES) for step in _steps(backend))


def with_normalization(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """
    Return a tokenizer that normalizes text as new ones do, see [`build_normalizer`].

    One of this package that does so already is returned as it is, and any other as a copy. Offsets
    point into the text as it is given.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise UserError(
            f"`normalize` needs a tokenizer with `tokenizer.json`, got {type(tokenizer).__name__}."
        )
    if _strips_spaces(backend):
        return tokenizer
    steps = _steps(backend)
    kinds = [step["type"] for step in steps if not _pattern(step).endswith(_LONE_END)]
    if kinds not in ([], ["Prepend"]):
        found = ", ".join(kinds)
        raise UserError(
            "`normalize` is for tokenizers that leave text as it is, but this one has its own: "
            f"{found}."
        )
    tokenizer = copy.deepcopy(tokenizer)
    normalizer = build_normalizer("nfc", steps[0]["prepend"] if steps else "")
    if len(steps) > 1:  # of lone tokens
        normalizer = normalizers.Sequence([*normalizer, backend.normalizer[1]])  # type: ignore[misc]
    tokenizer.backend_tokenizer.normalizer = normalizer
    return tokenizer


def _byte_level(normalizer: normalizers.Normalizer) -> Tokenizer:
    """Build an untrained byte-level tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _train_bpe(tokenizer: Tokenizer, texts: Iterable[str], options: dict[str, Any]) -> Tokenizer:
    """
    Train BPE by `tokenizers`.

    SentencePiece does not replace it: of 8,000 entries for Multi30k about 100 differ, its
    segmentation cannot be expressed exactly as a list of merges, and with byte-level words it saves
    no time.
    """
    words = tokenizer.pre_tokenizer
    # The time of training grows with the square of a word's length, and text without spaces is one
    # word.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.FixedLength(_MAX_TRAINING_WORD_LENGTH)]
    )
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**options))
    tokenizer.pre_tokenizer = words
    return tokenizer


def _train_wordpiece(
    tokenizer: Tokenizer, texts: Iterable[str], options: dict[str, Any]
) -> Tokenizer:
    """
    Train WordPiece (Wu et al., 2016), which the paper cites for English-French.

    Pieces at the start of a word are marked by the byte of the preceding space, the others are not,
    so 256 bytes cover both. Words are split by taking the longest piece from the left. BERT's `##`
    would need every byte twice and could not be distinguished from two number signs in the text.

    Differs from Wu et al.: pieces are chosen by the frequency of pairs, as in BPE, because
    `tokenizers` has no trainer for the likelihood.
    """
    tokenizer.model = models.WordPiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [tokenizer.pre_tokenizer, pre_tokenizers.FixedLength(_MAX_WORDPIECE_WORD_LENGTH)]
    )
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(**options, continuing_subword_prefix="")
    )
    tokenizer.model.max_input_chars_per_word = _MAX_WORDPIECE_WORD_LENGTH
    return tokenizer


def _train_unigram(
    tokenizer: Tokenizer, texts: Iterable[str], options: dict[str, Any]
) -> Tokenizer:
    """
    Train the unigram language model (Kudo, 2018, "Subword Regularization", section 3.2) by
    SentencePiece.

    The candidates are the pieces of a larger BPE with their frequencies. SentencePiece's own
    candidates lack frequent words that always precede a word boundary, and with them the sentences
    of Multi30k have 5 % more tokens; with the candidates of the trainer in `tokenizers` they have
    20 % more.
    """
    words: Counter[str] = Counter()
    vocab_size = options["vocab_size"]
    more = options | {
        "vocab_size": _CANDIDATES_PER_PIECE * vocab_size,
        "max_token_length": _MAX_PIECE_LENGTH,
    }
    # The tokenizer in training is locked while it reads.
    splitter = _byte_level(tokenizer.normalizer)
    tokenizer.train_from_iterator(_count_words(texts, splitter, words), trainers.BpeTrainer(**more))
    if words:
        candidates = tokenizer.get_vocab().keys() - set(_SPECIAL_TOKENS.values())
        scores = _fit_unigram(
            words, _count_pieces(candidates, words), vocab_size - len(_SPECIAL_TOKENS)
        )
        # No word of a text holds a special token: the pre-tokenizer separates letters from other
        # characters.
        special = [(token, 0.0) for token in _SPECIAL_TOKENS.values()]
        tokenizer.model = models.Unigram([*special, *scores], unk_id=None, byte_fallback=False)
    return tokenizer


_TRAINERS: dict[str, Callable[[Tokenizer, Iterable[str], dict[str, Any]], Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
}


def _count_words(texts: Iterable[str], splitter: Tokenizer, words: Counter[str]) -> Iterator[str]:
    """Yield the texts and count their words, long ones in parts."""
    for text in texts:
        for word, _ in splitter.pre_tokenizer.pre_tokenize_str(
            splitter.normalizer.normalize_str(text)
        ):
            for first in range(0, len(word), _MAX_TRAINING_WORD_LENGTH):
                words[word[first : first + _MAX_TRAINING_WORD_LENGTH]] += 1
        yield text


def _count_pieces(pieces: Iterable[str], words: Mapping[str, int]) -> Counter[str]:
    """Count how often each piece occurs in the words, including overlaps; others count once."""
    counts = Counter(dict.fromkeys(sorted(pieces), 1))
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + _MAX_PIECE_LENGTH, len(word)) + 1):
                if word[start:end] in counts:
                    counts[word[start:end]] += count
    return counts


def _fit_unigram(
    words: Mapping[str, int], candidates: Counter[str], size: int
) -> list[tuple[str, float]]:
    """
    Select at most `size` pieces by expectation maximization and pruning.

    Returns:
        Pieces with the logarithms of their probabilities, all 256 bytes first.
    """
    import sentencepiece

    unseen = set(_BYTES) - {character for word in words for character in word}
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        seeds = Path(folder) / "seeds.tsv"
        seeds.write_text(
            "".join(f"{piece}\t{count}\n" for piece, count in candidates.items()), encoding="utf-8"
        )
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in sorted(words.items())),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            seed_sentencepieces_file=str(seeds),
            max_sentencepiece_length=_MAX_PIECE_LENGTH,
            vocab_size=size
            - len(unseen)
            + 1,  # SentencePiece counts its unknown token, which is dropped below
            hard_vocab_limit=False,
            character_coverage=1.0,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            # The words are final: no normalization, no spaces, no further splitting.
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            split_by_unicode_script=False,
            split_by_number=False,
            minloglevel=2,  # errors only
        )
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    scores = {
        trained.id_to_piece(index): trained.get_score(index)
        for index in range(1, trained.get_piece_size())
    }
    # SentencePiece drops unseen bytes and, from small texts, rare pieces. Give them the lowest
    # score.
    rare = [
        *sorted(unseen),
        *(piece for piece, _ in candidates.most_common() if piece not in scores.keys() | unseen),
    ]
    scores |= dict.fromkeys(rare[: size - len(scores)], min(scores.values()) - 1.0)
    return sorted(scores.items(), key=lambda item: (item[0] not in _BYTES, -item[1], item[0]))


def _train_on_sequences(
    texts: Iterable[str],
    model: str,
    pattern: str | None,
    vocab_size: int,
    show_progress: bool,
) -> Tokenizer:
    """Train a tokenizer whose vocabulary has whole parts of texts. With a pattern, text between its
    matches is a part, too, so that nothing is lost.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token=_OF_SEQUENCES["unk_token"]))
    usual, behavior = _SPLITS[model]
    try:
        splitter = Regex(pattern or usual)
    except Exception as error:  # Oniguruma's have no type of their own
        raise UserError(
            f"A pattern must be a regular expression of Oniguruma, got {pattern!r}: {error}."
        ) from error
    if model != WORDS:
        tokenizer.decoder = decoders.Fuse()  # without a decoder, spaces join tokens
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(splitter, behavior),
            pre_tokenizers.Split(Regex(_SPECIAL_NAMES), "isolated"),
        ]
    )
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        min_frequency=0,
        show_progress=show_progress,
        special_tokens=[*_SPECIAL_TOKENS.values(), _OF_SEQUENCES["unk_token"]],
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _train_sentencepiece(texts: _CountedTexts, vocab_size: int) -> bytes:
    """
    Train a model of SentencePiece with the pieces that Marian needs: EOS first, then unknown, no
    BOS and no padding.

    Rare characters become bytes. A text that is too small for `vocab_size` gives fewer pieces.
    """
    import sentencepiece

    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=written,
            model_type="unigram",
            vocab_size=vocab_size // _MULTIPLE * _MULTIPLE,
            hard_vocab_limit=False,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            byte_fallback=True,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,  # errors only
        )
    except RuntimeError as error:
        texts.check()
        reason = str(error).rpartition("] ")[2]
        raise UserError(
            f"`vocab_size` must suit the text, got {vocab_size:,}. SentencePiece: {reason}"
        ) from error
    fields = [*_read_fields(written.getvalue())]
    count = sum(number == _PIECE for number, *_ in fields)
    kept = count // _MULTIPLE * _MULTIPLE
    if kept <= len(_BYTES):
        raise UserError(
            f"A vocabulary of SentencePiece needs more text to train on than these {texts.texts} "
            "texts."
        )
    return b"".join(whole for *_, whole in fields[:kept] + fields[count:])


def _read_fields(buffer: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, the content and all bytes of each field of a protocol buffer up to one
    without a size.
    """
    start = 0
    while start < len(buffer) and buffer[start] & 7 == 2:
        end = next(at for at in range(start + 1, len(buffer)) if buffer[at] < 128) + 1
        last = end + sum(
            (byte & 127) << 7 * number for number, byte in enumerate(buffer[start + 1 : end])
        )
        yield buffer[start] >> 3, buffer[end:last], buffer[start:last]
        start = last


def _from_sentencepiece(model: bytes) -> Tokenizer:
    """Build a tokenizer with the pieces and the normalization of a model of SentencePiece, whose
    ids it gives.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [
        (processor.id_to_piece(index), processor.get_score(index))
        for index in range(len(processor))
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=processor.unk_id(), byte_fallback=True))
    normalization = next(
        content for number, content, _ in _read_fields(model) if number == _NORMALIZATION
    )
    rules = next(
        content for number, content, _ in _read_fields(normalization) if number == _COMPILED
    )
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),  # or `Precompiled` would lose the second mark of a letter
            normalizers.Precompiled(rules),
            normalizers.Prepend(" "),
            normalizers.Replace(Regex(_EXTRA_SPACES), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="never"),
            pre_tokenizers.Split(Regex(_NAMES), "isolated"),
        ]
    )
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


__all__ = [
    "VanillaTransformerTokenizer",
    "build_normalizer",
    "constructor_arguments",
    "find_anywhere",
    "with_normalization",
]
