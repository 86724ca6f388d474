"""Tags of languages: each pair begins with the ones of its corpus, whatever was done to its
text.
"""

import pickle

import datasets
import numpy as np
import pytest

from tests.tiny_runs import flags
from vanilla_transformer.data.cleaning import CleaningReport
from vanilla_transformer.data.corpus import TokenizedCorpus, temperature_weights
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tagged_corpus import TaggedCorpus
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.text.languages import Direction, DirectionTokens, find_languages
from vanilla_transformer.training.recipe import parse_recipe

ROWS = {"input_ids": [[5, 6, 2], [2], [7, 2]], "labels": [[5, 2], [6, 2], [7, 7, 2]]}
TEXTS = {"source": ["a b", "", "c"], "target": ["A", "B", "C C"], "corpus": [0, 1, 1]}


def corpus(tokens, replaced=0, weights=(1, 1)):
    pairs = EncodedPairs(TokenTable(datasets.Dataset.from_dict(ROWS)))
    plain = TokenizedCorpus(
        datasets.Dataset.from_dict(TEXTS), pairs, [weights], 0, CleaningReport(), {}
    )
    return TaggedCorpus(plain, tokens, replaced)


def test_tagged_corpus_begins_sources_with_the_tags_of_their_corpus():
    tagged = corpus([DirectionTokens((10, 20)), DirectionTokens((11, 21))])
    pairs = tagged.epoch(0)
    assert [pair.source for pair in pairs] == [[10, 20, 5, 6, 2], [11, 21, 2], [11, 21, 7, 2]]
    assert [pair.target for pair in pairs] == ROWS["labels"]
    assert pairs.source_lengths.tolist() == [5, 3, 4] and tagged.max_source_length == 5
    batch = pairs.table.pad(np.array([2, 0]), 0)
    assert batch["input_ids"].tolist() == [[11, 21, 7, 2, 0], [10, 20, 5, 6, 2]]


def test_tagged_corpus_replaces_the_languages_of_the_tokenizer():
    tagged = corpus([DirectionTokens((10,), (30,)), DirectionTokens((11,), (31,))], replaced=1)
    pairs = list(tagged.epoch(0))
    assert [pair.source for pair in pairs] == [[10, 6, 2], [11], [11, 2]]
    assert [pair.target for pair in pairs] == [[30, 2], [31, 2], [31, 7, 2]]


def test_tagged_corpus_follows_the_weights_and_keeps_its_table():
    tagged = corpus([DirectionTokens((10,)), DirectionTokens((11,))], weights=(1, 2))
    first, second = tagged.epoch(0), tagged.epoch(1)
    assert [pair.source[0] for pair in first] == [10, 11, 11, 11, 11]
    assert first.table is second.table  # workers of a loader keep it
    copied = pickle.loads(pickle.dumps(first))
    assert list(copied) == list(first)


@pytest.fixture
def recipe(tmp_path):
    """English-German in both directions and a little English-French, with a zero-shot validation
    set.
    """
    for name, text in {"en": "one\ntwo\nthree\nfour\n", "de": "eins\nzwei\ndrei\nvier\n"}.items():
        (tmp_path / f"a.{name}").write_text(text)
    (tmp_path / "b.tsv").write_text("five\tcinq\n")

    def make(**changes):
        german = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
        corpora = [
            german | {"source_language": "en", "target_language": "de", "both_directions": True},
            {"file": str(tmp_path / "b.tsv"), "source_language": "en", "target_language": "fr"},
        ]
        validation = [german | {"source_language": "de", "target_language": "fr"}]
        options = {"corpora": corpora, "validation": validation, "vocab_size": 270}
        return DataArguments(**options | {"cache_dir": str(tmp_path / "cache")} | changes)

    return make


def read(data):
    texts = load_texts(data)
    tokenizer = load_or_train_tokenizer(texts)
    return texts, tokenizer, tokenize(texts, tokenizer, seed=0)


def test_tokenize_tags_several_target_languages(recipe):
    texts, tokenizer, mix = read(recipe())
    codes = {token: code for code, token in find_languages(tokenizer).targets.items()}
    pairs = [
        (
            codes[pair.source[0]],
            tokenizer.decode(pair.source[1:-1]),
            tokenizer.decode(pair.target[:-1]),
        )
        for pair in mix.epoch(0)
    ]
    assert pairs[:2] == [("de", "one", "eins"), ("de", "two", "zwei")]
    assert pairs[4:6] == [("en", "eins", "one"), ("en", "zwei", "two")] and pairs[8] == (
        "fr",
        "five",
        "cinq",
    )
    assert mix.texts.select(mix.epoch(0).rows)["source"][4] == "eins"
    assert mix.max_source_length == max(len(pair.source) for pair in mix.epoch(0))
    assert [each.direction for each in texts.validation_sets] == [Direction("de", "fr")]
    assert texts.validation[0] == ("one", "eins")


