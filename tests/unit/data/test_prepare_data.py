"""From a recipe to pairs: mixes, cleaning over all of them, and a cache that knows when it holds
the answer.
"""

import hashlib
import io
import os
from pathlib import Path

import datasets
import pytest

from vanilla_transformer.data import cached_texts
from vanilla_transformer.data import prepare_data as preparation
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.readers import SentencePair, read_text_files
from vanilla_transformer.data.tokenized_corpus import encode_pairs
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer, train_tokenizer
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences


@pytest.fixture
def recipe(tmp_path):
    """Two corpora, one of them packed, with a line that they share, and validation text."""
    (tmp_path / "a.en").write_text("one\ntwo\nthree three\n")
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei drei\n")
    (tmp_path / "b.tsv").write_text("four\tvier\none\teins\none\tein\n")
    (tmp_path / "v.en").write_text("one\nfive\n")
    (tmp_path / "v.de").write_text("eins\nfünf\n")
    (tmp_path / "cache").mkdir()

    def make(**changes):
        files = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
        corpora = [files, {"file": str(tmp_path / "b.tsv")}]
        options = {"corpora": corpora, "cache_dir": str(tmp_path / "cache")}
        options["validation_source"] = str(tmp_path / "v.en")
        options["validation_target"] = str(tmp_path / "v.de")
        return DataArguments(**options | changes)

    return make


@pytest.fixture
def prepare(tiny_tokenizer, monkeypatch):
    """Return a function that loads and tokenizes, and reports whether it has tokenized."""

    def call(data, tokenizer=tiny_tokenizer, cache_dir=None):
        calls = []

        def encode(tokenizer, texts, as_target=False):
            calls.append(len(texts))
            return encode_sentences(tokenizer, texts, as_target)

        with monkeypatch.context() as patch:
            patch.setattr(preparation, "encode_sentences", encode)
            corpus = tokenize(load_texts(data, cache_dir), tokenizer, seed=0)
        return corpus, bool(calls)

    return call


def test_tokenize_yields_the_pairs_of_the_files(recipe, tiny_tokenizer, tmp_path):
    files = {"train_source": str(tmp_path / "a.en"), "train_target": str(tmp_path / "a.de")}
    corpus = tokenize(load_texts(recipe(corpora=None, **files)), tiny_tokenizer, seed=0)
    pairs = read_text_files(tmp_path / "a.en", tmp_path / "a.de")
    expected = encode_pairs(tiny_tokenizer, pairs)
    assert list(corpus.epoch(0)) == expected
    assert corpus.max_source_length == max(len(pair.source) for pair in expected)


def texts(corpus, number=0):
    """Target sentences of an epoch."""
    rows = corpus.epoch(number).rows
    return corpus.texts.select(rows)["target"][:]


def test_tokenize_mixes_corpora_by_weight(recipe, prepare):
    data = recipe()
    data.corpora[1]["weight"] = 2
    twice = ["vier", "vier", "eins", "eins", "ein", "ein"]
    assert texts(prepare(data)[0]) == ["eins", "zwei", "drei drei", *twice]


def test_load_texts_drops_duplicates_over_all_corpora(recipe, prepare):
    corpus, _ = prepare(recipe(drop=["duplicates"]))
    assert texts(corpus) == ["eins", "zwei", "drei drei", "vier", "ein"]
    assert corpus.report.dropped == {"duplicates": 1}
    assert corpus.report.examples == {"duplicates": [["one", "eins"]]}
    assert corpus.texts["corpus"][:] == [0, 0, 0, 1, 1]


def test_tokenize_uses_the_cache_at_a_second_start(recipe, prepare):
    data = recipe(drop=["duplicates"], max_length=8)
    first, tokenized = prepare(data)
    second, again = prepare(data)
    assert tokenized and not again
    assert list(second.epoch(0)) == list(first.epoch(0))
    assert second.to_dict() == first.to_dict() and str(second) == str(first)
    dropped = first.report.dropped
    assert dropped["duplicates"] == 1 and dropped["max_length"] > 0
    other = recipe(drop=["duplicates"])  # lengths and weights decide about tokenized pairs
    other.corpora[0]["weight"] = 3.0
    assert not prepare(other)[1]


@pytest.fixture
def hashed(monkeypatch):
    """Return the files that are hashed."""
    paths, file_digest = [], hashlib.file_digest

    def record_digest(file, name):
        paths.append(Path(file.name))
        return file_digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", record_digest)
    return paths


