"""Train the tokenizer of a run on its text, or load the one that its recipe names, and check it."""

import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.file_utils import cached_folder, hash_file
from vanilla_transformer.number_limits import check_number
from vanilla_transformer.text.languages import add_language_tags, find_languages
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .arguments import AGREEMENT, BOTH_TAGS, NO_TAGS, TARGET_TAGS, TOKENIZER_MODELS, augmentations, tagged_sides
from .augmentation import add_augmentation_tokens
from .prepare_data import Texts
from .tokenized_corpus import hash_json, hash_tokenizer

_FORMAT = 2  # of a cached tokenizer; another number invalidates all older entries

# In the order of their ids, which are the defaults of VanillaTransformerConfig.
_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # one character for each of the 256 bytes
# WordPiece gives up on longer words, and its time grows with their square.
_MAX_WORDPIECE_WORD_LENGTH = 100
# Unigram: SentencePiece's limit of a piece, and how many candidates there are for each piece.
_MAX_PIECE_LENGTH = 16
_CANDIDATES_PER_PIECE = 4
_MAX_TRAINING_WORD_LENGTH = 256  # BPE and unigram split longer words while they train


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 37000,
    min_frequency: int = 2,
    show_progress: bool = False,
    model: str = "bpe",
) -> VanillaTransformerTokenizer:
    """
    Train a joint vocabulary on the sentences of both languages.

    The same texts give the same vocabulary in every process.

    Args:
        texts (iterable of `str`): Raw sentences, in any order.
        vocab_size (`int`): Entries including special tokens and the 256 bytes. The paper uses about 37,000.
        min_frequency (`int`): Rarer pairs are not merged.
        show_progress (`bool`): Show the progress bars of `tokenizers`.
        model (`str`):
            `"bpe"`, as in the paper for English-German; `"wordpiece"`, as for English-French; or `"unigram"`.

    Raises:
        ValueError: the vocabulary has no room for bytes and special tokens, the model is unknown, there is no text,
            or `texts` is a single string.
    """
    _check_training(texts, vocab_size, min_frequency, model)
    counted = _CountedTexts(texts)
    tokenizer = _TRAINERS[model](counted, vocab_size, min_frequency, show_progress)
    if not counted.characters:
        raise ValueError(f"A vocabulary needs text to train on, got {counted.texts} texts without a character.")
    eos = _SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    return VanillaTransformerTokenizer(
        tokenizer_object=tokenizer, split_special_tokens=True, clean_up_tokenization_spaces=False, **_SPECIAL_TOKENS
    )


def _check_training(texts: Iterable[str], vocab_size: int, min_frequency: int, model: str) -> None:
    if isinstance(texts, str):
        raise ValueError(f"`texts` must be an iterable of sentences, got the one string {texts[:40]!r}.")
    if model not in TOKENIZER_MODELS:
        raise ValueError(f"`model` must be one of {', '.join(TOKENIZER_MODELS)}, got {model!r}.")
    if min_frequency < 0:
        raise ValueError(f"`min_frequency` must not be negative, got {min_frequency}.")
    smallest = len(_SPECIAL_TOKENS) + len(_BYTES)
    check_number("vocab_size", vocab_size)
    if vocab_size < smallest:
        raise ValueError(
            f"`vocab_size` must be at least {smallest} (256 bytes and {len(_SPECIAL_TOKENS)} special tokens), "
            f"got {vocab_size}."
        )


class _CountedTexts:
    """Count texts while they are read, because a trainer returns a vocabulary even without any text."""

    def __init__(self, texts: Iterable[str]):
        self._source = texts
        self.texts = 0
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._source:
            self.texts += 1
            self.characters += len(text)
            yield text


def _byte_level(model: models.Model) -> Tokenizer:
    """
    Build an untrained byte-level tokenizer.

    A space is prepended to every text, so a word has the same tokens at the start of a text and within it; the decoder
    removes exactly that space.
    """
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _trainer_options(vocab_size: int, min_frequency: int, show_progress: bool) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "min_frequency": min_frequency,
        "special_tokens": list(_SPECIAL_TOKENS.values()),
        "initial_alphabet": _BYTES,
        "show_progress": show_progress,
    }


