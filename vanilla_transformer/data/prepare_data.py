"""Load the text of a recipe and tokenize it: `texts = load_texts(data)`,
`corpus = tokenize(texts, tokenizer, seed)`.

Cleaned text and token ids are cached by content, so a second run starts at once.
"""

import shutil
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import starmap
from pathlib import Path

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import RECORDS
from vanilla_transformer.machine.cores import is_first_of_node
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction, DirectionTokens, find_languages

from .cached_texts import CachedTexts, load_cached_texts
from .cleaning import CleaningReport, clean_text
from .corpus import (
    Corpus,
    Overlap,
    TokenizedCorpus,
    corpus_numbers,
    corpus_weights,
    count_overlap_cached,
    drop_by_length,
)
from .data_arguments import (
    DataArguments,
    augmentations,
    cleaning_rules,
    corpus_specs,
    held_out_specs,
    prepared_recipe,
    validation_specs,
)
from .readers import CorpusSpec, SentencePair, open_corpus, read_rows
from .readers.corpora import usual_cache_dir
from .stages import ONE_STAGE, Stages
from .texts import Texts, ValidationSet
from .tokenized_corpus import (
    EncodedPairs,
    TokenLinks,
    TokenTable,
    encode_texts_cached,
)
from .tokenizer_training import hash_tokenizer

REPORT_FILE = "corpus.json"


def load_texts(data: DataArguments, cache_dir: str | Path | None = None) -> Texts:
    """
    Read and clean the text of a recipe, or open the prepared corpus that it names. Each file is
    opened once, and hashed once for all starts.

    Args:
        cache_dir (`str`): Used instead of the recipe's `cache_dir`.
    """
    usual = usual_cache_dir()
    folder = Path(cache_dir or data.cache_dir or usual)
    # The first process of each node verifies for all.
    if data.verify_cache and is_first_of_node():
        for cache in (folder, usual):
            with suppress(FileNotFoundError):
                shutil.rmtree(cache / RECORDS)  # so that each file is hashed again
    validation, test = load_held_out(data)
    changes = augmentations(data)
    forgetting = validation_specs(data, forgetting=True)
    if data.train_data is not None:
        from .windows import open_sample

        training = open_sample(data.train_data, verify=data.verify_data)
        shaped_by = prepared_recipe(data)
        specs, rules = corpus_specs(shaped_by), cleaning_rules(shaped_by)
    else:
        specs, rules = corpus_specs(data), cleaning_rules(data)
        training = load_cached_texts(specs, rules, folder)
        scores = [corpus_rules.score for corpus_rules in rules]
        if any(scores):
            from vanilla_transformer.extensions.cleaning.low_scores import drop_low_scores

            training = drop_low_scores(training, specs, scores, folder)
    former: list[SentencePair] = []
    for spec in forgetting:
        former += _read_corpus(spec)
    return Texts(data, specs, rules, changes, training, validation, test, former, folder)


def load_held_out(data: DataArguments) -> tuple[list[ValidationSet], list[SentencePair]]:
    """Read the validation text and the test text of a recipe, maybe none."""
    specs = validation_specs(data) or held_out_specs(data, "validation")
    test_specs = held_out_specs(data, "test")
    validation: dict[Direction, list[SentencePair]] = {}
    for spec in specs:
        validation.setdefault(spec.direction, []).extend(_read_corpus(spec))
    test: list[SentencePair] = []
    for spec in test_specs:
        test += _read_corpus(spec)
    return list(starmap(ValidationSet, validation.items())), test


def tokenize(
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    stages: Stages = ONE_STAGE,
) -> Corpus:
    """
    Tokenize the training text, with the changes in each epoch and the links that the recipe
    requests.

    Args:
        seed (`int`): Seed of these changes, and of the sampling of pairs if a weight is not an
            integer.
        stages (`Stages`): The shares of the corpora in each stage. By default their weights decide.
    """
    data = texts.data
    if data.train_data is not None:
        from .windows import open_prepared

        return open_prepared(texts, tokenizer, seed, stages)
    encode = partial(encode_sentences, tokenizer)
    languages = find_languages(tokenizer)
    tokens: list[DirectionTokens] = []
    if languages is not None:
        tokens = [languages.tokens(spec.direction) for spec in texts.specs]
    longest = max((len(direction_tokens.source) for direction_tokens in tokens), default=0)
    limit = data.max_tokens - longest
    training, key = texts.training, hash_tokenizer(tokenizer)
    links: TokenLinks | None = None
    if data.train_alignments is not None and languages is not None:
        raise UserError(
            "`train_alignments` must be given for a model without language tags, got one that has "
            "them: links count the tokens of the text, which tags precede. Leave it out of the "
            "recipe."
        )
    if data.train_alignments is not None:
        from vanilla_transformer.extensions.alignments.token_alignments import load_alignments

        links = load_alignments(texts, tokenizer, key)
    encoded = encode_texts_cached(training.dataset, training.key, encode, key, texts.cache_dir)
    if links is not None:
        encoded = datasets.concatenate_datasets([encoded, links.dataset], axis=1)
    pairs = EncodedPairs(TokenTable(encoded))
    corpus: Corpus = _build_corpus(texts, training, pairs, seed, stages)
    corpus.links = links
    if texts.augmentations or data.bpe_dropout:
        from vanilla_transformer.extensions.augmentation import change_corpus

        corpus = change_corpus(corpus, texts, tokenizer, seed, limit)
    if languages is not None:
        from .tagged_corpus import TaggedCorpus

        corpus = TaggedCorpus(corpus, tokens, languages.replaced)
    return corpus


def _build_corpus(
    texts: Texts, training: CachedTexts, pairs: EncodedPairs, seed: int, stages: Stages
) -> TokenizedCorpus:
    report = deepcopy(training.report)  # the rules on lengths add to it
    pairs = drop_by_length(pairs, training.dataset, texts.rules, report)
    overlaps: dict[str, Overlap] = {}
    for name, held_out in texts.held_out.items():
        overlaps[name] = count_overlap_cached(training, held_out, texts.cache_dir)
    numbers = corpus_numbers(training.dataset, pairs)
    counts = np.bincount(numbers, minlength=len(texts.specs)).tolist()
    weights = corpus_weights(texts.specs, counts, texts.data.sampling_temperature, stages)
    return TokenizedCorpus(training.dataset, pairs, weights, seed, report, overlaps)


def _read_corpus(spec: CorpusSpec) -> list[SentencePair]:
    with open_corpus(spec) as corpus:
        return [*clean_text(spec, read_rows(corpus), None, CleaningReport())]
