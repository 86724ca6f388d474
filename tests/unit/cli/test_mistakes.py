"""Mistakes in data and recipes end with one line that says what to do, and write nothing."""

import json
import re

import accelerate.tracking
import pyarrow as pa
import pyarrow.parquet
import pytest
from accelerate.state import AcceleratorState
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.cli import main
from vanilla_transformer.cli.flags import refuse_file_names

TINY = {"vocab_size": 280, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "max_steps": 1}
TINY |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
TINY |= {f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")}
LANGUAGES = {"source_language": "en", "target_language": "de"}


@pytest.fixture
def refusal(tmp_path, capsys):
    """Return a function that runs `train` with one mistake and returns its error line."""
    (tmp_path / "a.en").write_text("a b c\nb c d e\nc d\n" * 4)
    (tmp_path / "a.de").write_text("A B C\nB C D E\nC D\n" * 4)

    def refusal(recipe=None, **changes):
        files = {"train_source": tmp_path / "a.en", "train_target": tmp_path / "a.de"}
        options = files | {"output_dir": tmp_path / "out", "cache_dir": tmp_path / "cache"} | TINY | changes
        flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
        words = flags if recipe is None else [recipe, *(flag for flag in flags if "vocab_size" not in flag)]
        AcceleratorState._reset_state(reset_partial_state=True)
        assert main(["train", *map(str, words)]) == 2
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and not (tmp_path / "out").exists()
        return errors[0]

    yield refusal
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(
    ("flag", "value", "text"),
    [
        ("d_model", "many", "`d_model` must be an integer from 1 to 65,536, got 'many'"),
        ("tokenizer_model", "spm", "`tokenizer_model` must be one of 'bpe', .*, got 'spm'"),
        ("max_tokens", "-3", "`max_tokens` must be an integer from 1 to 10,000,000, got -3"),
        ("max_tokens", "2", "`max_tokens` must be at least the length of the longest sentence, got max_tokens=2"),
        ("max_length", "1", "Cleaning must leave some pairs of the training text, got none. 0 of 12 pairs kept"),
        ("learning_rate_scale", "nan", "`learning_rate_scale` must be a number of 0 or more, got nan"),
        ("learning_rate_scale", "inf", "`learning_rate_scale` must be a number of 0 or more, got inf"),
        ("seed", str(2**32), "`seed` must be an integer from 0 to 4,294,967,295, got 4294967296"),
        ("seed", "-1", "`seed` must be an integer from 0 to 4,294,967,295, got -1"),
        ("report_to", "nonsense", "`report_to` must name trackers of all, .*wandb.*, got 'nonsense'"),
        (
            "gradient_accumulation_steps",
            "13",
            "for each of the 13 batches .* got 12 pairs. Start fewer processes",
        ),
        ("fsdp", "true", "`fsdp` needs several processes, got one that was not launched by torchrun"),
    ],
)
def test_train_names_an_invalid_value(refusal, flag, value, text, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert_matches(text, refusal(**{flag: value}))


def test_train_refuses_text_without_a_pair_to_train_on(refusal, tmp_path):
    line = refusal(train_target=tmp_path / "a.en", drop="identical,markup")
    assert_matches("Cleaning must leave some pairs of the training text, got none. 0 of 12 pairs kept", line)


def assert_matches(text, line):
    assert re.search(text, line), line


def test_train_names_a_value_without_its_flag(capsys):
    assert main(["train", "small", "--seed", "1", "stray"]) == 2
    text = "This command takes [RECIPE], got 'small' 'stray'. See --help."
    assert capsys.readouterr().err == f"error: {text}\n"


def test_train_names_a_tracker_that_is_not_installed(refusal, monkeypatch):
    monkeypatch.setattr(accelerate.tracking, "get_available_trackers", lambda: [])
    assert "`report_to` names tensorboard, which must be installed and is not" in refusal(report_to="tensorboard")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        (
            "a.tsv",
            b"a\tb\tc\n",
            "Line 1 of .*a.tsv must have two columns, source TAB target, besides columns of numbers, it has 3",
        ),
        ("a.tsv.gz", b"plain", "Cannot read .*a.tsv.gz: the .gz file is truncated or corrupt"),
        ("a.tsv", None, "There is no file .*a.tsv"),  # a folder
        ("a.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a"}\n', "Line 2 of .*a.jsonl must have a column 'translation'"),
        ("a.jsonl", b'{"translation": {"en": "a"}}\n', "Line 1 of .*a.jsonl has no language 'de', it has 'en'"),
        ("a.jsonl", b'{"translation": null}\n', "Line 1 of .* must have sentences by language .*, got None"),
        ("a.jsonl", b'{"translation": "x"}\n', "Line 1 of .* must have sentences by language .*, got 'x'"),
        ("a.parquet", {"x": ["a"]}, "a.parquet must have a column 'translation', it has 'x'"),
        ("a.parquet", {"source": [1], "target": [2]}, "a.parquet must hold sentences, but .* type int64"),
    ],
)
def test_train_names_the_line_of_a_malformed_file(refusal, tmp_path, name, content, text):
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif isinstance(content, dict):
        pa.parquet.write_table(pa.table(content), path)
    else:
        path.write_bytes(content)
    corpora = json.dumps([{"file": str(path)} | LANGUAGES])
    assert_matches(text, refusal(train_source=None, train_target=None, corpora=corpora))