def test_load_texts_reads_no_text_at_a_second_start(recipe, prepare, tmp_path, hashed):
    """Verification reads all: the text and what the cache has of it."""
    prepare(recipe())
    sources = [tmp_path / name for name in ("a.en", "a.de", "b.tsv")]
    assert hashed[:3] == sources
    os.utime(tmp_path / "a.de", (0, 0))
    for expected in ([tmp_path / "a.de"], []):
        hashed.clear()
        prepare(recipe())
        assert hashed == expected
    prepare(recipe(verify_cache=True))
    names = {"a.en", "a.de", "b.tsv", "texts.arrow", "encoded.arrow", "report.json"}
    assert {path.name for path in hashed} == names


def test_load_texts_verifies_the_cache(recipe, prepare, tmp_path, caplog, monkeypatch):
    """The first process of a node does it for all."""
    prepare(recipe())
    (path,) = (tmp_path / "cache").glob("texts-*/texts.arrow")
    facts, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"eins", b"uno!"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    monkeypatch.setenv("LOCAL_RANK", "1")
    for changes in ({}, {"verify_cache": True}):
        load_texts(recipe(**changes))
    assert not caplog.messages
    monkeypatch.setenv("LOCAL_RANK", "0")
    load_texts(recipe(verify_cache=True))
    assert "(texts.arrow is damaged). It is built again." in caplog.text
    assert path.read_bytes() == content


def test_tokenize_cache_depends_on_all_it_holds(recipe, prepare, tmp_path):
    prepare(recipe())
    os.utime(tmp_path / "a.en", (0, 0))
    (tmp_path / "b.tsv").rename(tmp_path / "c.tsv")
    data = recipe()
    data.corpora[1]["file"] = str(tmp_path / "c.tsv")
    assert not prepare(data)[1]
    assert prepare(data, train_tokenizer(["a b c"], vocab_size=260))[1]
    assert prepare(data.model_copy(update={"drop": ["duplicates"]}))[1]
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n")
    corpus, tokenized = prepare(data)
    assert tokenized and "three" in corpus.texts["source"][:]


def test_tokenize_starts_over_when_interrupted(recipe, prepare, tiny_tokenizer, monkeypatch):
    def fail(tokenizer, sentences):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(preparation, "encode_sentences", fail)
        tokenize(load_texts(recipe()), tiny_tokenizer, seed=0)
    corpus, tokenized = prepare(recipe())
    assert tokenized and len(corpus.epoch(0)) == 6


def test_load_texts_identifies_a_dataset_by_content(tmp_path, prepare):
    def save(folder, word):
        rows = {"translation": [{"en": "one", "de": word}, {"en": "", "de": "zwei"}]}
        split = datasets.Dataset.from_dict(rows)
        splits = dict.fromkeys(("train", "validation", "test"), split)
        datasets.DatasetDict(splits).save_to_disk(tmp_path / folder)
        languages = {"source_language": "en", "target_language": "de"}
        cache = str(tmp_path / "cache")
        return DataArguments(dataset=str(tmp_path / folder), cache_dir=cache, **languages)

    corpus, tokenized = prepare(save("first", "eins"))
    assert tokenized and corpus.report.dropped == {"empty": 1}
    assert set(corpus.overlaps) == {"validation", "test"}
    assert corpus.overlaps["test"].both == 1
    assert not prepare(save("second", "eins"))[1]
    assert prepare(save("third", "ein"))[1]


def test_load_texts_knows_a_dataset_by_content(tmp_path, prepare, monkeypatch):
    def start(word):
        rows = datasets.Dataset.from_list([{"source": "one", "target": word}])
        monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": rows})
        return prepare(DataArguments(corpora=[{"dataset": "hub"}], cache_dir=str(tmp_path)))

    assert [start(word)[1] for word in ("eins", "eins", "ein")] == [True, False, True]
    assert texts(start("ein")[0]) == ["ein"]


def test_tokenize_counts_the_overlap_with_held_out_text(recipe, prepare, tmp_path):
    def counts(corpus):
        numbers = {}
        for name, overlap in corpus.overlaps.items():
            numbers[name] = (overlap.sources, overlap.targets, overlap.both)
        return numbers

    assert counts(prepare(recipe())[0]) == {"validation": (1, 1, 1)}
    (tmp_path / "v.de").write_text("uno\nzwei\n")
    tests = {"test_source": str(tmp_path / "a.en"), "test_target": str(tmp_path / "a.de")}
    corpus, tokenized = prepare(recipe(**tests))
    assert counts(corpus) == {"validation": (1, 1, 0), "test": (3, 3, 3)} and not tokenized


def test_texts_sentences_are_cleaned_and_of_both_sides(recipe):
    cleaned = ["one", "eins", "two", "zwei", "three three", "drei drei"]
    cleaned += ["four", "vier", "one", "ein"]
    assert list(load_texts(recipe(drop=["duplicates"])).sentences()) == cleaned


