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


def sources_of(pairs):
    return [pair.source for pair in pairs]


def targets_of(pairs):
    return [pair.target for pair in pairs]


def corpus(tokens, replaced=0, weights=(1, 1)):
    texts = datasets.Dataset.from_dict(TEXTS)
    pairs = EncodedPairs(TokenTable(datasets.Dataset.from_dict(ROWS)))
    plain = TokenizedCorpus(texts, pairs, [weights], 0, CleaningReport(), {})
    return TaggedCorpus(plain, tokens, replaced)


def test_tagged_corpus_begins_sources_with_the_tags_of_their_corpus():
    tagged = corpus([DirectionTokens((10, 20)), DirectionTokens((11, 21))])
    pairs = tagged.epoch(0)
    assert sources_of(pairs) == [[10, 20, 5, 6, 2], [11, 21, 2], [11, 21, 7, 2]]
    assert targets_of(pairs) == ROWS["labels"]
    assert pairs.source_lengths.tolist() == [5, 3, 4] and tagged.max_source_length == 5
    batch = pairs.table.pad(np.array([2, 0]), 0)
    assert batch["input_ids"].tolist() == [[11, 21, 7, 2, 0], [10, 20, 5, 6, 2]]


def test_tagged_corpus_replaces_the_languages_of_the_tokenizer():
    directions = [DirectionTokens((10,), (30,)), DirectionTokens((11,), (31,))]
    pairs = corpus(directions, replaced=1).epoch(0)
    assert sources_of(pairs) == [[10, 6, 2], [11], [11, 2]]
    assert targets_of(pairs) == [[30, 2], [31, 2], [31, 7, 2]]


def test_tagged_corpus_follows_the_weights_and_keeps_its_table():
    tagged = corpus([DirectionTokens((10,)), DirectionTokens((11,))], weights=(1, 2))
    first, second = tagged.epoch(0), tagged.epoch(1)
    assert [source[0] for source in sources_of(first)] == [10, 11, 11, 11, 11]
    assert first.table is second.table  # workers of a loader keep it
    copied = pickle.loads(pickle.dumps(first))
    assert list(copied) == list(first)


@pytest.fixture
def recipe(tmp_path):
    """English-German in both directions and a little English-French, with a zero-shot validation
    set.
    """
    (tmp_path / "a.en").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\nvier\n")
    (tmp_path / "b.tsv").write_text("five\tcinq\n")

    def make(**changes):
        german = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
        english = {"source_language": "en", "target_language": "de"}
        both = german | english | {"both_directions": True}
        french = {"file": str(tmp_path / "b.tsv")}
        french |= {"source_language": "en", "target_language": "fr"}
        validation = german | {"source_language": "de", "target_language": "fr"}
        options = {"corpora": [both, french], "validation": [validation], "vocab_size": 270}
        options["cache_dir"] = str(tmp_path / "cache")
        return DataArguments(**options | changes)

    return make


def read(data):
    texts = load_texts(data)
    tokenizer = load_or_train_tokenizer(texts)
    return texts, tokenizer, tokenize(texts, tokenizer, seed=0)


def test_tokenize_tags_several_target_languages(recipe):
    texts, tokenizer, mix = read(recipe())
    codes = {token: code for code, token in find_languages(tokenizer).targets.items()}
    pairs = []
    for pair in mix.epoch(0):
        source, target = tokenizer.decode(pair.source[1:-1]), tokenizer.decode(pair.target[:-1])
        pairs.append((codes[pair.source[0]], source, target))
    assert pairs[:2] == [("de", "one", "eins"), ("de", "two", "zwei")]
    assert pairs[4:6] == [("en", "eins", "one"), ("en", "zwei", "two")]
    assert pairs[8] == ("fr", "five", "cinq")
    assert mix.texts.select(mix.epoch(0).rows)["source"][4] == "eins"
    assert mix.max_source_length == max(map(len, sources_of(mix.epoch(0))))
    assert [held_out.direction for held_out in texts.validation_sets] == [Direction("de", "fr")]
    assert texts.validation[0] == ("one", "eins")


def tags_of(pairs):
    return [tuple(source[:2]) for source in sources_of(pairs)]


@pytest.mark.parametrize("changes", [{"bpe_dropout": 0.5}, {"augment": {"placeholders": 1.0}}])
def test_tokenize_tags_changed_text(recipe, changes):
    _, tokenizer, mix = read(recipe(language_tags="both", **changes))
    languages = find_languages(tokenizer)
    directions = [("en", "de")] * 4 + [("de", "en")] * 4 + [("en", "fr")]
    expected = [languages.tokens(direction).source for direction in directions]
    for epoch in range(2):
        assert tags_of(mix.epoch(epoch)) == expected
        assert tags_of(mix.epoch(epoch)) == expected


def test_tokenize_without_several_targets_has_no_tags(recipe):
    data = recipe()
    del data.corpora[1], data.corpora[0]["both_directions"]
    assert find_languages(read(data)[1]) is None
    data = data.model_copy(update={"language_tags": "target"})
    assert list(find_languages(read(data)[1]).targets) == ["de"]


def test_tokenize_samples_directions_by_temperature(recipe):
    _, tokenizer, mix = read(recipe(sampling_temperature=1e6))
    targets = find_languages(tokenizer).targets
    for epoch in range(2):
        tags = [source[0] for source in sources_of(mix.epoch(epoch))]
        assert [tags.count(targets[code]) for code in ("de", "en", "fr")] == [3, 3, 3]
    rows = mix.epoch(1).rows.tolist()
    assert mix.epoch(0).rows.tolist() != rows
    _, _, again = read(recipe(sampling_temperature=1e6))
    assert again.epoch(1).rows.tolist() == rows


def test_temperature_weights_share_by_direction():
    directions = ["en-de", "en-de", "en-fr", "en-it"]
    counts, weights = [300, 200, 50, 0], [1.0, 2.0, 2.0, 1.0]
    assert temperature_weights(counts, weights, directions, 1.0) == pytest.approx(weights)
    shared = temperature_weights(counts, weights, directions, 2.0)
    sizes = [weight * count for weight, count in zip(shared, counts, strict=True)]
    assert sum(sizes) == pytest.approx(800)
    assert (sizes[0] + sizes[1]) / sizes[2] == pytest.approx((700 / 100) ** 0.5)
    assert sizes[1] / sizes[0] == pytest.approx(400 / 300) and shared[3] == 1.0


UPPER_CASE = '{"upper_case": 1.0}'


@pytest.fixture
def tagged(corpus):
    """Return a corpus with a tag before each second source."""
    path = corpus / "train.a"
    lines = path.read_text().splitlines()
    lines[1::2] = [f"<Bt> {line}" for line in lines[1::2]]
    path.write_text("\n".join(lines) + "\n")
    return corpus


def opened(folder, **changes):
    changes |= {"cache_dir": folder / "cache", "source_tags": "<Bt>"}
    texts = load_texts(parse_recipe(flags(folder, folder / "out", **changes)).data)
    tokenizer = load_or_train_tokenizer(texts)
    return tokenize(texts, tokenizer, seed=0), tokenizer


def test_source_tags_are_one_token(tagged):
    corpus, tokenizer = opened(tagged)
    tag = tokenizer.convert_tokens_to_ids("<Bt>")
    assert tokenizer("<Bt> a b")["input_ids"] == [tag, *tokenizer("a b")["input_ids"]]
    pairs = corpus.epoch(0)
    is_tagged = [pairs[number].source[0] == tag for number in range(40)]
    assert is_tagged == [False, True] * 20


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
