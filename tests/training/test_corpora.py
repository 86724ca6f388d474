"""Reading parallel text: every mistake of a user is named with its file and line."""

import datasets
import pytest

from vanilla_transformer.training.corpora import SentencePair, encode_pairs, read_dataset, read_text_files


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def test_line_n_is_paired_with_line_n(write):
    pairs = read_text_files(write("a.en", "one\n two \nthree"), write("a.de", "eins\nzwei\ndrei\n"))
    assert pairs == [SentencePair("one", "eins"), SentencePair("two", "zwei"), SentencePair("three", "drei")]


def test_windows_line_ends_and_byte_order_marks_are_not_text(write):
    pairs = read_text_files(write("a.en", b"\xef\xbb\xbfone\r\ntwo\r\n"), write("a.de", "eins\nzwei\n"))
    assert pairs == [SentencePair("one", "eins"), SentencePair("two", "zwei")]


def test_only_line_feeds_end_a_line(write):
    assert len(read_text_files(write("a.en", "one\x0bmore\u2028more\n"), write("a.de", "eins\n"))) == 1


def test_lines_blank_on_both_sides_are_left_out(write):
    assert len(read_text_files(write("a.en", "one\n\ntwo\n"), write("a.de", "eins\n\nzwei\n"))) == 2


def test_a_missing_file_is_named(write, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file .*nowhere.en"):
        read_text_files(tmp_path / "nowhere.en", write("a.de", "eins\n"))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_named(write, content):
    with pytest.raises(ValueError, match="a.en is empty"):
        read_text_files(write("a.en", content), write("a.de", "eins\n"))


def test_different_numbers_of_lines_are_counted(write):
    with pytest.raises(ValueError, match="got 2 in .*a.en and 1 in .*a.de"):
        read_text_files(write("a.en", "one\ntwo\n"), write("a.de", "eins\n"))


def test_bytes_that_are_not_utf8_are_named_with_their_line(write):
    with pytest.raises(ValueError, match="a.de must be UTF-8, but line 2 has the byte 0xe4"):
        read_text_files(write("a.en", "one\ntwo\n"), write("a.de", b"eins\n\xe4pfel\n"))


def test_a_line_without_its_translation_is_named(write):
    with pytest.raises(ValueError, match="Line 2 of .*a.de is blank"):
        read_text_files(write("a.en", "one\ntwo\nthree\n"), write("a.de", "eins\n\ndrei\n"))


@pytest.fixture
def dataset(tmp_path):
    rows = {"translation": [{"en": "one", "de": "eins"}, {"en": "two ", "de": " zwei"}, {"en": "", "de": "drei"}]}
    folder = tmp_path / "dataset"
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(folder)
    return str(folder)


def test_a_saved_dataset_is_read(dataset):
    assert read_dataset(dataset, "train", "en", "de") == [SentencePair("one", "eins"), SentencePair("two", "zwei")]


def test_a_missing_split_or_language_is_named_with_those_there_are(dataset):
    with pytest.raises(ValueError, match="split 'test', it has 'train'"):
        read_dataset(dataset, "test", "en", "de")
    with pytest.raises(ValueError, match="no language 'fr', it has 'en', 'de'"):
        read_dataset(dataset, "train", "en", "fr")


def test_a_dataset_without_translations_is_refused(tmp_path):
    folder = tmp_path / "dataset"
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["one"]})}).save_to_disk(folder)
    with pytest.raises(ValueError, match="column 'translation', it has 'text'"):
        read_dataset(str(folder), "train", "en", "de")


def test_both_sides_end_with_eos(tiny_tokenizer):
    (pair,) = encode_pairs(tiny_tokenizer, [SentencePair("a b", "c")])
    assert pair.source[-1] == pair.target[-1] == tiny_tokenizer.eos_token_id
    assert pair.source.count(tiny_tokenizer.eos_token_id) == 1
