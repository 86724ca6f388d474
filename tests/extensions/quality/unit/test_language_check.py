"""The page about a language pair names each fault of the text, with an example and its remedy."""

import unicodedata
from itertools import chain, permutations, product

import pytest

from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.quality import language_check
from vanilla_transformer.extensions.quality.language_check import check_language
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

NAMES = ["Anna", "Boris", "Clara", "David", "Emma", "Felix", "Greta", "Hugo"]
NAMES += ["Ida", "Jonas"]
CLEAN = []
for one, two in permutations(NAMES, 2):
    CLEAN.append(SentencePair(f"{one} sees {two}.", f"{one} sieht {two}."))
LONG = "again and again the same words come and go until no one can count them any more"
# A pair with each fault, and how the recipe mends it.
FAULTS = {
    "empty": (SentencePair("", "Anna schläft."), "drop: [empty]"),
    "without_letters": (SentencePair("(1) -", "Anna schläft."), "min_letter_ratio"),
    "identical": (SentencePair("Home page", "Home page"), "drop: [identical]"),
    "bad_encoding": (
        SentencePair("Anna sees Zoë.", "Anna schlÃ¤ft jetzt."),
        "drop: [bad_encoding]",
    ),
    "markup": (SentencePair("Anna <b>sees</b> Clara.", "Anna sieht Clara."), "drop: [markup]"),
    "numbers": (
        SentencePair("Anna sees 300 birds.", "Anna sieht 500 Vögel."),
        "drop: [other_numbers]",
    ),
    "placeholders": (SentencePair("Anna sees {name} now.", "Anna sieht jetzt alles."), "augment"),
    "other_scripts": (
        SentencePair("Anna sees Boris now.", "Анна видит Бориса."),
        "drop: [other_scripts]",
    ),
    "lengths": (SentencePair("Anna sees.", LONG), "max_length_ratio"),
    "duplicates": (CLEAN[5], "drop: [duplicates]"),
    "normalization": (
        SentencePair("Anna\u00a0sees Clara again.", "Anna sieht Clara wieder."),
        "normalization",
    ),
}
SENTENCES = {
    "LATIN": ("Der Hund schläft im Garten.", "13a"),
    "GREEK": ("Ο σκύλος κοιμάται στον κήπο.", "13a"),
    "CYRILLIC": ("Собака спит в саду.", "13a"),
    "ARABIC": ("الكلب ينام في الحديقة.", "13a"),
    "HEBREW": ("הכלב ישן בגינה.", "13a"),
    "DEVANAGARI": ("कुत्ता बगीचे में सोता है।", "13a"),
    "TAMIL": ("நாய் தோட்டத்தில் தூங்குகிறது.", "13a"),
    "THAI": ("สุนัขนอนหลับในสวน", "char"),
    "CJK": ("狗在花园里睡觉。", "zh"),
    "HANGUL": ("개가 정원에서 잔다.", "char"),
}


def data(**changes):
    return DataArguments(train_source="a", train_target="b", vocab_size=400, **changes)


def find_faults(pairs, **changes):
    report = check_language(pairs, "en", "de", data(**changes))
    return {finding.name: finding for finding in report.findings}


@pytest.fixture(autouse=True)
def no_classifier(monkeypatch):
    """Leave the classifier of languages out: short names are in any language."""
    monkeypatch.setattr(language_check, "find_spec", lambda name: None)


def test_clean_text_has_no_finding():
    report = check_language(CLEAN, "en", "de", data())
    assert list(report.findings) == []
    assert report.pairs == report.sampled == len(CLEAN)
    assert [*report.lines()][-1] == "No findings."


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_with_its_line_and_its_remedy(name):
    pair, remedy = FAULTS[name]
    finding = find_faults([*CLEAN, pair], normalization="none")[name]
    assert finding.remedy.startswith(remedy)
    assert "1 of 91 " in finding.text or "normal form" in finding.text
    line = f"line {len(CLEAN) + 1}: "
    assert line in finding.example or ascii(pair.source) == finding.example


def test_keys_of_the_recipe_that_mend_a_fault_are_named_as_such():
    pairs = [*CLEAN, FAULTS["duplicates"][0], FAULTS["identical"][0]]
    findings = find_faults(pairs, drop=["duplicates"])
    remedy = "`duplicates` in `drop` of the recipe mends it"
    assert findings["duplicates"].remedy == remedy
    assert findings["identical"].remedy == "drop: [identical]"


