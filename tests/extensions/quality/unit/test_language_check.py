"""The page about a language pair names each fault of the text, with an example and its remedy."""

import unicodedata

import pytest

from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.quality import language_check
from vanilla_transformer.extensions.quality.language_check import check_language
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

NAMES = ["Anna", "Boris", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas"]
CLEAN = [
    SentencePair(f"{one} sees {two}.", f"{one} sieht {two}.")
    for one in NAMES
    for two in NAMES
    if one != two
]
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


def found(pairs, **changes):
    return {each.name: each for each in check_language(pairs, "en", "de", data(**changes)).findings}


@pytest.fixture(autouse=True)
def no_classifier(monkeypatch):
    """Leave the classifier of languages out: short names are in any language."""
    monkeypatch.setattr(language_check, "find_spec", lambda name: None)


def test_clean_text_has_no_finding():
    report = check_language(CLEAN, "en", "de", data())
    assert list(report.findings) == [] and report.pairs == report.sampled == len(CLEAN)
    assert [*report.lines()][-1] == "No findings."


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_with_its_line_and_its_remedy(name):
    pair, remedy = FAULTS[name]
    finding = found([*CLEAN, pair], normalization="none")[name]
    assert finding.remedy.startswith(remedy)
    assert "1 of 91 " in finding.text or "normal form" in finding.text
    assert f"line {len(CLEAN) + 1}: " in finding.example or ascii(pair.source) == finding.example


def test_keys_of_the_recipe_that_mend_a_fault_are_named_as_such():
    pairs = [*CLEAN, *(FAULTS[name][0] for name in ("duplicates", "identical"))]
    findings = found(pairs, drop=["duplicates"])
    assert findings["duplicates"].remedy == "`duplicates` in `drop` of the recipe mends it"
    assert findings["identical"].remedy == "drop: [identical]"


def test_normalization_is_a_finding_where_the_tokenizer_does_not_normalize(tmp_path):
    decomposed = [
        SentencePair(
            *(
                unicodedata.normalize("NFD", text)
                for text in ("Zoë sees Chloë.", "Zoë sieht Chloë.")
            )
        )
    ]
    pairs = [*CLEAN, *decomposed, FAULTS["normalization"][0]]
    report = check_language(pairs, "en", "de", data())
    assert not [each for each in report.findings if each.name == "normalization"]
    assert report.sides[0].changes == {"letters and marks apart (NFD)": 4, "NO-BREAK SPACE": 1}
    old = VanillaTransformerTokenizer.train_from_iterator(
        [text for pair in pairs for text in pair], 400, normalization="none"
    )
    old.save_pretrained(tmp_path)
    assert "train-tokenizer" in found(pairs, tokenizer=str(tmp_path))["normalization"].remedy


def test_several_kinds_of_quotation_marks_are_found():
    quoted = [SentencePair(f'"{name}" it is.', f"„{name}“ ist es.") for name in NAMES]
    assert "quotes" not in found([*CLEAN, *quoted])
    mixed = [
        pair if number % 2 else pair._replace(target=pair.source)
        for number, pair in enumerate(quoted)
    ]
    assert found([*CLEAN, *mixed])["quotes"].text.endswith('marks: " 5, „ 5.')


def test_much_longer_sequences_are_found():
    spelled = [SentencePair(source, " ".join(target)) for source, target in CLEAN]
    assert "The target has" in found(spelled)["tokens"].text


def test_marks_that_end_no_sentence_are_found():
    assert (
        "⁂"
        in found([SentencePair(f"{pair.source[:-1]}⁂", pair.target) for pair in CLEAN])[
            "sentences"
        ].text
    )
    assert "sentences" not in found(
        [SentencePair(f"{pair.source[:-1]}।", pair.target) for pair in CLEAN]
    )


def test_augmentations_that_do_not_suit_the_script_are_found():
    pairs = [SentencePair(target, source) for source, target in CLEAN]
    changes = {"augment": {"upper_case": 0.1, "emoji": 0.1}}
    assert "augmentation" not in found(pairs, **changes)
    indic = [SentencePair(f"{one} {SENTENCES['DEVANAGARI'][0]}", str(one)) for one in range(50)]
    finding = found(indic, **changes)["augmentation"]
    assert (
        finding.text.startswith("upper_case needs capitals, and 50 of 50 ")
        and "emoji" not in finding.remedy
    )


@pytest.mark.parametrize("script", SENTENCES)
def test_page_names_the_script_and_the_tokens_of_bleu(script):
    sentence, tokenizer = SENTENCES[script]
    pairs = [SentencePair(f"{one} {two}", sentence) for one in NAMES for two in NAMES]
    side = check_language(pairs, None, None, data()).sides[1]
    assert side.scripts == (script,) and side.bleu_tokenizer == tokenizer
    assert (side.tokens_per_word is None) == (script in ("THAI", "CJK", "HANGUL"))


def test_long_texts_are_sampled_and_duplicates_counted_in_all_of_them(monkeypatch):
    monkeypatch.setattr(language_check, "_SAMPLE", 50)
    report = check_language([*CLEAN, *CLEAN[:30]], "en", "de", data())
    assert (report.pairs, report.sampled) == (120, 50)
    assert "30 of 120 pairs (25.0%)" in next(
        each.text for each in report.findings if each.name == "duplicates"
    )


def test_text_without_a_character_is_refused():
    with pytest.raises(
        ValueError, match="There must be text to check, got no line with a character"
    ):
        check_language([SentencePair("", " ")], "en", "de", data())


@pytest.mark.parametrize("text", ["stone &amp; tile", "stone &#38; tile", "stone<br/>tile"])
def test_check_language_counts_an_entity_as_markup_alone(text):
    pair = SentencePair(f"Anna sees {text}.", "Anna sieht Stein und Fliesen.")
    names = found([*CLEAN, pair]).keys()
    assert "markup" in names and "placeholders" not in names
