"""Text from word processors, PDF files and the web has the ids of clean text, and answers point
into it as it is.
"""

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.tiny import tiny_model
from tests.unicode_texts import normal_form
from vanilla_transformer import TranslationPipeline, VanillaTransformerTokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.data.data_arguments import NORMALIZATIONS
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.tokenization_vanilla_transformer import with_normalization

CLEAN = "A man isn't walking über 3,5 km."
TEXTS = [
    CLEAN,
    "Zwei Hunde laufen über das grüne Gras.",
    "می‌خواهم کتاب‌ها",
    "क्‍ष हिन्दी",
    "👩‍🚀 runs",
] * 2
DIRTY = {
    # Each of these cost an older model 5 BLEU or more.
    "one no-break space": CLEAN.replace(" ", "\u00a0", 1),
    "one narrow no-break space": CLEAN.replace(" ", "\u202f", 1),
    "one tab": CLEAN.replace(" ", "\t", 1),
    "all spaces no-break": CLEAN.replace(" ", "\u00a0"),
    "all spaces doubled": CLEAN.replace(" ", "  "),
    "byte order mark": "\ufeff" + CLEAN,
    "left-to-right mark": "\u200e" + CLEAN,
    "soft hyphen in a word": CLEAN.replace("walking", "walk\u00ading"),
    "zero-width space in a word": CLEAN.replace("walking", "walk\u200bing"),
    "decomposed": unicodedata.normalize("NFD", CLEAN),
    # Their neighbors.
    "ideographic space": CLEAN.replace(" ", "\u3000"),
    "thin and figure spaces": CLEAN.replace(" ", "\u2009\u2007"),
    "line separator within": CLEAN.replace(" ", "\u2028", 1),
    "next line, vertical tab, form feed": CLEAN.replace(" ", "\x85\x0b\x0c", 1),
    "white space at both ends": f" \u00a0{CLEAN}\u2003\t",
    "word joiner": CLEAN.replace("walking", "walk\u2060ing"),
    "bidi embedding": f"\u202a{CLEAN}\u202c",
    "bidi isolate": f"\u2068{CLEAN}\u2069",
    "control characters": CLEAN.replace("man", "m\x00a\x07\x7f\x9fn"),
    "unit separators": CLEAN.replace(" ", "\x1f"),
    "idle joiners": CLEAN.replace("walking", "walk\u200cin\u200dg"),
    "space beside a zero-width space": CLEAN.replace(" ", " \u200b "),
    "mark after a soft hyphen": CLEAN.replace("ü", "u\u00ad\u0308"),
}
KEPT = [
    "می\u200cخواهم",
    "PDF\u200cها",
    "क्\u200dष",
    "👩\u200d🚀",
    "✌\ufe0f",
    "²½™ ＡＢ ﬁ",
    "„curly’ quotes“",
    "\u180e",
]
any_text = st.text(st.characters(exclude_categories=["Cs", "Cn"])) | st.lists(
    st.sampled_from(
        [
            " ",
            "\u00a0",
            "\u00ad",
            "\u200b",
            "\u200c",
            "\u200d",
            "\u0301",
            "a",
            "é",
            "م",
            "न",
            "日本",
            ".",
        ]
    )
).map("".join)


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def tokenizer(request):
    return VanillaTransformerTokenizer.train_from_iterator(TEXTS, 400, model=request.param)


@pytest.fixture(scope="module")
def old_tokenizer():
    return VanillaTransformerTokenizer.train_from_iterator(TEXTS, 400, normalization="none")


@pytest.mark.parametrize("change", DIRTY)
def test_dirty_text_has_the_ids_of_clean_text(tokenizer, old_tokenizer, change):
    clean = tokenizer(CLEAN)["input_ids"]
    assert tokenizer(DIRTY[change])["input_ids"] == clean
    assert tokenizer(text_target=DIRTY[change])["input_ids"] == clean
    assert old_tokenizer(DIRTY[change])["input_ids"] != old_tokenizer(CLEAN)["input_ids"]
    assert (
        with_normalization(old_tokenizer)(DIRTY[change])["input_ids"]
        == old_tokenizer(CLEAN)["input_ids"]
    )


