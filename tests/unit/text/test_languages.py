"""The languages of a tokenizer: tags that it is given, and the ones that it has from the start."""

import copy
import json
import sys

import pytest
from transformers import AutoTokenizer, MarianTokenizer, PreTrainedTokenizerFast

from tests.m2m_100_models import build_nllb_tokenizer
from tests.marian_files import build_marian_tokenizer
from tests.tiny import TINY_SENTENCES
from vanilla_transformer.data.tokenizer_training import extend_tokenizer
from vanilla_transformer.text.languages import (
    Direction,
    DirectionTokens,
    add_language_tags,
    base_language,
    find_code,
    find_direction,
    find_languages,
    is_language,
    is_same_language,
    plural_categories,
    set_languages,
    store_direction,
)

PAIRS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]


@pytest.fixture
def tagged(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, PAIRS, with_sources=True)
    return tokenizer


def test_add_language_tags_survives_saving_and_copying(tagged, tmp_path):
    languages = find_languages(tagged)
    assert list(languages.targets) == ["de", "en", "fr"]
    assert list(languages.sources) == ["en", "de"]
    assert languages.directions == PAIRS and not languages.is_forced
    tagged.save_pretrained(tmp_path)
    for tokenizer in (
        AutoTokenizer.from_pretrained(tmp_path),
        PreTrainedTokenizerFast.from_pretrained(tmp_path),  # without this package
        copy.deepcopy(tagged),
    ):
        assert find_languages(tokenizer) == languages
        assert tokenizer(">>de<< A man")["input_ids"][0] == languages.targets["de"]
    ids = tagged(">>de<< A man")["input_ids"]
    assert tagged.decode(ids, skip_special_tokens=True) == "A man"


def test_add_language_tags_adds_only_new_ones(tagged):
    before = find_languages(tagged)
    add_language_tags(tagged, [Direction("en", "de"), Direction("fr", "it")], with_sources=True)
    languages = find_languages(tagged)
    assert languages.targets.items() > before.targets.items()
    assert languages.targets.keys() - before.targets == {"it"}
    assert list(languages.sources) == ["en", "de", "fr"]
    assert languages.directions == [*PAIRS, Direction("fr", "it")]


def test_extend_tokenizer_keeps_tags(tagged):
    longer = extend_tokenizer(tagged, TINY_SENTENCES * 3, 330)
    languages = find_languages(longer)
    assert list(languages.targets) == ["de", "en", "fr"] and languages.directions == PAIRS
    assert len(longer) == len(set(longer.get_vocab().values())) == 330
    assert set(languages.targets.values()) <= set(longer.all_special_ids)
    for tokenizer in (tagged, longer):
        plain = tokenizer("A man", add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(plain) == "A man"


@pytest.mark.parametrize("target", [None, "Low German", ">>x"])
def test_add_language_tags_refuses_invalid_codes(tiny_tokenizer, target):
    message = "`target_language` of each corpus must be a code such as en, got"
    with pytest.raises(ValueError, match=message):
        add_language_tags(copy.deepcopy(tiny_tokenizer), [Direction("en", target)])
    message = "need a fast tokenizer without other languages, got NllbTokenizer"
    with pytest.raises(ValueError, match=message):
        add_language_tags(build_nllb_tokenizer(), PAIRS)


def test_languages_tokens_of_tags_begin_the_source(tagged):
    languages = find_languages(tagged)
    tokens = languages.tokens(Direction("en", "de"))
    assert tokens == DirectionTokens((languages.targets["de"], languages.sources["en"]), ())
    begun = languages.begin([[7, 2], []], tokens.source)
    assert begun == [[*tokens.source, 7, 2], [*tokens.source]]
    assert languages.begin([[7, 2]], tokens.target) == [[7, 2]]


def test_languages_tokens_of_nllb_begin_both_sides():
    tokenizer = build_nllb_tokenizer()
    languages = find_languages(tokenizer)
    tokens = languages.tokens(Direction("fra_Latn", "deu_Latn"))
    french, german = tokenizer.convert_tokens_to_ids(["fra_Latn", "deu_Latn"])
    assert tokens == DirectionTokens((french,), (german,))
    (begun,) = languages.begin(tokenizer(["Grass"])["input_ids"], tokens.source)
    tokenizer.src_lang = "fra_Latn"
    assert begun == tokenizer("Grass")["input_ids"]


def test_find_languages_of_nllb_are_no_other_tokens_that_were_added():
    tokenizer = build_nllb_tokenizer()
    languages = find_languages(tokenizer)
    added = {"extra_special_tokens": ["<BT>"]}
    tokenizer.add_special_tokens(added, replace_extra_special_tokens=False)
    assert "<BT>" in tokenizer.get_vocab()
    assert find_languages(tokenizer).targets == languages.targets


def test_add_language_tags_takes_the_tags_of_opus_mt(tmp_path):
    tokenizer = build_marian_tokenizer(tmp_path)
    message = "need a fast tokenizer without other languages, got MarianTokenizer"
    with pytest.raises(ValueError, match=message):
        add_language_tags(tokenizer, [Direction("en", "hsb")])
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    longer = vocabulary | {">>hsb<<": len(vocabulary)}
    (tmp_path / "vocab.json").write_text(json.dumps(longer))
    names = ("source.spm", "target.spm", "vocab.json")
    tagged = MarianTokenizer(*(str(tmp_path / name) for name in names))
    add_language_tags(tagged, [Direction("en", "hsb")])
    tokens = find_languages(tagged).tokens(Direction("en", "hsb"))
    assert tokens == DirectionTokens((len(vocabulary),), ())


def test_find_languages_finds_none_in_other_tokenizers(tiny_tokenizer):
    assert find_languages(tiny_tokenizer) is None
    assert find_languages(build_nllb_tokenizer(former_layout=True)) is None


def test_languages_resolve_fills_in_the_only_language(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("fr", "de")])
    languages = find_languages(tokenizer)
    assert languages.resolve() == Direction(None, "de")
    assert languages.resolve("fr") == Direction("fr", "de")
    message = "^The source language must be one of en, fr; got 'it'.$"
    with pytest.raises(ValueError, match=message):
        languages.resolve("it")


