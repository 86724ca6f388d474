"""Words at the start of sources, such as <BT> of back-translations, are tokens that no augmentation changes."""

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.training.arguments import parse_recipe

UPPER_CASE = '{"upper_case": 1.0}'


@pytest.fixture
def tagged(corpus):
    """Return a corpus with a tag before each second source."""
    lines = (corpus / "train.a").read_text().splitlines()
    (corpus / "train.a").write_text("".join(f"{'<Bt> ' * (n % 2)}{line}\n" for n, line in enumerate(lines)))
    return corpus


def opened(folder, **changes):
    recipe = parse_recipe(flags(folder, folder / "out", cache_dir=folder / "cache", source_tags="<Bt>", **changes))
    texts = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(texts)
    return tokenize(texts, tokenizer, seed=0), tokenizer


def test_source_tags_are_one_token(tagged):
    corpus, tokenizer = opened(tagged)
    tag = tokenizer.convert_tokens_to_ids("<Bt>")
    assert tokenizer("<Bt> a b")["input_ids"] == [tag, *tokenizer("a b")["input_ids"]]
    assert [pair.source[0] == tag for pair in map(corpus.epoch(0).__getitem__, range(40))] == [False, True] * 20


def test_source_tags_are_not_augmented(tagged):
    corpus, tokenizer = opened(tagged, augment=UPPER_CASE)
    pairs = corpus.epoch(0)
    texts = [tokenizer.decode(pairs[number].source[:-1]) for number in range(40)]
    assert [text.startswith("<Bt>") for text in texts] == [False, True] * 20
    assert all(text.removeprefix("<Bt>").isupper() for text in texts)


@pytest.mark.parametrize("tags", ["[<B T>]", "['']", "[1]", "{a: b}"])
def test_source_tags_must_be_words(corpus, tags):
    with pytest.raises(ValueError, match="`source_tags` must be words, such as <BT>, got"):
        parse_recipe(flags(corpus, corpus / "out", source_tags=tags))


@pytest.mark.parametrize("changes", [{"lora_rank": 2}, {"freeze": "embeddings"}])
def test_source_tags_need_embeddings_that_are_trained(corpus, changes):
    changes |= {"init_from": "model", "source_tags": "<BT>"}
    with pytest.raises(ValueError, match="`source_tags`"):
        parse_recipe(flags(corpus, corpus / "out", **changes))