def test_normalization_is_found_where_the_tokenizer_lacks_it(tmp_path):
    texts = ("Zoë sees Chloë.", "Zoë sieht Chloë.")
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    pairs = [*CLEAN, SentencePair(*decomposed), FAULTS["normalization"][0]]
    report = check_language(pairs, "en", "de", data())
    assert "normalization" not in [finding.name for finding in report.findings]
    changes = {"letters and marks apart (NFD)": 4, "NO-BREAK SPACE": 1}
    assert report.sides[0].changes == changes
    train = VanillaTransformerTokenizer.train_from_iterator
    train(chain(*pairs), 400, normalization="none").save_pretrained(tmp_path)
    findings = find_faults(pairs, tokenizer=str(tmp_path))
    assert "train-tokenizer" in findings["normalization"].remedy


def test_several_kinds_of_quotation_marks_are_found():
    quoted = [SentencePair(f'"{name}" it is.', f"„{name}“ ist es.") for name in NAMES]
    assert "quotes" not in find_faults([*CLEAN, *quoted])
    mixed = [pair._replace(target=pair.source) for pair in quoted[::2]]
    mixed += quoted[1::2]
    assert find_faults([*CLEAN, *mixed])["quotes"].text.endswith('marks: " 5, „ 5.')


def test_much_longer_sequences_are_found():
    spelled = [SentencePair(source, " ".join(target)) for source, target in CLEAN]
    assert "The target has" in find_faults(spelled)["tokens"].text


def test_marks_that_end_no_sentence_are_found():
    def end_with(mark):
        return [SentencePair(pair.source[:-1] + mark, pair.target) for pair in CLEAN]

    assert "⁂" in find_faults(end_with("⁂"))["sentences"].text
    assert "sentences" not in find_faults(end_with("।"))


def test_augmentations_that_do_not_suit_the_script_are_found():
    pairs = [SentencePair(target, source) for source, target in CLEAN]
    changes = {"augment": {"upper_case": 0.1, "emoji": 0.1}}
    assert "augmentation" not in find_faults(pairs, **changes)
    sentence, _ = SENTENCES["DEVANAGARI"]
    indic = [SentencePair(f"{one} {sentence}", str(one)) for one in range(50)]
    finding = find_faults(indic, **changes)["augmentation"]
    assert finding.text.startswith("upper_case needs capitals, and 50 of 50 ")
    assert "emoji" not in finding.remedy


@pytest.mark.parametrize("script", SENTENCES)
def test_page_names_the_script_and_the_tokens_of_bleu(script):
    sentence, tokenizer = SENTENCES[script]
    names = product(NAMES, repeat=2)
    pairs = [SentencePair(f"{one} {two}", sentence) for one, two in names]
    side = check_language(pairs, None, None, data()).sides[1]
    assert side.scripts == (script,)
    assert side.bleu_tokenizer == tokenizer
    assert (side.tokens_per_word is None) == (script in ("THAI", "CJK", "HANGUL"))


def test_long_texts_are_sampled_and_duplicates_counted_in_all(monkeypatch):
    monkeypatch.setattr(language_check, "_SAMPLE", 50)
    report = check_language([*CLEAN, *CLEAN[:30]], "en", "de", data())
    assert (report.pairs, report.sampled) == (120, 50)
    texts = {finding.name: finding.text for finding in report.findings}
    assert "30 of 120 pairs (25.0%)" in texts["duplicates"]


def test_text_without_a_character_is_refused():
    message = "There must be text to check, got no line with a character"
    with pytest.raises(ValueError, match=message):
        check_language([SentencePair("", " ")], "en", "de", data())


TEXTS = ["stone &amp; tile", "stone &#38; tile", "stone<br/>tile"]


@pytest.mark.parametrize("text", TEXTS)
def test_check_language_counts_an_entity_as_markup_alone(text):
    pair = SentencePair(f"Anna sees {text}.", "Anna sieht Stein und Fliesen.")
    names = find_faults([*CLEAN, pair]).keys()
    assert "markup" in names
    assert "placeholders" not in names