def _train_bpe(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    Train BPE by `tokenizers`.

    SentencePiece does not replace it: of 8,000 entries for Multi30k about 100 differ, its segmentation cannot be
    expressed exactly as a list of merges, and with byte-level words it saves no time.
    """
    tokenizer = _byte_level(models.BPE())
    options = _trainer_options(vocab_size, min_frequency, show_progress)
    words = tokenizer.pre_tokenizer
    # The time of training grows with the square of a word's length, and text without spaces is one word.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.FixedLength(_MAX_TRAINING_WORD_LENGTH)])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**options))
    tokenizer.pre_tokenizer = words
    return tokenizer


def _train_wordpiece(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    Train WordPiece (Wu et al., 2016), which the paper cites for English-French.

    Pieces at the start of a word are marked by the byte of the preceding space, the others are not, so 256 bytes cover
    both. Words are split by taking the longest piece from the left. BERT's `##` would need every byte twice and could
    not be distinguished from two number signs in the text.

    Differs from Wu et al.: pieces are chosen by the frequency of pairs, as in BPE, because `tokenizers` has no trainer
    for the likelihood.
    """
    tokenizer = _byte_level(models.WordPiece())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [tokenizer.pre_tokenizer, pre_tokenizers.FixedLength(_MAX_WORDPIECE_WORD_LENGTH)]
    )
    options = _trainer_options(vocab_size, min_frequency, show_progress)
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(**options, continuing_subword_prefix=""))
    tokenizer.model.max_input_chars_per_word = _MAX_WORDPIECE_WORD_LENGTH
    return tokenizer