@pytest.mark.parametrize("text", KEPT)
def test_characters_with_a_meaning_are_kept(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_vocabularies_of_dirty_and_clean_text_are_equal():
    clean, dirty = ([text] * 4 for text in (CLEAN, DIRTY["all spaces no-break"]))
    learn = VanillaTransformerTokenizer.train_from_iterator
    for model in ("bpe", "unigram", "wordpiece"):
        assert (
            learn(clean, 300, model=model).get_vocab() == learn(dirty, 300, model=model).get_vocab()
        )


@given(text=any_text)
@example(text=" \u00a0\u200b\ufeff")
def test_normalizing_twice_changes_nothing(tokenizer, text):
    (once,) = tokenizer.batch_decode([tokenizer(text)["input_ids"]], skip_special_tokens=True)
    assert once == normal_form(text) == normal_form(once)
    assert tokenizer(once)["input_ids"] == tokenizer(text)["input_ids"]


@given(text=any_text)
def test_offsets_point_into_the_text_as_it_is(tokenizer, text):
    found = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    places = [place for place in found["offset_mapping"] if place != (0, 0)]
    assert all(0 <= start <= end <= len(text) for start, end in places)
    assert places == sorted(places)


def test_nfkc_replaces_compatibility_characters_and_none_keeps_all():
    expected = {"nfc": "ﬁn ² ＡＢ é", "nfkc": "fin 2 AB é", "none": "ﬁn ²\u00a0ＡＢ  e\u0301 "}
    for normalization in NORMALIZATIONS:
        tokenizer = VanillaTransformerTokenizer.train_from_iterator(
            TEXTS, 300, normalization=normalization
        )
        ids = tokenizer("ﬁn ²\u00a0ＡＢ  e\u0301 ")["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == expected[normalization]


def test_normalization_is_stored_in_the_file_of_the_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    plain = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert plain(DIRTY["decomposed"])["input_ids"] == tokenizer(CLEAN)["input_ids"]
    assert with_normalization(AutoTokenizer.from_pretrained(tmp_path)) is not None


def test_none_writes_the_normalizer_of_older_tokenizers(old_tokenizer):
    assert json.loads(old_tokenizer.backend_tokenizer.to_str())["normalizer"] == {
        "type": "Prepend",
        "prepend": " ",
    }


# --- Tokenizers that do not normalize -------------------------------------------------------------


def test_with_normalization_leaves_the_given_tokenizer_alone(old_tokenizer, tokenizer):
    before = old_tokenizer.backend_tokenizer.to_str()
    assert with_normalization(old_tokenizer) is not old_tokenizer
    assert old_tokenizer.backend_tokenizer.to_str() == before
    assert with_normalization(tokenizer) is tokenizer


def test_with_normalization_adds_no_prefix_where_there_was_none(old_tokenizer):
    state = json.loads(old_tokenizer.backend_tokenizer.to_str()) | {"normalizer": None}
    plain = PreTrainedTokenizerFast(
        tokenizer_object=type(old_tokenizer.backend_tokenizer).from_str(json.dumps(state))
    )
    normalizing = with_normalization(plain)
    assert normalizing("\u00a0a\u00a0man ")["input_ids"] == plain("a man")["input_ids"]


@pytest.mark.parametrize("normalizer", ["nmt", "nfc"])
def test_with_normalization_refuses_what_it_would_replace(old_tokenizer, normalizer):
    state = json.loads(old_tokenizer.backend_tokenizer.to_str())
    state["normalizer"] = {"type": {"nmt": "Nmt", "nfc": "NFC"}[normalizer]}
    imported = PreTrainedTokenizerFast(
        tokenizer_object=type(old_tokenizer.backend_tokenizer).from_str(json.dumps(state))
    )
    with pytest.raises(
        ValueError, match=r"`normalize` is for tokenizers that leave text as it is, .* its own: N"
    ):
        with_normalization(imported)
    with pytest.raises(
        ValueError, match="`normalize` needs a tokenizer with `tokenizer.json`, got object"
    ):
        with_normalization(object())


# --- Answers --------------------------------------------------------------------------------------


def test_pipeline_with_normalize_translates_dirty_text_as_clean(old_tokenizer):
    model = tiny_model(vocab_size=len(old_tokenizer))
    plain = TranslationPipeline(model, old_tokenizer)
    normalizing = TranslationPipeline(model, old_tokenizer, normalize=True)
    dirty = [DIRTY["one no-break space"], DIRTY["decomposed"]]
    assert plain(CLEAN) == normalizing(CLEAN)
    assert normalizing(dirty) == [*plain(CLEAN)] * 2
    assert plain(dirty) != [*plain(CLEAN)] * 2


def test_commands_with_normalize_read_dirty_text_as_clean(old_tokenizer, tmp_path, capsys):
    folder = str(
        save_model_folder(
            tiny_model(vocab_size=len(old_tokenizer)), old_tokenizer, tmp_path / "model"
        )
    )
    dirty = DIRTY["one no-break space"]
    shown = []
    for words in ([CLEAN], [dirty, "--normalize"], [dirty]):
        assert main(["translate", folder, *words]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    imported = json.loads((tmp_path / "model" / "tokenizer.json").read_text()) | {
        "normalizer": {"type": "NFKC"}
    }
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(imported))
    assert main(["translate", folder, dirty, "--normalize"]) == 2
    assert "has its own: NFKC." in capsys.readouterr().err


def test_links_point_into_the_text_as_it_is(tokenizer):
    model = tiny_model(vocab_size=len(tokenizer), alignment_heads=[[0, 0]])
    translate = TranslationPipeline(model, tokenizer)
    dirty = "A \u00a0 m\u00ada\u0308n runs"
    (clean,) = translate("A män runs", return_alignments=True)
    (found,) = translate(dirty, return_alignments=True)
    assert found["translation_text"] == clean["translation_text"]
    read = {normal_form(dirty[link.source_start : link.source_end]) for link in found["alignment"]}
    assert read <= {"A", "män", "runs"} and read


@pytest.mark.parametrize("number", ["1\u00a0234\u202f567", "01.02.2026", "12\u00a0345,50"])
def test_protected_numbers_keep_their_own_spaces(tokenizer, number):
    translate = TranslationPipeline(
        tiny_model(vocab_size=len(tokenizer)), tokenizer, max_new_tokens=20
    )
    (answer,) = translate(f"A man runs {number} km.")
    assert number in answer["translation_text"]
