"""Text of the target language becomes parallel text by a reverse model."""

import json
import os
from types import SimpleNamespace

import pytest

from vanilla_transformer.extensions.distillation import back_translation
from vanilla_transformer.extensions.distillation.back_translation import (
    back_translate,
    check_output,
)

LINES = ["ein mann", "", "zwei hunde", "das ist 25", "\tdrei"]


class Shouting:
    """Translate into capitals. Fail at a line if it is given."""

    model = SimpleNamespace(config=None)

    def __init__(self, fail_at=None, **options):
        self.default_options = options
        self.fail_at, self.seeds, self.translated = fail_at, [], []

    def __call__(self, lines, batch_size, progress_bar, seed):
        if self.fail_at in lines:
            raise KeyboardInterrupt
        self.seeds.append(seed)
        self.translated += lines
        texts = [line.upper().replace("25", "26") for line in lines]
        return [{"translation_text": text} for text in texts]


def seed_of(seed):
    return {"options": {"seed": seed}}


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(back_translation, "SHARD_LINES", 2)
    (tmp_path / "mono.de").write_text("\n".join(LINES) + "\n")
    return tmp_path / "mono.de"


def test_back_translate_writes_tagged_pairs(text, tmp_path):
    counts = back_translate(Shouting(), text, tmp_path / "out.tsv", {}, tag="<BT>")
    pairs = ["<BT> EIN MANN\tein mann", "<BT> ZWEI HUNDE\tzwei hunde", "<BT>  DREI\t drei"]
    expected = "\n".join([*pairs, ""])
    assert (tmp_path / "out.tsv").read_text() == expected
    assert counts == (5, 3, {"blank": 1, "numbers": 1})
    assert sorted(os.listdir(tmp_path)) == ["mono.de", "out.tsv"]


def test_back_translate_writes_json_and_keeps_warnings(text, tmp_path):
    back_translate(Shouting(), text, tmp_path / "out.jsonl", {}, keep_warnings=True)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 4
    assert rows[2] == {"source": "DAS IST 26", "target": "das ist 25"}
    assert rows[3] == {"source": "\tDREI", "target": "\tdrei"}


def test_back_translate_resumes_with_other_samples_in_each_shard(text, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        back_translate(Shouting("zwei hunde"), text, tmp_path / "out.tsv", seed_of(7))
    assert not (tmp_path / "out.tsv").exists()
    message = "has 2 sentences of an interrupted run. Add --resume to continue it."
    with pytest.raises(ValueError, match=message):
        back_translate(Shouting(), text, tmp_path / "out.tsv", seed_of(7))
    with pytest.raises(ValueError, match="`seed` was 7 and is 8"):
        back_translate(Shouting(), text, tmp_path / "out.tsv", seed_of(8), resume=True)
    rest = Shouting(seed=7)
    back_translate(rest, text, tmp_path / "out.tsv", seed_of(7), resume=True)
    assert rest.translated == LINES[2:]
    assert rest.seeds == [8, 9]


def test_back_translate_keeps_nothing_of_a_first_shard_that_fails(text, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        back_translate(Shouting("ein mann"), text, tmp_path / "out.tsv", {})
    assert os.listdir(tmp_path) == ["mono.de"]


def test_back_translate_needs_a_usable_translation(tmp_path):
    (tmp_path / "mono.de").write_text("\n \ndas ist 25\n")
    with pytest.raises(ValueError, match="but all are dropped: 2 blank, 1 numbers."):
        back_translate(Shouting(), tmp_path / "mono.de", tmp_path / "out.tsv", {})
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize(
    ("name", "tag", "message"),
    [
        ("out.txt", None, "Pairs must be written to a .tsv or .jsonl file, got"),
        ("out.tsv", "<B T>", "A tag must be one word, such as <BT>, got '<B T>'"),
        ("out.tsv", "", "A tag must be one word, such as <BT>, got ''"),
    ],
)
def test_check_output_refuses(tmp_path, name, tag, message):
    with pytest.raises(ValueError, match=message):
        check_output(tmp_path / name, tag)
