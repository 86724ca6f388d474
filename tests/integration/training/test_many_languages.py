"""Runs of models with several languages: tags, temperature, scores of each direction, and further
languages.
"""

import json

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.m2m_100_models import build_nllb_tokenizer, m2m_100
from tests.tiny import TINY_SIZES
from tests.tiny_runs import assert_same_run, entries, flags, kill_at_step
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import find_languages
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

NO_FILES = dict.fromkeys(["train_source", "train_target"])
NO_FILES |= dict.fromkeys(["validation_source", "validation_target"])
NO_SIZES = dict.fromkeys([*TINY_SIZES, "vocab_size"])


def directions(corpus, name, *languages):
    """Return corpora of the tiny text: `a` is in small letters, `b` in capitals, and `c` is like
    `a`.
    """
    ends = {"a": "a", "b": "b", "c": "a"}
    corpora = []
    for one, other in languages:
        corpus_of_pair = {"source": str(corpus / f"{name}.{ends[one]}")}
        corpus_of_pair["target"] = str(corpus / f"{name}.{ends[other]}")
        corpus_of_pair |= {"source_language": one, "target_language": other}
        corpora.append(corpus_of_pair)
    return corpora


def recipe(corpus, folder, **changes):
    corpora = directions(corpus, "train", "ab", "ba", "bc")
    corpora[0]["weight"] = 3
    validation = directions(corpus, "validation", "ab", "ba", "ac")
    options = {"corpora": json.dumps(corpora), "validation": json.dumps(validation)}
    options |= changes
    return parse_recipe(flags(corpus, folder, **NO_FILES | options))


def vectors(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    return model.model.encoder.embed_tokens.weight


def scores_by_language(model, tokenizer, pairs, src_lang=None, tgt_lang=None, **_):
    scores = {"ab": 10.0, "ba": 20.0, "ac": 60.0}
    return {"bleu": scores[src_lang + tgt_lang], "bleu_signature": "x"}


def test_train_many_languages_resumes_bit_for_bit(corpus, tmp_path, monkeypatch):
    options = {"sampling_temperature": 2.0, "dropout": 0.3, "ema_decay": 0.9}
    folder = tmp_path / "straight"
    straight = train(recipe(corpus, folder, **options), scores_by_language)
    again = recipe(corpus, tmp_path / "again", **options)
    kill_at_step(again, monkeypatch, 4)
    assert_same_run(straight, train(again, scores_by_language))


def test_train_reports_each_direction(corpus, tmp_path):
    folder = train(recipe(corpus, tmp_path / "out"), scores_by_language)
    last = [entry for entry in entries(folder) if "validation_loss" in entry][-1]
    assert (last["bleu_a-b"], last["bleu_b-a"], last["bleu_a-c"]) == (10.0, 20.0, 60.0)
    assert last["bleu"] == 15.0  # of the trained directions
    mean = (last["validation_loss_a-b"] + last["validation_loss_b-a"]) / 2
    assert last["validation_loss"] == pytest.approx(mean)
    languages = find_languages(AutoTokenizer.from_pretrained(folder))
    assert sorted(languages.targets) == ["a", "b", "c"]
    assert [*map("".join, languages.directions)] == ["ab", "ba", "bc"]


def test_train_adds_a_language_to_a_model(corpus, tmp_path):
    two = directions(corpus, "train", "ab", "ba")
    options = {"corpora": json.dumps(two), "validation": None}
    start = train(recipe(corpus, tmp_path / "two", **options), scores_by_language)
    for corpus_of_pair in two:
        corpus_of_pair["weight"] = 0.5
    corpora = [*directions(corpus, "train", "ac"), *two]
    changes = {"init_from": start, "init_vocabulary": "extend", "vocab_size": 290}
    changes |= {"corpora": json.dumps(corpora), "learning_rate": 0.0}
    changes["lr_scheduler"] = "constant"
    still = recipe(corpus, tmp_path / "still", **NO_SIZES | changes)
    folder = train(still, scores_by_language)
    old, new = map(AutoTokenizer.from_pretrained, (start, folder))
    languages, former = find_languages(new), find_languages(old)
    assert sorted(languages.targets) == ["a", "b", "c"] and len(new) > len(old)
    assert [*map("".join, languages.directions)] == ["ab", "ba", "ac"]
    before, after = vectors(start), vectors(folder)
    tags = {code: before[token] for code, token in former.targets.items()}
    for code, token in languages.targets.items():
        expected = tags[code] if code in tags else (tags["a"] + tags["b"]) / 2
        assert after[token].tolist() == pytest.approx(expected.tolist())


UNTRAINED = [("lora_rank", 2), ("freeze", "embeddings")]


@pytest.mark.parametrize(("name", "value"), UNTRAINED)
def test_train_refuses_to_leave_a_new_tag_untrained(
    corpus, tmp_path, tiny_model, tiny_tokenizer, name, value
):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "start")
    changes = {"init_from": tmp_path / "start", "lr_scheduler": "constant"}
    changes |= {"learning_rate": 0.01, name: value}
    refused = recipe(corpus, tmp_path / "out", **NO_SIZES | changes)
    message = f"`{name}.*` leaves the tag of the new language b untrained"
    with pytest.raises(ValueError, match=message):
        train(refused, scores_by_language)
    assert not (tmp_path / "out").exists()


def test_train_fine_tunes_nllb_in_both_directions(corpus, tmp_path):
    tokenizer = build_nllb_tokenizer()
    save_model_folder(m2m_100(len(tokenizer)), tokenizer, tmp_path / "nllb")
    both = directions(corpus, "train", "ab")[0] | {"both_directions": True}
    both |= {"source_language": "eng_Latn", "target_language": "deu_Latn"}
    changes = {"init_from": tmp_path / "nllb", "corpora": json.dumps([both])}
    changes |= {"validation": json.dumps([both]), "lr_scheduler": "constant"}
    changes["learning_rate"] = 0.01
    seen = []

    def evaluate(model, tokenizer, pairs, src_lang, tgt_lang, **generate_kwargs):
        seen.append((src_lang, tgt_lang))
        return {"bleu": 0.0}

    folder = train(recipe(corpus, tmp_path / "out", **NO_SIZES | changes), evaluate)
    assert seen[:2] == [("eng_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")]
    validations = [entry for entry in entries(folder) if "validation_loss" in entry]
    losses = [entry["validation_loss"] for entry in validations]
    assert losses[-1] < losses[0]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    loaded = AutoTokenizer.from_pretrained(folder)
    options = {"tgt_lang": "eng_Latn", "src_lang": "deu_Latn", "max_new_tokens": 3}
    translate = TranslationPipeline(model, loaded, **options)
    forced, generate = [], model.generate

    def record(**options):
        forced.append(options["forced_bos_token_id"])
        return generate(**options)

    model.generate = record
    translate("Grass", num_beams=1, repetition_penalty=1.1)
    assert forced == [loaded.convert_tokens_to_ids("eng_Latn")]


AGREEMENT = {"validation": None, "train_alignments": "agreement"}
REFUSED = [
    ({"validation": '[{"file": "x.tsv", "target_language": "a"}]'}, "no file x.tsv"),
    ({"language_tags": "none", **AGREEMENT}, None),
    (AGREEMENT, "`train_alignments` must be given for a model without"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_train_refuses_before_it_writes(corpus, tmp_path, changes, message):
    if message is None:
        train(recipe(corpus, tmp_path / "out", **changes), scores_by_language)
        return
    with pytest.raises((ValueError, OSError), match=message):
        train(recipe(corpus, tmp_path / "out", **changes), scores_by_language)
    assert not (tmp_path / "out").exists()


def test_train_refuses_to_validate_an_unknown_language(corpus, tmp_path):
    known, unknown = directions(corpus, "validation", "ab", "ac")
    validation = json.dumps([known, unknown | {"target_language": "x"}])
    refused = recipe(corpus, tmp_path / "out", validation=validation)
    message = "The target language must be one of b, a, c; got 'x'"
    with pytest.raises(ValueError, match=message):
        train(refused, scores_by_language)
    assert not (tmp_path / "out").exists()