@pytest.mark.parametrize(
    ("direction", "message"),
    [
        (Direction("en", None), "The target language must be one of de, en, fr; got none."),
        (
            Direction("en", "d"),
            "The target language must be one of de, en, fr; got 'd'. Did you mean 'de'?",
        ),
        (Direction(None, "de"), "The source language must be one of en, de; got none."),
        (Direction("fr", "de"), "The source language must be one of en, de; got 'fr'."),
    ],
)
def test_resolve_lists_the_languages_in_errors(tagged, direction, message):
    with pytest.raises(ValueError) as error:
        find_languages(tagged).resolve(*direction)
    assert str(error.value) == message


def test_set_languages_changes_the_default_of_nllb(tiny_model):
    tokenizer = build_nllb_tokenizer()
    message = "The target language must be one of .*202 languages.*; got none"
    with pytest.raises(ValueError, match=message):
        find_languages(tokenizer).resolve()
    set_languages(tiny_model, tokenizer, "ENG-latn", "deu_Latn")
    assert find_languages(tokenizer).resolve() == Direction("eng_Latn", "deu_Latn")
    german = tokenizer.convert_tokens_to_ids("deu_Latn")
    assert tiny_model.generation_config.forced_bos_token_id == german


@pytest.mark.parametrize(
    ("code", "known", "expected"),
    [
        ("en", ["en"], "en"),
        ("EN", ["de", "en"], "en"),
        ("pt_BR", ["pt"], "pt"),
        ("pt-br", ["pt", "pt_BR"], "pt_BR"),
        ("zh_hans_cn", ["zh", "zh-Hans"], "zh-Hans"),
        ("DEU-latn", ["deu_Latn"], "deu_Latn"),
        ("en", ["en", "EN"], "en"),
        ("pt", ["pt_BR"], None),
        ("deu", ["de"], None),
        ("enm", ["en"], None),
    ],
)
def test_find_code_knows_spellings_and_variants(code, known, expected):
    assert find_code(code, known) == expected


BASES = {"pt-BR": "pt", "deu_Latn": "de", "zho_Hans": "zh", "EN": "en", "xx": "xx", "!": "!"}


@pytest.mark.parametrize(("code", "base"), BASES.items())
def test_base_language_has_no_script_or_region(code, base):
    assert base_language(code) == base


