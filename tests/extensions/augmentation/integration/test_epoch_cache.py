"""Several processes change the text of an epoch as one does."""

from functools import partial

import pytest

from tests.corpora import write_aligned_corpus
from tests.tiny_runs import flags
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.extensions.augmentation import epoch_cache
from vanilla_transformer.training.recipe import parse_recipe

AUGMENT = '{"upper_case": 0.5, "typos": 0.5, "inline_terms": 0.5}'


def change(folder, **changes):
    options = {"cache_dir": folder / "cache", "max_tokens": 400} | changes
    texts = load_texts(parse_recipe(flags(folder, folder / "out", **options)).data)
    corpus = tokenize(texts, load_or_train_tokenizer(texts), seed=0)
    pairs = corpus.epoch(1)
    rows = corpus.texts.select(pairs.rows)
    return [*pairs], rows["source"][:], rows["target"][:]


@pytest.mark.parametrize("changes", [{"augment": AUGMENT}, {"bpe_dropout": 0.5}])
def test_several_processes_change_an_epoch_as_one(aligned_corpus, monkeypatch, changes):
    expected = change(aligned_corpus, **changes)
    encode_texts = partial(epoch_cache.encode_texts, num_proc=2)
    monkeypatch.setattr(epoch_cache, "choose_num_proc", lambda rows: 2)
    monkeypatch.setattr(epoch_cache, "encode_texts", encode_texts)
    assert change(aligned_corpus, **changes) == expected
    (entry,) = (aligned_corpus / "cache").glob("*-*/encoded_00001_of_00002.arrow")
    assert entry.parent.name.startswith(("augmented-", "dropout-"))


@pytest.fixture
def aligned_corpus(tmp_path):
    write_aligned_corpus(tmp_path, train=60, validation=5)
    for name in ("train", "validation"):
        (tmp_path / f"{name}.en").rename(tmp_path / f"{name}.a")
        (tmp_path / f"{name}.de").rename(tmp_path / f"{name}.b")
    return tmp_path
