"""Change training text in each epoch: phrases, perturbations, terms, placeholders and noise, and
BPE-dropout.
"""

from functools import partial

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.corpus import Corpus
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.files.hashes import hash_json
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

from .augmented_corpus import AugmentedCorpus, find_augmentations
from .bpe_dropout import BpeDropoutCorpus
from .phrases import draw_phrase, find_common_words


def change_corpus(
    corpus: Corpus, texts: Texts, tokenizer: PreTrainedTokenizerBase, seed: int, max_tokens: int
) -> Corpus:
    """Return a corpus with the augmentations and the BPE-dropout of a recipe."""
    data, training = texts.data, texts.training
    decisive = [*texts.augmentations.items(), data.source_tags]
    key = hash_json(training.key, hash_tokenizer(tokenizer), decisive)
    if texts.augmentations:
        tags = data.source_tags or ()
        changes = dict(texts.augmentations)
        share = changes.pop("phrases", 0.0)
        draw = partial(draw_phrase, common=find_common_words(training.dataset), tags=tags)
        augment = find_augmentations(changes, training.dataset, training.key, texts.cache_dir, tags)
        encode = partial(encode_sentences, tokenizer)
        corpus = AugmentedCorpus(
            corpus, augment, encode, seed, max_tokens, share, draw, key, texts.cache_dir
        )
    if data.bpe_dropout:
        corpus = BpeDropoutCorpus(
            corpus, tokenizer, data.bpe_dropout, seed, max_tokens, key, texts.cache_dir
        )
    return corpus


__all__ = ["change_corpus"]
