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
TEXTS = [CLEAN, "Zwei Hunde laufen über das grüne Gras.", "می‌خواهم کتاب‌ها"]
TEXTS = [*TEXTS, "क्‍ष हिन्दी", "👩‍🚀 runs"] * 2
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
KEPT = ["می\u200cخواهم", "PDF\u200cها", "क्\u200dष", "👩\u200d🚀", "✌\ufe0f"]
KEPT += ["²½™ ＡＢ ﬁ", "„curly’ quotes“", "\u180e"]
PARTS = [" ", "\u00a0", "\u00ad", "\u200b", "\u200c", "\u200d", "\u0301"]
PARTS += ["a", "é", "م", "न", "日本", "."]
any_character = st.characters(exclude_categories=["Cs", "Cn"])
any_text = st.text(any_character) | st.lists(st.sampled_from(PARTS)).map("".join)
learn = VanillaTransformerTokenizer.train_from_iterator


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def tokenizer(request):
    return learn(TEXTS, 400, model=request.param)


@pytest.fixture(scope="module")
def old_tokenizer():
    return learn(TEXTS, 400, normalization="none")


@pytest.mark.parametrize("change", DIRTY)
def test_dirty_text_has_the_ids_of_clean_text(tokenizer, old_tokenizer, change):
    clean = tokenizer(CLEAN)["input_ids"]
    assert tokenizer(DIRTY[change])["input_ids"] == clean
    assert tokenizer(text_target=DIRTY[change])["input_ids"] == clean
    former = old_tokenizer(CLEAN)["input_ids"]
    assert old_tokenizer(DIRTY[change])["input_ids"] != former
    assert with_normalization(old_tokenizer)(DIRTY[change])["input_ids"] == former


@pytest.mark.parametrize("text", KEPT)
def test_characters_with_a_meaning_are_kept(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_vocabularies_of_dirty_and_clean_text_are_equal():
    clean, dirty = [CLEAN] * 4, [DIRTY["all spaces no-break"]] * 4
    for model in ("bpe", "unigram", "wordpiece"):
        vocabulary = learn(clean, 300, model=model).get_vocab()
        assert vocabulary == learn(dirty, 300, model=model).get_vocab()


@given(text=any_text)
@example(text=" \u00a0\u200b\ufeff")
def test_normalizing_twice_changes_nothing(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    (once,) = tokenizer.batch_decode([ids], skip_special_tokens=True)
    assert once == normal_form(text) == normal_form(once)
    assert tokenizer(once)["input_ids"] == tokenizer(text)["input_ids"]


@given(text=any_text)
def test_offsets_point_into_the_text_as_it_is(tokenizer, text):
    options = {"return_offsets_mapping": True, "add_special_tokens": False}
    mapping = tokenizer(text, **options)["offset_mapping"]
    offsets = [offset for offset in mapping if offset != (0, 0)]
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)


def test_nfkc_replaces_compatible_characters_and_none_keeps_all():
    text = "ﬁn ²\u00a0ＡＢ  e\u0301 "
    expected = {"nfc": "ﬁn ² ＡＢ é", "nfkc": "fin 2 AB é", "none": text}
    for normalization in NORMALIZATIONS:
        tokenizer = learn(TEXTS, 300, normalization=normalization)
        ids = tokenizer(text)["input_ids"]
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        assert decoded == expected[normalization]


def test_normalization_is_stored_in_the_file_of_the_tokenizer(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    plain = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert plain(DIRTY["decomposed"])["input_ids"] == tokenizer(CLEAN)["input_ids"]
    assert with_normalization(AutoTokenizer.from_pretrained(tmp_path)) is not None


def test_none_writes_the_normalizer_of_older_tokenizers(old_tokenizer):
    state = json.loads(old_tokenizer.backend_tokenizer.to_str())
    assert state["normalizer"] == {"type": "Prepend", "prepend": " "}


# --- Tokenizers that do not normalize -------------------------------------------------------------


def test_with_normalization_leaves_the_given_tokenizer_alone(old_tokenizer, tokenizer):
    before = old_tokenizer.backend_tokenizer.to_str()
    assert with_normalization(old_tokenizer) is not old_tokenizer
    assert old_tokenizer.backend_tokenizer.to_str() == before
    assert with_normalization(tokenizer) is tokenizer


def with_state(tokenizer, **changes):
    """Return a tokenizer with another state of its backend."""
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str()) | changes
    backend = type(backend).from_str(json.dumps(state))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_with_normalization_adds_no_prefix(old_tokenizer):
    """Add none where there was none."""
    plain = with_state(old_tokenizer, normalizer=None)
    normalizing = with_normalization(plain)
    assert normalizing("\u00a0a\u00a0man ")["input_ids"] == plain("a man")["input_ids"]


@pytest.mark.parametrize("normalizer", ["nmt", "nfc"])
def test_with_normalization_refuses_what_it_would_replace(old_tokenizer, normalizer):
    kind = {"type": {"nmt": "Nmt", "nfc": "NFC"}[normalizer]}
    imported = with_state(old_tokenizer, normalizer=kind)
    message = "`normalize` is for tokenizers that leave text as it is, .* its own: N"
    with pytest.raises(ValueError, match=message):
        with_normalization(imported)
    message = "`normalize` needs a tokenizer with `tokenizer.json`, got object"
    with pytest.raises(ValueError, match=message):
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


def test_commands_with_normalize_read_dirty_text(old_tokenizer, tmp_path, capsys):
    model = tiny_model(vocab_size=len(old_tokenizer))
    path = tmp_path / "model" / "tokenizer.json"
    folder = str(save_model_folder(model, old_tokenizer, path.parent))
    dirty = DIRTY["one no-break space"]
    shown = []
    for words in ([CLEAN], [dirty, "--normalize"], [dirty]):
        assert main(["translate", folder, *words]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    imported = json.loads(path.read_text()) | {"normalizer": {"type": "NFKC"}}
    path.write_text(json.dumps(imported))
    assert main(["translate", folder, dirty, "--normalize"]) == 2
    assert "has its own: NFKC." in capsys.readouterr().err


def test_links_point_into_the_text_as_it_is(tokenizer):
    model = tiny_model(vocab_size=len(tokenizer), alignment_heads=[[0, 0]])
    translate = TranslationPipeline(model, tokenizer)
    dirty = "A \u00a0 m\u00ada\u0308n runs"
    (clean,) = translate("A män runs", return_alignments=True)
    (answer,) = translate(dirty, return_alignments=True)
    assert answer["translation_text"] == clean["translation_text"]
    read = set()
    for link in answer["alignment"]:
        read.add(normal_form(dirty[link.source_start : link.source_end]))
    assert read <= {"A", "män", "runs"} and read


NUMBERS = ["1\u00a0234\u202f567", "01.02.2026", "12\u00a0345,50"]


@pytest.mark.parametrize("number", NUMBERS)
def test_protected_numbers_keep_their_own_spaces(tokenizer, number):
    model = tiny_model(vocab_size=len(tokenizer))
    translate = TranslationPipeline(model, tokenizer, max_new_tokens=20)
    (answer,) = translate(f"A man runs {number} km.")
    assert number in answer["translation_text"]
