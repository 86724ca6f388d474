"""The tokenizer of a run: trained once for all processes and starts, or loaded."""

import json

import pytest
from transformers import PreTrainedTokenizer

from tests.processes import Forked
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data import tokenizer_training as tokenizing
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.tokenizer_training import (
    hash_tokenizer,
    load_or_train_tokenizer,
    train_tokenizer,
)
from vanilla_transformer.text.languages import Direction, find_direction


@pytest.fixture
def recipe(corpus, tmp_path):
    def make(**changes):
        files = {"train_source": str(corpus / "train.a"), "train_target": str(corpus / "train.b")}
        return DataArguments(
            **files | {"vocab_size": 280, "cache_dir": str(tmp_path / "cache")} | changes
        )

    return make


@pytest.fixture
def prepare(monkeypatch):
    """Return a function that loads or trains a tokenizer, and reports whether it has trained."""
    train = tokenizing.train_tokenizer
    calls = []
    monkeypatch.setattr(
        tokenizing,
        "train_tokenizer",
        lambda texts, **options: calls.append(options) or train(texts, **options),
    )

    def call(data, *arguments, cache_dir=None):
        calls.clear()
        return load_or_train_tokenizer(load_texts(data, cache_dir), *arguments), bool(calls)

    return call


def test_load_or_train_tokenizer_uses_the_cache(recipe, prepare):
    (first, trained), (second, again) = (
        prepare(recipe(tokenizer_model="unigram")) for _ in range(2)
    )
    assert trained and not again
    assert type(second) is VanillaTransformerTokenizer
    assert second.backend_tokenizer.to_str() == first.backend_tokenizer.to_str()


def test_load_or_train_tokenizer_stores_the_direction_that_the_recipe_names(recipe, prepare):
    assert find_direction(prepare(recipe())[0]) == Direction()
    named = recipe(source_language="en", target_language="de")
    assert find_direction(prepare(named)[0]) == Direction("en", "de")


def test_load_or_train_tokenizer_caches_by_text_and_options(
    recipe, prepare, corpus, tmp_path, monkeypatch
):
    assert prepare(recipe())[1]
    assert not prepare(recipe(max_tokens=7, max_length=5))[1]
    assert prepare(recipe(vocab_size=270))[1]
    assert not prepare(recipe(vocabulary_sentences=9000))[1]
    assert prepare(recipe(vocabulary_sentences=9))[1]
    assert prepare(recipe(tokenizer_model="wordpiece"))[1]
    assert prepare(recipe(), cache_dir=tmp_path / "other")[1]
    text = (corpus / "train.a").read_text()
    (corpus / "train.a").write_text(text.replace("a", "o"))
    assert prepare(recipe())[1]
    (corpus / "train.a").write_text(text)
    assert not prepare(recipe())[1]
    monkeypatch.setattr(tokenizing.tokenizers, "__version__", "another")
    assert prepare(recipe())[1]


def test_load_or_train_tokenizer_loads_a_named_tokenizer(recipe, prepare, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path / "saved")
    named, trained = prepare(recipe(tokenizer=str(tmp_path / "saved")))
    assert not trained and hash_tokenizer(named) == hash_tokenizer(tiny_tokenizer)
    instead, _ = prepare(recipe(tokenizer="nowhere"), tmp_path / "saved")
    assert hash_tokenizer(instead) == hash_tokenizer(tiny_tokenizer)
    with pytest.raises(
        OSError, match="`tokenizer` must be a folder or a Hub name of one, got nowhere"
    ):
        prepare(recipe(tokenizer="nowhere"))


PROCESS = """
import json, os, sys, torch
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.data.tokenizer_training import check_same_on_all_processes, hash_data
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.machine.cores import process_state
rank, rendezvous, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
os.environ.update(RANK=sys.argv[1], LOCAL_RANK=sys.argv[1], WORLD_SIZE="2", MASTER_ADDR="localhost")
process_state()
texts = load_texts(DataArguments(**options))
tokenizer = load_or_train_tokenizer(texts)
check_same_on_all_processes(tokenizer, hash_data(texts))
print(hash_tokenizer(tokenizer))
options["train_source"] = options["train_target"] if rank else options["train_source"]  # a node with other files
texts = load_texts(DataArguments(**options))
for compared in (tokenizer, load_or_train_tokenizer(texts)):
    hashes = hash_data(texts) if compared is tokenizer else {}
    try:
        check_same_on_all_processes(compared, hashes)
    except ValueError as error:
        print(error)
"""


def test_load_or_train_tokenizer_is_shared_by_processes(recipe, tmp_path):
    options = json.dumps(vars(recipe(tokenizer_model="unigram")))
    processes = [
        Forked(["-c", PROCESS, rank, f"file://{tmp_path}/meeting", options]) for rank in (0, 1)
    ]
    lines, lines_of_second = (
        process.communicate(timeout=120)[0].splitlines() for process in processes
    )
    assert lines == lines_of_second
    for name, line in zip(("training text", "vocabulary"), lines[1:], strict=True):
        words = f"All processes must have the same {name}, but process 1 has another one than "
        assert line.startswith(words)
    assert len(list((tmp_path / "cache").glob("tokenizer-*[!k]"))) == 2


def test_hash_tokenizer_ignores_padding_and_truncation(tiny_tokenizer):
    key = hash_tokenizer(tiny_tokenizer)
    tiny_tokenizer(["a", "a b"], padding=True, truncation=True, max_length=2)
    assert hash_tokenizer(tiny_tokenizer) == key
    other = train_tokenizer(["a b c"], vocab_size=260)
    assert hash_tokenizer(other) != key


class Letters(PreTrainedTokenizer):
    """A tokenizer in Python, as some of transformers still are."""

    def __init__(self, letters="ab", **options):
        self.letters = letters
        super().__init__(eos_token="</s>", letters=letters, **options)

    @property
    def vocab_size(self):
        return len(self.letters)

    def get_vocab(self):
        numbers = {letter: number for number, letter in enumerate(self.letters)}
        return numbers | self.added_tokens_encoder

    def _tokenize(self, text):
        return list(text)

    def save_vocabulary(self, save_directory, filename_prefix=None):
        path = f"{save_directory}/letters.txt"
        with open(path, "w") as file:
            file.write(self.letters)
        return (path,)


def test_hash_tokenizer_hashes_the_files_of_a_slow_tokenizer():
    key = hash_tokenizer(Letters("ab"))
    assert hash_tokenizer(Letters("ab")) == key
    assert hash_tokenizer(Letters("abc")) != key