def _train_unigram(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    Train the unigram language model (Kudo, 2018, "Subword Regularization", section 3.2) by SentencePiece.

    The candidates are the pieces of a larger BPE with their frequencies. SentencePiece's own candidates lack frequent
    words that always precede a word boundary, and with them the sentences of Multi30k have 5 % more tokens; with the
    candidates of the trainer in `tokenizers` they have 20 % more.
    """
    tokenizer = _byte_level(models.BPE())
    words: Counter[str] = Counter()
    options = _trainer_options(_CANDIDATES_PER_PIECE * vocab_size, min_frequency, show_progress)
    trainer = trainers.BpeTrainer(**options, max_token_length=_MAX_PIECE_LENGTH)
    tokenizer.train_from_iterator(_count_words(texts, words), trainer)
    if words:
        candidates = tokenizer.get_vocab().keys() - set(_SPECIAL_TOKENS.values())
        scores = _fit_unigram(words, _count_pieces(candidates, words), vocab_size - len(_SPECIAL_TOKENS))
        # No word of a text holds a special token: the pre-tokenizer separates letters from other characters.
        special = [(token, 0.0) for token in _SPECIAL_TOKENS.values()]
        tokenizer.model = models.Unigram([*special, *scores], unk_id=None, byte_fallback=False)
    return tokenizer


_TRAINERS: dict[str, Callable[[Iterable[str], int, int, bool], Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
}


def _count_words(texts: Iterable[str], words: Counter[str]) -> Iterator[str]:
    """Yield the texts and count their words, long ones in parts."""
    splitter = _byte_level(models.BPE())  # the tokenizer in training is locked while it reads
    for text in texts:
        for word, _ in splitter.pre_tokenizer.pre_tokenize_str(splitter.normalizer.normalize_str(text)):
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


def _fit_unigram(words: Mapping[str, int], candidates: Counter[str], size: int) -> list[tuple[str, float]]:
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
        seeds.write_text("".join(f"{piece}\t{count}\n" for piece, count in candidates.items()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in sorted(words.items())),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            seed_sentencepieces_file=str(seeds),
            max_sentencepiece_length=_MAX_PIECE_LENGTH,
            vocab_size=size - len(unseen) + 1,  # SentencePiece counts its unknown token, which is dropped below
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
    scores = {trained.id_to_piece(index): trained.get_score(index) for index in range(1, trained.get_piece_size())}
    # SentencePiece drops unseen bytes and, from small texts, rare pieces. Give them the lowest score.
    rare = [*sorted(unseen), *(piece for piece, _ in candidates.most_common() if piece not in scores.keys() | unseen)]
    scores |= dict.fromkeys(rare[: size - len(scores)], min(scores.values()) - 1.0)
    return sorted(scores.items(), key=lambda item: (item[0] not in _BYTES, -item[1], item[0]))


def load_or_train_tokenizer(texts: Texts, name: str | Path | None = None) -> PreTrainedTokenizerBase:
    """
    Load the tokenizer that the recipe names, or train a joint one on its text.

    A trained tokenizer is cached by its text and options, so all processes and later runs share it. The tokens of
    augmented text are added to either.

    Args:
        name (`str`): Used instead of the recipe's `tokenizer`.

    Raises:
        ValueError: the tokenizer lacks a padding or an EOS token, processes with different files have trained
            different ones, or `train_tokenizer` raises it.
        OSError: there is no such tokenizer.
    """
    name = name or texts.data.tokenizer
    tokenizer = _load(_train_cached(texts) if name is None else name)
    add_recipe_tokens(tokenizer, texts)
    if name is None:
        _check_same_on_all_processes(tokenizer)
    return tokenizer


def add_recipe_tokens(tokenizer: PreTrainedTokenizerBase, texts: Texts) -> None:
    """Add the tokens of augmented text, the tags of sources and the tags of languages that the vocabulary lacks.

    A tokenizer that has tags gets the ones of further languages, unless the recipe has another rule.

    Raises:
        ValueError: a corpus has no language to be tagged, or the tokenizer can have no tags.
    """
    add_augmentation_tokens(tokenizer, augmentations(texts.data))
    tags = [tag for tag in texts.data.source_tags or () if tag not in tokenizer.get_added_vocab()]
    if tags:
        tokenizer.add_special_tokens({"extra_special_tokens": tags}, replace_extra_special_tokens=False)
    languages, sides = find_languages(tokenizer), tagged_sides(texts.data)
    if languages is not None and texts.data.language_tags is None:
        if languages.is_forced:
            return
        sides = BOTH_TAGS if languages.sources else TARGET_TAGS
    if sides != NO_TAGS:
        add_language_tags(tokenizer, [spec.direction for spec in texts.specs], with_sources=sides == BOTH_TAGS)


def hash_data(texts: Texts) -> dict[str, str]:
    """Return hashes of the text and of the tokenizer that the recipe names, by what they are."""
    name = texts.data.tokenizer
    hashes = {"training text": texts.training.key, "validation text": hash_json(texts.validation)}
    if texts.data.train_alignments not in (None, AGREEMENT):  # which the text decides
        hashes["training alignments"] = hash_file(Path(texts.data.train_alignments))
    if name is not None and Path(name).is_dir():  # one of the Hub may be unreachable when a run resumes
        hashes["tokenizer"] = hash_tokenizer(_load(name))
    return hashes


def _load(name: str | Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise OSError(f"`tokenizer` must be a folder or a Hub name of one, got {name}: {error}") from error
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"The tokenizer {name} must have a `{token}`, it has none. Add one with "
                f"`tokenizer.add_special_tokens({{'{token}': '<…>'}})` and save it."
            )
    return tokenizer


def _train_cached(texts: Texts) -> Path:
    """Return the folder of a tokenizer trained on the text; train it only if the cache does not hold it."""
    data = texts.data
    options: dict[str, Any] = {
        "vocab_size": data.vocab_size,
        "model": data.tokenizer_model,
    }
    versions = [tokenizers.__version__, version("sentencepiece")]
    key = hash_json(_FORMAT, versions, texts.training.key, options)

    def write(folder: Path) -> None:
        train_tokenizer(texts.sentences(), **options).save_pretrained(folder)

    return cached_folder(texts.cache_dir, f"tokenizer-{key}", write)


def _check_same_on_all_processes(tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that processes which do not share their files have trained the same tokenizer."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    keys = [""] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(keys, hash_tokenizer(tokenizer))
    if len(set(keys)) > 1:
        raise ValueError(
            f"All processes must have one tokenizer, got {len(set(keys))} different ones. Give each the same "
            "text, or train a tokenizer first, with train-tokenizer, and name it by --tokenizer."
        )


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """
    Return the special tokens for a configuration.

    The decoder starts with the tokenizer's BOS token, or with padding if it has none (as in Marian).
    """
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }
