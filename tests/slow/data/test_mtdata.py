"""Corpora by identifiers of mtdata, from a local file.

At its first import, mtdata indexes all corpora it knows.
"""

import subprocess
import sys

import datasets
import pytest

from vanilla_transformer.data.readers import CorpusSpec, SentencePair, open_corpus, read_pairs

LANGUAGES = {"source_language": "en", "target_language": "de"}
PAIRS = [SentencePair("one", "eins"), SentencePair("two", "zwei")]
IDENTIFIER = "Statmt-numbers-1-deu-eng"


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def read_corpus(name, **languages):
        with open_corpus(CorpusSpec(dataset=name, **(LANGUAGES | languages))) as corpus:
            return list(read_pairs(corpus))

    return read_corpus


@pytest.fixture(autouse=True)
def _mtdata(tmp_path, monkeypatch):
    """Write the index of mtdata with one corpus, and its file, into its cache."""
    cache = tmp_path / "mtdata"
    cache.mkdir()
    monkeypatch.setenv("MTDATA", str(cache))
    script = f"""
import pickle
from mtdata import cached_index_file
from mtdata.cache import Cache
from mtdata.entry import Entry
from mtdata.index import Index
index = Index.__new__(Index)
index.entries, index.papers, index.ref_db, index.version = {{}}, {{}}, None, "1"
entry = Entry({IDENTIFIER!r}, url="https://example.org/numbers.tsv", ext="tsv")
index.add_entry(entry)
cached_index_file.write_bytes(pickle.dumps(index))
cache = Cache({str(cache)!r})
path = cache.get_local_path(entry.url, filename=entry.filename, fix_missing=False)
path.parent.mkdir(parents=True)
path.write_text("eins\\tone\\nzwei\\ttwo\\n")
cache.get_flag_file(path).touch()
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_download_reads_mtdata_in_both_directions(read):
    assert read(f"mtdata:{IDENTIFIER}") == PAIRS
    swapped = read(f"mtdata:{IDENTIFIER}", source_language="de", target_language="en")
    assert swapped == [SentencePair(target, source) for source, target in PAIRS]


def test_download_names_a_mistake_with_mtdata(read):
    with pytest.raises(
        ValueError, match="mtdata:Statmt-none-1-deu-eng: mtdata must have the corpus"
    ):
        read("mtdata:Statmt-none-1-deu-eng")
    with pytest.raises(ValueError, match="it must be in en and fr, but it is in deu and eng"):
        read(f"mtdata:{IDENTIFIER}", target_language="fr")


def test_download_reads_no_index_that_others_may_write(read, tmp_path):
    cache = tmp_path / "mtdata"
    cache.chmod(0o777)
    with pytest.raises(
        OSError, match=f"other users can write {cache} .* MTDATA can name another folder"
    ):
        read(f"mtdata:{IDENTIFIER}")
