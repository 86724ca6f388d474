"""Train the tokenizer of a run on its text, load the one that its recipe names, or extend a trained
one.
"""

import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tokenizers
from accelerate.utils import gather_object
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.hashes import cached_work, hash_file, hash_json
from vanilla_transformer.loading.model_names import check_hub, check_local_model, reporting_panics
from vanilla_transformer.text.inline_terms import TERM_TOKENS
from vanilla_transformer.text.languages import add_language_tags, find_languages, store_direction
from vanilla_transformer.text.protection import MASKS
from vanilla_transformer.tokenization_vanilla_transformer import (
    VanillaTransformerTokenizer,
    constructor_arguments,
    find_anywhere,
)

from .data_arguments import AGREEMENT, BOTH_TAGS, NO_TAGS, TARGET_TAGS
from .texts import Texts

_TRAINED = "vocabulary"  # what processes compare beside their data
_FORMAT = 2  # of a cached tokenizer; another number invalidates all older entries

# The function by which vocabularies were trained before the class had this method.
# A pattern may need too many steps, of which Oniguruma counts ten million for a match.
train_tokenizer = reporting_panics("The tokenizer cannot be trained")(
    VanillaTransformerTokenizer.train_from_iterator
)


def load_or_train_tokenizer(
    texts: Texts, name: str | Path | None = None
) -> PreTrainedTokenizerBase:
    """
    Load the tokenizer that the recipe names, or train a joint one on its text.

    A trained tokenizer is cached by its text and options, so all processes and later runs share it.
    The tokens of augmented text are added to either.

    Args:
        name (`str`): Used instead of the recipe's `tokenizer`.
    """
    name = name or texts.data.tokenizer
    if name is None and texts.data.train_data is not None:
        from .prepared_corpus import TOKENIZER

        name = Path(texts.data.train_data) / TOKENIZER
    tokenizer = _load(_train_cached(texts) if name is None else name)
    add_recipe_tokens(tokenizer, texts)
    return tokenizer


def add_recipe_tokens(tokenizer: PreTrainedTokenizerBase, texts: Texts) -> None:
    """Add the tokens of augmented text, the tags of sources and the tags of languages that the
    vocabulary lacks.

    A tokenizer that has tags gets the ones of further languages, unless the recipe has another
    rule. The one of a prepared corpus has all of them.
    """
    if texts.data.train_data is not None:
        return
    add_augmentation_tokens(tokenizer, texts.augmentations)
    known = tokenizer.get_added_vocab()
    tags = [tag for tag in texts.data.source_tags or () if tag not in known]
    if tags:
        _add_special_tokens(tokenizer, tags)
    languages = find_languages(tokenizer)
    sides: str | None = texts.data.language_tags
    directions = [spec.direction for spec in texts.specs]
    if sides is None and languages is not None:
        if languages.is_forced:
            return
        sides = BOTH_TAGS if languages.sources else TARGET_TAGS
    elif sides is None:
        targets = {direction.target for direction in directions}
        sides = TARGET_TAGS if len(targets) > 1 else NO_TAGS
    if sides != NO_TAGS:
        add_language_tags(tokenizer, directions, with_sources=sides == BOTH_TAGS)
    elif languages is None:
        store_direction(tokenizer, directions)


def _add_special_tokens(tokenizer: PreTrainedTokenizerBase, tokens: list[str]) -> None:
    """Add special tokens to the ones of the vocabulary."""
    tokenizer.add_special_tokens(
        {"extra_special_tokens": tokens}, replace_extra_special_tokens=False
    )


def add_augmentation_tokens(
    tokenizer: PreTrainedTokenizerBase, augmentations: Collection[str]
) -> None:
    """Add the tokens of text with these augmentations that the vocabulary lacks."""
    known = tokenizer.get_added_vocab().keys()
    if "inline_terms" in augmentations and not known >= set(TERM_TOKENS):
        _add_special_tokens(tokenizer, list(TERM_TOKENS))
    if "placeholders" in augmentations:
        if tokenizer.is_fast:
            for token in MASKS:
                find_anywhere(tokenizer.backend_tokenizer, token)
        tokenizer.add_tokens([token for token in MASKS if token not in known])


def hash_data(texts: Texts) -> dict[str, str]:
    """Return hashes of the text and of the tokenizer that the recipe names, by what they are."""
    name = texts.data.tokenizer
    hashes = {"training text": texts.training.key}
    hashes["validation text"] = hash_json(texts.validation)
    if texts.data.train_alignments not in (None, AGREEMENT):  # which the text decides
        path = Path(texts.data.train_alignments)
        hashes["training alignments"] = hash_file(path, texts.cache_dir)
    # A tokenizer of the Hub may be unreachable when a run resumes.
    if name is not None and Path(name).is_dir():
        hashes["tokenizer"] = hash_tokenizer(_load(name))
    return hashes


def hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash that two tokenizers share only if they give the same token ids."""
    symbol = tokenizer.eos_token_id
    if not tokenizer.is_fast:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            files = sorted(Path(folder).iterdir())
            names = [path.name for path in files]
            return hash_json(symbol, names, [*map(hash_file, files)])
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # Padding and truncation are settings of the last call, not of the tokenizer.
    state.pop("padding", None)
    state.pop("truncation", None)
    target_language = getattr(tokenizer, "tgt_lang", None)
    if target_language is None:
        return hash_json(symbol, state)
    return hash_json(symbol, state, target_language)


def _load(name: str | Path) -> PreTrainedTokenizerBase:
    try:
        check_local_model(name)
        check_hub(name)
        with reporting_panics("its library failed"):
            tokenizer = AutoTokenizer.from_pretrained(name)
            tokenizer.decode(tokenizer("a")["input_ids"])
    except (OSError, ValueError) as error:  # of transformers
        requirement = "`tokenizer` must be a folder or a Hub name of one"
        raise UserFileError(f"{requirement}, got {name}: {error}") from error
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise UserError(
                f"The tokenizer {name} must have a `{token}`, it has none. Add one with "
                f"`tokenizer.add_special_tokens({{'{token}': '<…>'}})` and save it."
            )
    return tokenizer


def _train_cached(texts: Texts) -> Path:
    """Return the folder of a tokenizer trained on the text; train it only if the cache does not
    hold it.
    """
    data = texts.data
    options: dict[str, Any] = {
        "vocab_size": data.vocab_size,
        "model": data.tokenizer_model,
        "normalization": data.normalization,
        "pattern": data.tokenizer_pattern,
    }
    versions = [tokenizers.__version__, version("sentencepiece")]

    def write(folder: Path) -> None:
        train_tokenizer(texts.sentences(), **options).save_pretrained(folder)

    content: list[Any] = [_FORMAT, versions, texts.training.key, options]
    if texts.is_sampled:
        content.append(data.vocabulary_sentences)
    return cached_work(texts.cache_dir, "tokenizer", content, write)


def check_same_on_all_processes(
    tokenizer: PreTrainedTokenizerBase, hashes: Mapping[str, str]
) -> None:
    """Check that processes which do not share their files have the same text and have trained the
    same tokenizer. All must call it together.

    Args:
        hashes: See [`hash_data`].
    """
    first, *others = gather_object([{**hashes, _TRAINED: hash_tokenizer(tokenizer)}])
    for process, other in enumerate(others, start=1):
        for name, value in first.items():
            if other[name] != value:
                raise UserError(
                    f"All processes must have the same {name}, but process {process} has another "
                    "one than process 0. Copy the same files to each machine."
                )


# Of two planes of Unicode for private use: one character for each entry of the vocabulary
_FIRST_SYMBOL = 0xF0000
_MOST_ENTRIES = 2**17
_LEAST_FREQUENCY = 2  # of a pair of entries to be merged


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], vocab_size: int
) -> VanillaTransformerTokenizer:
    """
    Return a tokenizer with the same entries and further ones, which merge pairs of them that are
    frequent in `texts`.

    Training of BPE continues where it ended: the former merges come first. So text whose words have
    no new merge is tokenized as before. Added tokens, such as tags of languages, come after the new
    entries.

    Args:
        vocab_size: Entries of the new vocabulary. There are fewer if the text has fewer pairs.
    """
    is_ours = isinstance(tokenizer, VanillaTransformerTokenizer)
    if not is_ours or not isinstance(tokenizer.backend_tokenizer.model, models.BPE):
        raise UserError(
            "`init_vocabulary` extend needs a BPE tokenizer of this package, got another one. Use "
            "keep or replace."
        )
    if not len(tokenizer) < vocab_size <= _MOST_ENTRIES:
        raise UserError(
            f"`vocab_size` must be above the {len(tokenizer):,} entries to extend and at most "
            f"{_MOST_ENTRIES:,}, got {vocab_size:,}."
        )
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    entries, merges = state["model"]["vocab"], state["model"]["merges"]
    count = vocab_size - len(tokenizer)
    for first, second in _learn_merges(tokenizer.backend_tokenizer, list(texts), count):
        merges.append([first, second])
        entries.setdefault(first + second, len(entries))
    return tokenizer_from_state(state, tokenizer)


def tokenizer_from_state(
    state: dict[str, Any], tokenizer: VanillaTransformerTokenizer
) -> VanillaTransformerTokenizer:
    """Return a tokenizer with the content `state` of a `tokenizer.json`, and otherwise like
    `tokenizer`.
    """
    backend = Tokenizer.from_str(json.dumps(state))
    arguments = constructor_arguments(tokenizer)
    return VanillaTransformerTokenizer(tokenizer_object=backend, **arguments)


def _learn_merges(backend: Tokenizer, texts: list[str], count: int) -> list[tuple[str, str]]:
    """Return `count` further merges of entries, the most frequent first, learned from words of
    private characters.
    """
    written = dict[str, str]()

    def write() -> Iterator[str]:
        for text in texts:
            normalized = backend.normalizer.normalize_str(text)
            words = backend.pre_tokenizer.pre_tokenize_str(normalized)
            for word, _ in words:
                if word not in written:
                    pieces = backend.model.tokenize(word)
                    written[word] = "".join(chr(_FIRST_SYMBOL + piece.id) for piece in pieces)
            yield " ".join(written[word] for word, _ in words)

    def read(symbols: str) -> str:
        return "".join(str(backend.id_to_token(ord(symbol) - _FIRST_SYMBOL)) for symbol in symbols)

    alphabet = set().union(*write()) - {" "}
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + count, min_frequency=_LEAST_FREQUENCY, show_progress=False
    )
    learned.train_from_iterator(write(), trainer)
    merges = json.loads(learned.to_str())["model"]["merges"]
    return [(read(first), read(second)) for first, second in merges]