@pytest.mark.parametrize("changes", [{"bpe_dropout": 0.5}, {"augment": {"placeholders": 1.0}}])
def test_tokenize_tags_changed_text(recipe, changes):
    _, tokenizer, mix = read(recipe(language_tags="both", **changes))
    languages = find_languages(tokenizer)
    begin = [languages.tokens(spec).source for spec in (("en", "de"), ("de", "en"), ("en", "fr"))]
    for epoch in range(2):
        pairs = list(mix.epoch(epoch))
        assert [tuple(pair.source[:2]) for pair in pairs] == [begin[0]] * 4 + [begin[1]] * 4 + [
            begin[2]
        ]
        assert [tuple(pair.source[:2]) for pair in mix.epoch(epoch)] == [
            tuple(pair.source[:2]) for pair in pairs
        ]


def test_tokenize_without_several_targets_has_no_tags(recipe):
    data = recipe()
    del data.corpora[1], data.corpora[0]["both_directions"]
    assert find_languages(read(data)[1]) is None
    data = data.model_copy(update={"language_tags": "target"})
    assert list(find_languages(read(data)[1]).targets) == ["de"]


def test_tokenize_samples_directions_by_temperature(recipe):
    _, tokenizer, mix = read(recipe(sampling_temperature=1e6))
    targets = find_languages(tokenizer).targets
    epochs = [[pair.source[0] for pair in mix.epoch(epoch)] for epoch in range(2)]
    assert all(
        [found.count(targets[code]) for code in ("de", "en", "fr")] == [3, 3, 3] for found in epochs
    )
    assert mix.epoch(0).rows.tolist() != mix.epoch(1).rows.tolist()
    assert (
        read(recipe(sampling_temperature=1e6))[2].epoch(1).rows.tolist()
        == mix.epoch(1).rows.tolist()
    )


def test_temperature_weights_share_by_direction():
    directions = ["en-de", "en-de", "en-fr", "en-it"]
    counts, weights = [300, 200, 50, 0], [1.0, 2.0, 2.0, 1.0]
    assert temperature_weights(counts, weights, directions, 1.0) == pytest.approx(weights)
    found = temperature_weights(counts, weights, directions, 2.0)
    sizes = [weight * count for weight, count in zip(found, counts, strict=True)]
    assert sum(sizes) == pytest.approx(800)
    assert (sizes[0] + sizes[1]) / sizes[2] == pytest.approx((700 / 100) ** 0.5)
    assert sizes[1] / sizes[0] == pytest.approx(400 / 300) and found[3] == 1.0


UPPER_CASE = '{"upper_case": 1.0}'


@pytest.fixture
def tagged(corpus):
    """Return a corpus with a tag before each second source."""
    lines = (corpus / "train.a").read_text().splitlines()
    (corpus / "train.a").write_text(
        "".join(f"{'<Bt> ' * (n % 2)}{line}\n" for n, line in enumerate(lines))
    )
    return corpus


def opened(folder, **changes):
    recipe = parse_recipe(
        flags(folder, folder / "out", cache_dir=folder / "cache", source_tags="<Bt>", **changes)
    )
    texts = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(texts)
    return tokenize(texts, tokenizer, seed=0), tokenizer


def test_source_tags_are_one_token(tagged):
    corpus, tokenizer = opened(tagged)
    tag = tokenizer.convert_tokens_to_ids("<Bt>")
    assert tokenizer("<Bt> a b")["input_ids"] == [tag, *tokenizer("a b")["input_ids"]]
    assert [pair.source[0] == tag for pair in map(corpus.epoch(0).__getitem__, range(40))] == [
        False,
        True,
    ] * 20


def test_source_tags_are_not_augmented(tagged):
    corpus, tokenizer = opened(tagged, augment=UPPER_CASE)
    pairs = corpus.epoch(0)
    texts = [tokenizer.decode(pairs[number].source[:-1]) for number in range(40)]
    assert [text.startswith("<Bt>") for text in texts] == [False, True] * 20
    assert all(text.removeprefix("<Bt>").isupper() for text in texts)


@pytest.mark.parametrize("changes", [{"lora_rank": 2}, {"freeze": "embeddings"}])
def test_source_tags_need_embeddings_that_are_trained(corpus, changes):
    changes |= {"init_from": "model", "source_tags": "<BT>"}
    with pytest.raises(ValueError, match="`source_tags`"):
        parse_recipe(flags(corpus, corpus / "out", **changes))
