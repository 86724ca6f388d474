"""Alignments of the training text: ones that do not fit are refused, and augmented pairs have
theirs.
"""

import numpy as np
import pytest

from tests.tiny_runs import flags, no_scores
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.decoding.unit_links import token_spans, words_of_tokens
from vanilla_transformer.extensions.alignments.token_alignments import load_alignments
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


def test_train_refuses_alignments_that_do_not_fit(corpus, alignments, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", train_alignments=alignments))
    lines = alignments.read_text().splitlines()
    alignments.write_text("\n".join(lines[1:]) + "\n")
    message = "train.align must have a line for each of 40 lines of .*, got 39"
    with pytest.raises(ValueError, match=message):
        train(recipe, evaluate=no_scores)
    lines[1] = "0-9"
    alignments.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="got '0-9' in line 2 of .*train.align"):
        train(recipe, evaluate=no_scores)
    assert not (tmp_path / "run" / "config.json").exists()


def test_load_alignments_skips_lines_that_are_blank(corpus, alignments, tiny_tokenizer, tmp_path):
    def load():
        options = {"train_alignments": alignments, "cache_dir": tmp_path}
        recipe = parse_recipe(flags(corpus, tmp_path / "run", **options))
        texts = load_texts(recipe.data)
        key = hash_tokenizer(tiny_tokenizer)
        return load_alignments(texts, tiny_tokenizer, key).dataset["links"][:]

    expected = load()
    for path in (corpus / "train.a", corpus / "train.b", alignments):
        first, *others = path.read_text().splitlines()
        path.write_text("\n".join([first, "", *others, ""]) + "\n")
    assert load() == expected


def linked_words(table, row, tokenizer, text):
    """Return the words of the linked tokens of a row, without links to the source's EOS."""
    links = table.links.read(np.array([row]))[0].reshape(-1, 3)
    words = []
    for side in ("target", "source"):
        (spans,) = token_spans(tokenizer, [text[side]])
        words.append(words_of_tokens(text[side], spans))
    of_target, of_source = words
    linked = set()
    for target, source, _ in links:
        linked |= {*zip(of_source[source], of_target[target], strict=False)}
    return linked, len(links)


AUGMENTATIONS = ["phrases", "upper_case", "html_tags", "noise_pairs", "doubled_words", "emoji"]


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmented_pairs_keep_links_of_words_that_stay_in_place(
    corpus, alignments, tiny_tokenizer, tmp_path, name
):
    """In this text each word is aligned with the word at its place."""
    options = {"train_alignments": alignments, "cache_dir": tmp_path}
    options["augment"] = f"{{{name}: 0.5}}"
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **options))
    texts = load_texts(recipe.data)
    augmented = tokenize(texts, tiny_tokenizer, seed=0)
    pairs = augmented.epoch(0)
    changed = 0
    for row in pairs.rows:
        text = augmented.texts[int(row)]
        words, count = linked_words(pairs.table, row, tiny_tokenizer, text)
        is_changed = row >= len(texts.training.dataset)
        changed += is_changed
        if is_changed and name in ("doubled_words", "emoji"):
            assert not count
        else:
            positions = range(len(text["source"].split()))
            assert words == {*zip(positions, positions, strict=True)}
    assert 10 < changed < 30


def test_phrases_have_the_links_of_their_own_words(corpus, alignments, tiny_tokenizer, tmp_path):
    """In this text the words of the target are in the reverse order."""
    lines = (corpus / "train.b").read_text().splitlines()
    reversed_lines, rows = [], []
    for line in lines:
        words = line.split()
        reversed_lines.append(" ".join(reversed(words)))
        last = len(words) - 1
        links = [f"{last - number}-{number}" for number in range(len(words))]
        rows.append(" ".join(links))
    (corpus / "train.b").write_text("\n".join(reversed_lines) + "\n")
    alignments.write_text("\n".join(rows) + "\n")
    options = {"train_alignments": alignments, "cache_dir": tmp_path, "augment": "{phrases: 1}"}
    texts = load_texts(parse_recipe(flags(corpus, tmp_path / "run", **options)).data)
    augmented = tokenize(texts, tiny_tokenizer, seed=0)
    pairs = augmented.epoch(0)
    assert len(pairs) > 60
    for row in pairs.rows[40:]:
        text = augmented.texts[int(row)]
        words, _ = linked_words(pairs.table, row, tiny_tokenizer, text)
        places = range(len(text["source"].split()))
        assert words == {*zip(places, reversed(places), strict=True)}
