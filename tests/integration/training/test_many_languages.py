"""Runs of models with several languages: tags, temperature, scores of each direction, and further
languages.
"""

import json

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.m2m_100_models import build_nllb_tokenizer, m2m_100
from tests.tiny_runs import assert_same_run, entries, flags, kill_at_step
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import find_languages
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

NO_FILES = dict.fromkeys(("train_source", "train_target", "validation_source", "validation_target"))
NO_SIZES = dict.fromkeys(("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads"))
NO_SIZES |= dict.fromkeys(
    ("decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size")
)


def directions(corpus, name, *languages):
    """Return corpora of the tiny text: `a` is in small letters, `b` in capitals, and `c` is like
    `a`.
    """
    ends = {"a": "a", "b": "b", "c": "a"}
    return [
        {
            "source": str(corpus / f"{name}.{ends[one]}"),
            "target": str(corpus / f"{name}.{ends[other]}"),
        }
        | {"source_language": one, "target_language": other}
        for one, other in languages
    ]


def recipe(corpus, folder, **changes):
    corpora = directions(corpus, "train", "ab", "ba", "bc")
    corpora[0]["weight"] = 3
    validation = directions(corpus, "validation", "ab", "ba", "ac")
    options = {"corpora": json.dumps(corpora), "validation": json.dumps(validation)} | changes
    return parse_recipe(flags(corpus, folder, **NO_FILES | options))


def vectors(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).model.encoder.embed_tokens.weight


def scores_by_language(model, tokenizer, pairs, src_lang=None, tgt_lang=None, **generate_kwargs):
    return {
        "bleu": {"ab": 10.0, "ba": 20.0, "ac": 60.0}[src_lang + tgt_lang],
        "bleu_signature": "x",
    }


def test_train_many_languages_resumes_bit_for_bit(corpus, tmp_path, monkeypatch):
    options = {"sampling_temperature": 2.0, "dropout": 0.3, "ema_decay": 0.9}
    straight = train(recipe(corpus, tmp_path / "straight", **options), scores_by_language)
    again = recipe(corpus, tmp_path / "again", **options)
    kill_at_step(again, monkeypatch, 4)
    assert_same_run(straight, train(again, scores_by_language))


def test_train_reports_each_direction(corpus, tmp_path):
    folder = train(recipe(corpus, tmp_path / "out"), scores_by_language)
    last = [entry for entry in entries(folder) if "validation_loss" in entry][-1]
    assert (last["bleu_a-b"], last["bleu_b-a"], last["bleu_a-c"]) == (10.0, 20.0, 60.0)
    assert last["bleu"] == 15.0  # of the trained directions
    assert last["validation_loss"] == pytest.approx(
        (last["validation_loss_a-b"] + last["validation_loss_b-a"]) / 2
    )
    languages = find_languages(AutoTokenizer.from_pretrained(folder))
    assert sorted(languages.targets) == ["a", "b", "c"]
    assert ["".join(each) for each in languages.directions] == ["ab", "ba", "bc"]


def test_train_adds_a_language_to_a_model(corpus, tmp_path):
    two = directions(corpus, "train", "ab", "ba")
    start = train(
        recipe(corpus, tmp_path / "two", corpora=json.dumps(two), validation=None),
        scores_by_language,
    )
    corpora = json.dumps(
        [*directions(corpus, "train", "ac"), *({**each, "weight": 0.5} for each in two)]
    )
    changes = {
        "init_from": start,
        "init_vocabulary": "extend",
        "corpora": corpora,
        "learning_rate": 0.0,
    }
    still = recipe(
        corpus,
        tmp_path / "still",
        **NO_SIZES | {"vocab_size": 290, "lr_scheduler": "constant"} | changes,
    )
    folder = train(still, scores_by_language)
    old, new = (AutoTokenizer.from_pretrained(each) for each in (start, folder))
    languages, former = find_languages(new), find_languages(old)
    assert sorted(languages.targets) == ["a", "b", "c"] and len(new) > len(old)
    assert ["".join(each) for each in languages.directions] == ["ab", "ba", "ac"]
    before, after = (vectors(each) for each in (start, folder))
    tags = {code: before[token] for code, token in former.targets.items()}
    for code, token in languages.targets.items():
        expected = tags[code] if code in tags else (tags["a"] + tags["b"]) / 2
        assert after[token].tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize(("name", "value"), [("lora_rank", 2), ("freeze", "embeddings")])
def test_train_refuses_to_leave_a_new_tag_untrained(
    corpus, tmp_path, tiny_model, tiny_tokenizer, name, value
):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "start")
    changes = {
        "init_from": tmp_path / "start",
        "lr_scheduler": "constant",
        "learning_rate": 0.01,
        name: value,
    }
    with pytest.raises(
        ValueError, match=f"`{name}.*` leaves the tag of the new language b untrained"
    ):
        train(recipe(corpus, tmp_path / "out", **NO_SIZES | changes), scores_by_language)
    assert not (tmp_path / "out").exists()


def test_train_fine_tunes_nllb_in_both_directions(corpus, tmp_path):
    tokenizer = build_nllb_tokenizer()
    save_model_folder(m2m_100(len(tokenizer)), tokenizer, tmp_path / "nllb")
    both = directions(corpus, "train", "ab")[0] | {"both_directions": True}
    both |= {"source_language": "eng_Latn", "target_language": "deu_Latn"}
    changes = {
        "init_from": tmp_path / "nllb",
        "corpora": json.dumps([both]),
        "validation": json.dumps([both]),
    }
    changes |= {"lr_scheduler": "constant", "learning_rate": 0.01}
    seen = []

    def evaluate(model, tokenizer, pairs, src_lang, tgt_lang, **generate_kwargs):
        seen.append((src_lang, tgt_lang))
        return {"bleu": 0.0}

    folder = train(recipe(corpus, tmp_path / "out", **NO_SIZES | changes), evaluate)
    assert seen[:2] == [("eng_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")]
    losses = [entry["validation_loss"] for entry in entries(folder) if "validation_loss" in entry]
    assert losses[-1] < losses[0]
    model, loaded = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    translate = TranslationPipeline(
        model, loaded, tgt_lang="eng_Latn", src_lang="deu_Latn", max_new_tokens=3
    )
    forced = []
    monkey = model.generate
    model.generate = lambda **options: (
        forced.append(options["forced_bos_token_id"]) or monkey(**options)
    )
    translate("Grass", num_beams=1, repetition_penalty=1.1)
    assert forced == [loaded.convert_tokens_to_ids("eng_Latn")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation": '[{"file": "x.tsv", "target_language": "a"}]'}, "no file x.tsv"),
        ({"language_tags": "none", "validation": None, "train_alignments": "agreement"}, None),
        (
            {"validation": None, "train_alignments": "agreement"},
            "`train_alignments` must be given for a model without",
        ),
    ],
)
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
    with pytest.raises(ValueError, match="The target language must be one of b, a, c; got 'x'"):
        train(recipe(corpus, tmp_path / "out", validation=validation), scores_by_language)
    assert not (tmp_path / "out").exists()
