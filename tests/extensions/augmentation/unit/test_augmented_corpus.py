"""Augmented and segmented corpora change in each epoch, and are the same in the same epoch."""

import json

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.extensions.augmentation import augmented_corpus, epoch_cache
from vanilla_transformer.training.recipe import parse_recipe

BOTH = '{"inline_terms": 0.3, "placeholders": 0.5}'


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    write_demo_corpus(folder, train=200, validation=5, test=5)
    for name in ("train", "validation"):
        (folder / f"{name}.en").rename(folder / f"{name}.a")
        (folder / f"{name}.de").rename(folder / f"{name}.b")
    return folder


def opened(texts, **changes):
    options = {"cache_dir": texts / "cache", "augment": BOTH, "max_tokens": 400}
    recipe = parse_recipe(flags(texts, texts / "out", **options | changes))
    loaded = load_texts(recipe.data)
    tokenizer = load_or_train_tokenizer(loaded)
    return tokenize(loaded, tokenizer, seed=0), tokenizer


def ids(pairs):
    return [tuple(pairs[number]) for number in range(len(pairs))]


def decoded(tokenizer, pairs):
    rows = []
    for source, target in pairs:
        texts = tokenizer.decode([*source[:-1]]), tokenizer.decode([*target[:-1]])
        rows.append(texts)
    return rows


def with_tokens(corpus, pairs):
    rows = corpus.texts.select(pairs.rows)
    sources = enumerate(rows["source"])
    return [number for number, text in sources if "<term>" in text or "<ph" in text]


DROPOUT = {"augment": None, "bpe_dropout": 0.5}


@pytest.mark.parametrize("changes", [{}, DROPOUT])
def test_epochs_depend_on_their_number(texts, changes):
    one, _ = opened(texts, **changes)
    other, _ = opened(texts, **changes)
    first, second = ids(one.epoch(0)), ids(one.epoch(1))
    assert first != second
    assert len(first) == len(second) == 200
    assert ids(other.epoch(1)) == second  # without having been at the first
    assert ids(one.epoch(0)) == first


CHANGED = [(DROPOUT, ["dropout"]), ({}, ["augmented"])]
CHANGED += [({"bpe_dropout": 0.5}, ["augmented", "dropout"])]


@pytest.mark.parametrize(("changes", "kinds"), CHANGED)
def test_one_process_changes_many_pairs_of_an_epoch(texts, tmp_path, monkeypatch, changes, kinds):
    options = changes | {"cache_dir": tmp_path}
    few = [ids(opened(texts, **options)[0].epoch(number)) for number in (3, 4)]
    work, encode_texts = [], epoch_cache.encode_texts

    def note_work(*arguments, **keywords):
        work.append(arguments)
        return encode_texts(*arguments, **keywords)

    monkeypatch.setattr(epoch_cache, "encode_texts", note_work)
    monkeypatch.setattr(epoch_cache, "choose_num_proc", lambda rows: 2)
    processes = [opened(texts, **options)[0] for _ in range(2)]
    for number, expected in zip((3, 4), few, strict=True):
        assert [ids(corpus.epoch(number)) for corpus in processes] == [expected, expected]
        entries = cached_epochs(tmp_path)
        assert [entry.name.split("-")[0] for entry in entries] == kinds
        assert all((entry / "encoded.arrow").is_file() for entry in entries)
    assert len(work) == 2 * len(kinds)  # one for each epoch


def cached_epochs(cache):
    entries = [*cache.glob("augmented-*"), *cache.glob("dropout-*")]
    return [path for path in entries if path.is_dir()]


# The first ones change the same rows, all.
OTHERS = [{"augment": '{"upper_case": 1}'}, {"augment": '{"title_case": 1}'}, {}]
OTHERS += [{"max_tokens": 300}, {"source_tags": "<Bt>"}]
OTHERS += [DROPOUT, DROPOUT | {"bpe_dropout": 0.4}, DROPOUT | {"max_tokens": 300}]