def test_store_direction_survives_saving(tiny_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    assert find_direction(tokenizer) == Direction()
    store_direction(tokenizer, PAIRS[:1] * 2)
    tokenizer.save_pretrained(tmp_path)
    assert find_direction(AutoTokenizer.from_pretrained(tmp_path)) == Direction("en", "de")
    tagged = copy.deepcopy(tokenizer)
    add_language_tags(tagged, PAIRS[2:])
    assert find_languages(tagged).directions == PAIRS[2:]  # the former one has no tag
    for unknown in ([Direction("en", None)], PAIRS, [*PAIRS[:1], Direction()]):
        store_direction(tokenizer, PAIRS[:1])
        store_direction(tokenizer, unknown)
        assert find_direction(tokenizer) == Direction()


def test_find_direction_asks_tokens_and_tokenizer(tagged, tiny_tokenizer):
    assert find_direction(tagged, "en", "fr") == Direction("en", "fr")
    nllb = find_direction(build_nllb_tokenizer(), "eng_Latn", "deu_Latn")
    assert nllb == Direction("eng_Latn", "deu_Latn")
    for source, target in (("source_lang", "target_lang"), ("src_lang", "tgt_lang")):
        tokenizer = copy.deepcopy(tiny_tokenizer)
        setattr(tokenizer, source, "en")
        setattr(tokenizer, target, "de")
        assert find_direction(tokenizer) == Direction("en", "de")


def test_find_direction_takes_variants_of_languages(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    assert find_direction(tokenizer, "en", "fr") == Direction("en", "fr")
    store_direction(tokenizer, PAIRS[:1])
    assert find_direction(tokenizer, "en_GB") == Direction("en_GB", "de")
    assert find_direction(tokenizer, target="deu_Latn") == Direction("en", "deu_Latn")
    message = "The target language must be de, as of the model, got fr."
    with pytest.raises(ValueError, match=message):
        find_direction(tokenizer, "en", "fr")


def test_languages_complete_a_direction_of_any_spelling(tagged):
    languages = find_languages(tagged)
    assert languages.resolve("EN", "de_AT") == Direction("en", "de")
    assert languages.tokens(Direction("en-US", "DE")) == languages.tokens(Direction("en", "de"))
    assert find_languages(tagged).complete("en") == Direction("en", None)
    nllb = find_languages(build_nllb_tokenizer())
    assert nllb.complete(target="fra_Latn") == Direction("eng_Latn", "fra_Latn")


@pytest.mark.parametrize(
    ("code", "other", "is_same"),
    [
        ("de", "de-AT", True),
        ("de_DE", "de-AT", True),
        ("deu_Latn", "de", True),
        ("zho_Hans", "zh-TW", True),
        ("iw", "he", True),
        ("no", "nb-NO", True),
        ("nn", "nb", False),
        ("de", "fr", False),
        ("de", "del", False),
        ("dik_Latn", "de", False),
    ],
)
def test_is_same_language_leaves_regions_and_scripts_aside(code, other, is_same):
    assert is_same_language(code, other) is is_same_language(other, code) is is_same


@pytest.mark.parametrize(
    ("code", "plurals", "ordinals"),
    [
        ("pl", ["one", "few", "many", "other"], ["other"]),
        ("eng_Latn", ["one", "other"], ["one", "two", "few", "other"]),
        ("ar-EG", ["zero", "one", "two", "few", "many", "other"], ["other"]),
        ("ja", ["other"], ["other"]),
        ("xx", [], []),
        (None, [], []),
    ],
)
def test_plural_categories_are_in_the_order_of_cldr(code, plurals, ordinals):
    assert plural_categories(code) == plurals
    assert plural_categories(code, is_ordinal=True) == ordinals


def test_is_language_knows_codes_of_any_form(monkeypatch):
    codes = ["en", "EN", "pt_BR", "zh-Hans", "deu", "eng_Latn", "hsb", "en-de"]
    others = ["", "eml", "tsv", "vue", "xcstrings", "py", "1", "x.y"]
    assert [code for code in [*codes, *others] if is_language(code)] == codes
    monkeypatch.setitem(sys.modules, "babel", None)
    without_babel = [code for code in [*codes, *others] if is_language(code)]
    assert without_babel == ["en", "EN", "pt_BR", "zh-Hans", "en-de", "py"]