def test_load_texts_caches_beside_datasets(recipe, prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    prepare(recipe(cache_dir=None))
    assert list((tmp_path / "hub" / "vanilla_transformer").glob("encoded-*"))
    prepare(recipe(), cache_dir=tmp_path / "named")
    assert list((tmp_path / "named").glob("encoded-*"))


def test_load_texts_names_an_error_and_caches_nothing(recipe, prepare, tmp_path):
    (tmp_path / "a.de").write_bytes(b"eins\n\xe4\ndrei\n")
    with pytest.raises(ValueError, match="a.de must be UTF-8, but line 2 has the byte 0xe4"):
        prepare(recipe())
    folders = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert folders == ["hashes"]
    corpus, _ = prepare(recipe(drop=["invalid_unicode"]))
    assert corpus.report.dropped == {"invalid_unicode": 1}
    data = recipe()
    data.corpora[0]["source"] = "nowhere.en"
    with pytest.raises(FileNotFoundError, match="There is no file nowhere.en"):
        prepare(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"one\teins\ntwo\t\xe4\n",
            r"v.tsv must be UTF-8, but line 2 has the byte 0xe4 .* -t utf-8`\.$",
        ),
        (
            b"one\teins\ntwo\t\n",
            r"Line 2 of .*v.tsv is blank, but its translation is not. Mend or delete both\.$",
        ),
    ],
    ids=["invalid UTF-8", "blank side"],
)
def test_load_texts_refuses_mistakes_of_held_out_text(recipe, tmp_path, text, message):
    (tmp_path / "v.tsv").write_bytes(text)
    rows = [line.split(b"\t") for line in text.splitlines()]
    (tmp_path / "v.en").write_bytes(b"".join(source + b"\n" for source, _ in rows))
    (tmp_path / "v.de").write_bytes(b"".join(target + b"\n" for _, target in rows))
    corpora = {"validation": [{"file": str(tmp_path / "v.tsv")}]}
    corpora |= {"validation_source": None, "validation_target": None}
    with pytest.raises(ValueError, match=message):
        load_texts(recipe(drop=["empty", "invalid_unicode"], **corpora))
    with pytest.raises(ValueError, match=message.replace("v.tsv", "v.de")):
        load_texts(recipe(drop=["empty", "invalid_unicode"]))


def test_load_texts_refuses_cleaning_that_leaves_nothing(recipe, prepare, tmp_path):
    (tmp_path / "same.tsv").write_text("a\ta\n")
    data = recipe(corpora=[{"file": str(tmp_path / "same.tsv")}], drop=["identical"])
    with pytest.raises(ValueError, match="got none. 0 of 1 pairs kept"):
        prepare(data)


def test_load_texts_keeps_the_order(recipe, prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(cached_texts, "ROWS_PER_BATCH", 4)
    pairs = [f"s{number % 8}\tt{number % 8}" for number in range(19)]
    (tmp_path / "many.tsv").write_text("\n".join(pairs) + "\n")
    data = recipe(corpora=[{"file": str(tmp_path / "many.tsv")}])
    assert texts(prepare(data)[0]) == [pair.split("\t")[1] for pair in pairs]
    corpus, _ = prepare(recipe(corpora=data.corpora, drop=["duplicates"]))
    assert texts(corpus) == [f"t{number}" for number in range(8)]
    assert corpus.report.dropped == {"duplicates": 11}


def test_load_texts_reads_held_out_pairs_of_files_or_dataset(recipe, tmp_path):
    texts = load_texts(recipe())
    assert texts.validation == [SentencePair("one", "eins"), SentencePair("five", "fünf")]
    assert texts.test == []
    assert load_texts(recipe(validation_source=None, validation_target=None)).validation == []
    training = datasets.Dataset.from_dict({"translation": [{"en": "one", "de": "eins"}]})
    datasets.DatasetDict({"train": training}).save_to_disk(tmp_path / "saved")
    dataset = {"dataset": str(tmp_path / "saved")}
    dataset |= {"source_language": "en", "target_language": "de"}
    assert len(load_texts(recipe(corpora=None, **dataset)).validation) == 2
    assert load_texts(recipe(corpora=None, **dataset)).test == []
    with pytest.raises(ValueError, match="must have a split 'validation', it has 'train'"):
        load_texts(DataArguments(**dataset))


def test_load_texts_opens_each_file_once(recipe, tiny_tokenizer, tmp_path, monkeypatch):
    opened, open_file = [], io.open

    def open_and_record(file, *options, **names):
        opened.append(str(file))
        return open_file(file, *options, **names)

    monkeypatch.setattr(io, "open", open_and_record)
    names = ("a.de", "a.en", "b.tsv", "v.de", "v.en")
    files = [str(tmp_path / name) for name in names]
    texts = load_texts(recipe(vocab_size=270))
    load_or_train_tokenizer(texts)
    tokenize(texts, tiny_tokenizer, seed=0).epoch(0)
    assert sorted(name for name in opened if name in files) == files