def test_other_changed_epochs_are_other_entries(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(epoch_cache, "choose_num_proc", lambda rows: 2)
    for changes in OTHERS:
        corpus, _ = opened(texts, **changes | {"cache_dir": tmp_path})
        assert len(corpus.epoch(0)) == 200
    assert len(cached_epochs(tmp_path)) == len(OTHERS)
    assert len(corpus.derive(corpus.plain.epoch(0)[:100], 0)) == 100


def test_augmented_corpus_without_a_drawn_pair_is_the_plain_one(texts):
    corpus, _ = opened(texts, augment='{"emoji": 0.000000001}')
    assert ids(corpus.epoch(0)) == ids(corpus.plain.epoch(0))


def test_augmentations_are_drawn_alike_in_parts(texts, monkeypatch):
    whole, _ = opened(texts)
    expected = ids(whole.epoch(1))
    monkeypatch.setattr(augmented_corpus, "_DRAWN_TOGETHER", 7)
    parts, _ = opened(texts)
    assert ids(parts.epoch(1)) == expected


def test_bpe_dropout_corpus_keeps_the_text(texts):
    corpus, tokenizer = opened(texts, **DROPOUT)
    plain, segmented = corpus.plain.epoch(0), corpus.epoch(3)
    assert len(segmented) == len(plain)
    assert segmented.source_lengths.sum() > plain.source_lengths.sum()
    assert decoded(tokenizer, segmented) == decoded(tokenizer, plain)


def test_bpe_dropout_corpus_respects_max_tokens(texts):
    limit = int(opened(texts, augment=None)[0].epoch(0).target_lengths.max())
    corpus, _ = opened(texts, **DROPOUT | {"bpe_dropout": 0.9, "max_tokens": limit})
    assert corpus.epoch(0).target_lengths.max() <= limit


def test_augmented_corpus_changes_its_share_and_keeps_the_rest(texts):
    corpus, _ = opened(texts, augment='{"inline_terms": 0.3}')
    plain = ids(corpus.plain.epoch(0))
    pairs = corpus.epoch(0)
    changed = with_tokens(corpus, pairs)
    assert 30 < len(changed) < 80
    for number, pair in enumerate(ids(pairs)):
        assert (pair != plain[number]) == (number in changed)


def test_augmented_corpus_texts_are_the_text_of_its_pairs(texts):
    corpus, tokenizer = opened(texts)
    pairs = corpus.epoch(2)
    rows = corpus.texts.select(pairs.rows)
    decoded_pairs, lengths = decoded(tokenizer, pairs), pairs.source_lengths.tolist()
    rows = zip(rows["source"], rows["target"], strict=True)
    for (source, target), (text, expected) in zip(decoded_pairs, rows, strict=True):
        assert source.replace(" ", "") == text.replace(" ", "")
        assert target == expected
    assert lengths == [len(source) for source, _ in ids(pairs)]


def test_augmented_corpus_keeps_pairs_that_would_become_too_long(texts):
    corpus, _ = opened(texts)
    plain = corpus.plain.epoch(0)
    limit = int(max(plain.source_lengths.max(), plain.target_lengths.max()))
    assert corpus.epoch(0).source_lengths.max() > limit
    bounded, _ = opened(texts, max_tokens=limit)
    assert bounded.epoch(0).source_lengths.max() <= limit


def test_augmented_corpus_is_segmented_by_bpe_dropout(texts):
    corpus, tokenizer = opened(texts, bpe_dropout=0.3)
    pairs = corpus.epoch(1)
    changed = with_tokens(corpus, pairs)
    whole = {*map(tokenizer.convert_tokens_to_ids, tokenizer.get_added_vocab())}
    assert changed
    for number in changed:
        assert whole & set(pairs[number].source)


def test_augmented_corpus_perturbs_pairs_before_it_inserts_tokens(texts):
    shares = {"placeholders": 0.5, "inline_terms": 0.3, "upper_case": 0.3}
    changes = json.dumps(shares | {"typos": 0.3, "noise_pairs": 0.1})
    corpus, _ = opened(texts, augment=changes)
    pairs, plain = corpus.epoch(0), corpus.plain.epoch(0)
    rows = corpus.texts.select(pairs.rows)
    sources, targets = rows["source"], rows["target"]
    before = corpus.plain.texts.select(plain.rows)["source"]
    upper = [text for text, other in zip(sources, before, strict=True) if text == other.upper()]
    assert 20 < len(upper) < 80
    noise = [text for text, target in zip(sources, targets, strict=True) if text == target]
    assert 10 <= len(noise) < 40
    marked = [text for text in sources if "<" in text]
    assert marked
    for text in marked:
        assert "<PH" not in text
        assert "<TERM" not in text
    again, _ = opened(texts, augment=changes)
    assert ids(corpus.epoch(0)) == ids(again.epoch(0))


PHRASES = {"augment": '{"phrases": 0.1}', "train_alignments": "agreement"}
ALL_PHRASES = PHRASES | {"augment": '{"phrases": 1}'}


def added(corpus, epoch):
    """Return the texts of the phrases of an epoch and the row of the sentence of each, in this
    order.
    """
    pairs = corpus.epoch(epoch)
    rows = corpus.texts.select(pairs.rows[len(corpus.plain.epoch(epoch)) :])
    return [*zip(rows["source"], rows["target"], strict=True)]


@pytest.mark.sweep
def test_augmented_corpus_adds_phrases_beside_its_pairs(texts):
    corpus, tokenizer = opened(texts, **PHRASES)
    plain = ids(corpus.plain.epoch(0))
    counts = []
    for epoch in range(10):
        pairs = corpus.epoch(epoch)
        assert ids(pairs)[: len(plain)] == plain
        phrases = added(corpus, epoch)
        assert decoded(tokenizer, pairs[len(plain) :]) == phrases
        counts.append(len(phrases))
    all_sentences, _ = opened(texts, **ALL_PHRASES)
    expected = 0.1 * len(added(all_sentences, 0))  # others have no phrase
    assert expected * 0.8 < sum(counts) / 10 < expected * 1.2
    assert len({*added(corpus, 0)} & {*added(corpus, 1)}) < counts[0] / 2
    again, _ = opened(texts, **PHRASES)
    assert added(again, 1) == added(corpus, 1)  # without having been at the first


def test_augmented_corpus_adds_text_of_its_sentences(texts):
    corpus, _ = opened(texts, **ALL_PHRASES)
    rows = corpus.plain.texts[:]
    sentences = [*zip(rows["source"], rows["target"], strict=True)]
    phrases = added(corpus, 0)
    assert len(phrases) > 120
    capitals = 0
    for source, target in phrases:
        assert 2 <= max(len(source.split()), len(target.split())) <= 7
        assert not (source + target).endswith(".")
        assert any(
            source[1:] in whole_source and target[1:] in whole_target
            for whole_source, whole_target in sentences
        )
        capitals += source[0].isupper()
    assert 0.5 < capitals / len(phrases) < 0.9


def test_augmented_corpus_augments_phrases_as_sentences(texts):
    changes = PHRASES | {"augment": '{"phrases": 1, "upper_case": 0.5}'}
    corpus, _ = opened(texts, **changes)
    phrases = added(corpus, 0)
    upper = 0
    for source, target in phrases:
        upper += source.isupper() and target.isupper()
    assert 0.4 < upper / len(phrases) < 0.6
    without, _ = opened(texts, augment='{"upper_case": 0.5}')
    assert ids(corpus.epoch(0))[:200] == ids(without.epoch(0))


def test_augmented_corpus_says_that_no_sentence_has_a_phrase(texts, tmp_path, caplog):
    for end in "ab":
        lines = (texts / f"train.{end}").read_text().splitlines()
        joined = ""
        for line in lines:
            joined += line.replace(" ", "") + "\n"
        (tmp_path / f"train.{end}").write_text(joined)
        (tmp_path / f"validation.{end}").write_text(joined)
    corpus, _ = opened(tmp_path, **PHRASES)
    assert len(corpus.epoch(0)) == 200
    (message,) = [line for line in caplog.messages if "phrases" in line]
    assert message.startswith("`phrases` of `augment` adds nothing to epoch 0: none of ")


def test_augmented_corpus_needs_terms_to_annotate(corpus):
    message = "^`inline_terms` of `augment` must be given for text whose words have"
    with pytest.raises(ValueError, match=message):
        opened(corpus, augment='{"inline_terms": 0.3}')
