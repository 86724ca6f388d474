"""Shortlists: counted from aligned text, written for Bergamot and CTranslate2, and used by
CTranslate2.
"""

import io
import shutil
from contextlib import redirect_stdout
from itertools import chain

import ctranslate2
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.tiny import TINY_VOCAB_SIZE, tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.conversion import shortlist
from vanilla_transformer.extensions.conversion.ctranslate2 import (
    ctranslate2_greedy_translator,
    token_names,
    write_ctranslate2,
)
from vanilla_transformer.loading.model_folders import save_model_folder

NOUNS = {"dog": "Hund", "cat": "Kater", "tree": "Baum", "table": "Tisch"}
ADJECTIVES = {"red": "roter", "old": "alter", "big": "großer"}
SEATS = [("seat", "Stuhl"), ("seat", "Stuhl"), ("seat", "Sitz")]
PAIRS = []
for adjective, translated in ADJECTIVES.items():
    for noun, target in [*NOUNS.items(), *SEATS]:
        PAIRS.append(SentencePair(f"{adjective} {noun}", f"{translated} {target}"))


def word_tokenizer(pairs):
    words = {*" ".join(f"{pair.source} {pair.target}" for pair in pairs).split()}
    tokens = ["<pad>", "</s>", "<unk>", *sorted(words)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


OF_SEAT = [(1, {"Stuhl"}), (2, {"Stuhl", "Sitz"}), (100, {"Stuhl", "Sitz"})]


@pytest.mark.parametrize("best, of_seat", OF_SEAT)
def test_count_shortlist_has_the_likeliest_translations(best, of_seat, monkeypatch):
    monkeypatch.setattr(shortlist, "_BEST", best)
    monkeypatch.setattr(shortlist, "_FREQUENT", 4)
    tokenizer = word_tokenizer(PAIRS)
    counted = shortlist.count_shortlist(tokenizer, PAIRS)
    names = token_names(tokenizer)
    words = {}
    for source, row in counted.items():
        assert [*row] == sorted(row)
        words[names[source]] = {names[target] for target in row}
    expected = {source: {target} for source, target in (NOUNS | ADJECTIVES).items()}
    expected |= {"seat": of_seat, "</s>": {"</s>", *ADJECTIVES.values()}}
    assert words == expected


def read_lex(path):
    """Read a shortlist as Bergamot does: a header, offsets, and lists of 32 bits."""
    content = path.read_bytes()
    header = np.frombuffer(content[:48], "<u8")
    words = np.frombuffer(content[16 : len(content) // 8 * 8], "<u8")
    checksum = np.uint64(0)
    with np.errstate(over="ignore"):
        for word in words:
            shifted = (checksum << np.uint64(6)) + (checksum >> np.uint64(2))
            checksum ^= word + np.uint64(0x9E3779B9) + shifted
    assert (header[0], header[1]) == (0xF11A48D5013417F5, checksum)
    size, length = map(int, header[4:])
    offsets = np.frombuffer(content[48 : 48 + 8 * size], "<u8")
    lists = np.frombuffer(content[48 + 8 * size :], "<u4")
    assert len(lists) == length == offsets[-1]
    rows = np.split(lists, offsets[1:-1].astype(int))
    return header[2:4].tolist(), [row.tolist() for row in rows]


@pytest.mark.parametrize("row", [[0, 3, 4], [0, 3, 4, 5]])
def test_write_bergamot_shortlist_is_read_back(row, tmp_path):
    """Without tokens that Bergamot does not have, and with an odd and an even number of entries."""
    path, rows = tmp_path / "lex.bin", {0: row, 2: [4, 6], 3: [1], 6: [1]}
    shortlist.write_bergamot_shortlist(rows, 6, path)
    expected = [row, [], [4], [1], [], []]
    assert read_lex(path) == ([500, 100], expected)


TEXTS = ["A man is sleeping.", "Two dogs run across the green grass."]


@pytest.fixture(scope="module")
def converted(tiny_tokenizer, tmp_path_factory):
    """Return a folder that the command wrote, and its report."""
    folder = tmp_path_factory.mktemp("converted")
    save_model_folder(tiny_model(), tiny_tokenizer, folder / "ours")
    files = {"en": ["A man is sleeping.", "", "Two dogs."]}
    files["de"] = ["Ein Mann schläft.", "", "Hunde."]
    files["texts"] = TEXTS
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["convert", folder / "ours", folder / "fast"]
    command += ["--target_format", "ctranslate2", "--sentences", folder / "texts"]
    command += ["--shortlist", folder / "en", folder / "de"]
    with redirect_stdout(io.StringIO()) as report:
        assert main([*map(str, command)]) == 0
    return folder / "fast", report.getvalue()


def generate(folder, tokenizer):
    translator = ctranslate2.Translator(str(folder))
    return ctranslate2_greedy_translator(translator, tokenizer, use_vmap=True)(TEXTS)


def test_ctranslate2_chooses_among_tokens_of_the_shortlist(converted, tiny_tokenizer, tmp_path):
    (folder, report), names = converted, token_names(tiny_tokenizer)
    assert "float32: 2 of 2 outputs identical" in report
    assert "; float32 with the shortlist: " in report
    rows = {}
    for line in (folder / "vmap.txt").read_text(encoding="utf-8").splitlines():
        source, targets = line.split("\t")
        rows[source] = targets.split(" ")
    listed = {tiny_tokenizer.pad_token}
    for token in chain(*tiny_tokenizer(TEXTS)["input_ids"]):
        listed |= {*rows[names[token]]}
    chosen = generate(folder, tiny_tokenizer)
    assert {names[token] for token in chain(*chosen)} <= listed

    ignored = shutil.ignore_patterns("vmap.txt")
    plain = shutil.copytree(folder, tmp_path / "plain", ignore=ignored)
    whole = shutil.copytree(plain, tmp_path / "whole")
    everything = {tiny_tokenizer.eos_token_id: range(TINY_VOCAB_SIZE)}
    shortlist.write_vocabulary_map(everything, names, whole / "vmap.txt")
    assert generate(plain, tiny_tokenizer) == generate(whole, tiny_tokenizer)
    assert generate(plain, tiny_tokenizer) != chosen


def test_ctranslate2_has_a_list_for_each_batch(tiny_tokenizer, tmp_path):
    """CTranslate2 keeps the place of the start token in the list of its first batch. The model
    starts with its last token.
    """
    model = tiny_model(decoder_start_token_id=TINY_VOCAB_SIZE - 1)
    model.name_or_path = str(save_model_folder(model, tiny_tokenizer, tmp_path / "ours"))
    fast = tmp_path / "fast"
    pairs = [SentencePair(text, text) for text in TEXTS]
    _, translators = write_ctranslate2(model, tiny_tokenizer, fast, "float32", pairs)
    together = translators[1]

    def apart(text):
        translator = ctranslate2.Translator(str(fast))
        translate = ctranslate2_greedy_translator(translator, tiny_tokenizer, use_vmap=True)
        return translate([text])

    for length in range(30, 2, -4):
        for text in TEXTS:
            assert together([text[:length]]) == apart(text[:length])


def test_write_vocabulary_map_leaves_out_names_with_white_space(tmp_path):
    names = {0: "</s>", 1: "New York", 2: "a", 3: "\N{NO-BREAK SPACE}"}
    shortlist.write_vocabulary_map({0: [0, 1, 3], 1: [2]}, names, tmp_path / "vmap.txt")
    text = (tmp_path / "vmap.txt").read_text(encoding="utf-8")
    assert text == "</s>\t</s> \xa0\na\ta\n\xa0\t\xa0\n"


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ["--target_format", "ctranslate2", "--shortlist", "a"],
            "must be files of source and target text, such as",
        ),
        (
            ["--target_format", "marian", "--shortlist", "a", "b"],
            "`--shortlist` needs a `--target_format` of ctransl",
        ),
        (
            ["--source_format", "eole", "--shortlist", "a", "b"],
            "`--shortlist` needs a `--target_format` of ctransl",
        ),
        (
            ["--source_format", "eole", "--languages", "en", "de", "--shortlist", "a", "b"],
            "others name their languages. `--shortlist` needs a `--target_format` of ctransl",
        ),
        (
            ["--target_format", "ctranslate2", "--shortlist", "one", "other"],
            "needs pairs of sentences, got none in",
        ),
    ],
)
def test_convert_names_mistakes_of_a_shortlist(flags, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").write_text("a\n\n")
    (tmp_path / "other").write_text("\nb\n")
    assert main(["convert", "model", "out", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