@pytest.mark.parametrize("weight", [0, -1, "NaN", "two"])
def test_train_names_an_invalid_corpus_weight(refusal, weight):
    corpora = json.dumps([{"file": "a.tsv", "weight": weight}])
    line = refusal(train_source=None, train_target=None, corpora=corpora)
    assert f"`weight` of the corpus a.tsv must be a number above 0, got {weight!r}" in line


def test_train_names_a_folder_without_a_dataset(refusal, tmp_path):
    (tmp_path / "d").mkdir()
    line = refusal(train_source=None, train_target=None, dataset=tmp_path / "d", **LANGUAGES)
    assert "`dataset` must be a folder written by `save_to_disk`" in line and str(tmp_path / "d") in line


def test_train_names_a_folder_without_a_tokenizer(refusal, tmp_path):
    (tmp_path / "t").mkdir()
    assert f"`tokenizer` must be a folder or a Hub name of one, got {tmp_path / 't'}" in refusal(
        tokenizer=tmp_path / "t", vocab_size=None
    )


def test_train_refuses_bpe_dropout_with_another_tokenizer(refusal, tmp_path):
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["a b"], vocab_size=270, special_tokens=["<e>", "<p>"], show_progress=False)
    foreign = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="<e>", pad_token="<p>")
    foreign.save_pretrained(tmp_path / "t")
    line = refusal(tokenizer=tmp_path / "t", bpe_dropout=0.1, vocab_size=None)
    assert "BPE-dropout must have a VanillaTransformerTokenizer" in line


def test_train_names_a_cache_dir_that_cannot_be_written(refusal, tmp_path):
    (tmp_path / "file").write_text("")
    line = refusal(cache_dir=tmp_path / "file")
    assert f"`cache_dir` must be a folder that can be written, got {tmp_path / 'file'}" in line


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"vocab_size: [1, 2]\n", r"`vocab_size` must be an integer .*, got \[1, 2\]"),
        (b"seed: 1\nseed: 2\n", "must be YAML: the key 'seed' is there twice"),
        (b"seed:\t1\n\tx: 2\n", "must be YAML: .*cannot start any token"),
        (b"seed: \xe4\n", "must be UTF-8, but line 1 has the byte 0xe4"),
        (b"text\n", "must hold `key: value` lines, got str"),
        (b"", "must hold `key: value` lines, got NoneType"),
        (None, "There is no recipe"),  # a folder
    ],
)
def test_train_names_a_recipe_that_cannot_be_read(refusal, tmp_path, content, text):
    path = tmp_path / "recipe.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    line = refusal(path)
    assert_matches(text, line)
    assert content == b"vocab_size: [1, 2]\n" or str(path) in line


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "model", "NAME"],
        ["translate", "model", "Two dogs.", "NAME"],
        ["translate", "model", "Two dogs.", "--target_prefix", "NAME"],
        ["translate", "model", "Two dogs.", "--constraint", "NAME"],
        ["explain", "model", "NAME", "--output", "out.html"],
        ["explain", "model", "Two dogs.", "--output", "out.html", "--translation", "NAME"],
        ["create-space", "model", "--examples", "NAME"],
    ],
)
def test_a_text_is_not_the_name_of_a_file(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for each in ("page.html", "NOTES", "docs/page"):
        (tmp_path / each).write_text("Two dogs.")
    for name, kind in {"page.html": "file", "NOTES": "file", "docs/": "folder", "docs/page": "file"}.items():
        assert main([word.replace("NAME", name) for word in words]) == 2
        assert f"must be text, got the name of a {kind}: {name}. " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["docs", "Two dogs.", "and/or", "a" * 5000, "a\0b", ""])
def test_a_text_that_names_no_file_is_one(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    refuse_file_names("Sentences", [text, None], "")
