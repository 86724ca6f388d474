"""Sentence splitters keep abbreviations together, and lines come back from their sentences."""

import pytest
from babel import Locale
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import split_line, splitter_of
from vanilla_transformer.decoding.sentence_splitter import (
    _WITH_ORDINALS,
    AbbreviationSplitter,
    find_splitter,
    sentence_ranges,
    split_simply,
)
from vanilla_transformer.pipeline_vanilla_transformer import Segment


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith slept.", "He woke up."]),
        (
            "en",
            [
                "Mr. and Mrs. Brown live on St. James St. in Boston.",
                "They have a dog, e.g. a poodle.",
            ],
        ),
        ("en", ["It costs 3.50 dollars.", '"Really?" she asked.', "Yes!"]),
        ("de", ["Dr. Schmidt schläft.", "Er ist müde."]),
        ("de", ["Viele Tiere, z. B. Hunde, schlafen viel.", "Das ist bekannt."]),
        ("de", ["Am 3. Mai kam Prof. Weber an.", "Er blieb ca. zwei Tage."]),
        *((code, ["Das ist bzw. Das war."]) for code in ("DE", "de_AT", "de-CH", "deu_Latn")),
        *((code, ["O Exmo. Silva foi."]) for code in ("pt", "pt_BR", "pt-PT", "por", "PT")),
        *((code, ["我去了。", "他来了。"]) for code in ("zh", "zh-TW", "zho_Hant", "xx")),
        ("km", ["ខ្ញុំទៅ។", "គាត់មក។"]),
        ("bo", ["ང་འགྲོ།", "ཁོང་ཡོང་།"]),
        ("el", ["Τι κάνεις\u037e", "Καλά."]),
    ],
)
def test_abbreviation_splitter_keeps_abbreviations_together(language, sentences):
    space = "" if sentences[0].endswith("。") else " "
    assert AbbreviationSplitter(language)(space.join(sentences)) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Im 19. Jahrhundert war das so.", "Das war 2020.", "Danach kam er."]),
        ("de", ["1. ein Hund"]),
        ("de", ["Es war am 3. 4. 2020.", "Er kam um 12.30.", "Dann ging er."]),
        ("nb", ["Den 2. Verdenskrig var her.", "Så kom han."]),
        ("no", ["Den 2. Verdenskrig var her."]),
        ("hu", ["A 19. Század volt.", "Jött."]),
        ("pl", ["W 19. Wieku było."]),
        ("tr", ["Bu 19. Yüzyılda oldu."]),
        ("fin_Latn", ["Suomen 2. Kaupunki on."]),
        *((code, ["On 2.", "Abc."]) for code in ("en", "fr", "es", "ru", "ja", "xx")),
        *(
            (code, ["On 2. Abc."])
            for code in ("cs", "da", "et", "hr", "is", "lv", "nn", "sk", "sl", "sr", "eu")
        ),
        ("en", ["He is 19.", "She is 20.", "It was 2020.", "Then they met."]),
        ("en", ["1. A dog sleeps.", "2. A cat sleeps."]),
        ("en", ["On the 2. floor."]),
        ("fr", ["1. Un chien.", "Il a 19.", "Elle a 20."]),
        (None, ["Im 19. Jahrhundert war das so.", "Das war 2020.", "Mr. Brown slept."]),
        (None, ["1. A dog."]),
        (
            "simple",
            ["Im 19. Jahrhundert war das so.", "Das war 2020.", "1. A dog.", "It is v1.2.", "Yes"],
        ),
    ],
)
def test_splitters_do_not_cut_after_ordinals_and_numbers_of_items(language, sentences):
    split = split_simply if language == "simple" else AbbreviationSplitter(language)
    assert split(" ".join(sentences)) == sentences


# The language, and sentences within which the splitters cut no more
WITHIN = [
    ("et", ["Ta lõpetas 1950. aastal kooli.", "Siis ta läks."]),
    ("bs", ["Rođen je 1839. godine.", "Bio je pisac."]),
    ("lv", ["Tas notika 1995.-1996. gada sezonā.", "Tad viņš aizgāja."]),
    ("sr", ["Рођен је 1950. године.", "Био је писац."]),
    ("hr", ["Od 1995./1996. sezone igra.", "Tada je otišao."]),
    ("de", ["Piquet Jr. crashte.", "Er kam ins Ziel."]),
    ("lt", ["Jis surinko 88 proc. taškų.", "Buvo 11 val. vietos laiku."]),
    ("fr", ["Le brevet N°. 1026 est ici.", "Il dort."]),
    ("pt", ["A lei n°. 12 vale.", "Sim."]),
    ("gl", ["O 3.º rexemento durme.", "Chove en Ga. (e na costa)."]),
    ("en", ["Well... maybe.", "He said “no.” and left.", "It rains in Can. “too.”"]),
    ("my", ["မြန်မာ၊ ထိုင်း၏ မြို့။", "ရုရှား။"]),
    # A text without capitals, and apostrophes of words that begin sentences
    ("en", ["hello there.", "how are you.", "fine."]),
    ("af", ["Dit is so.", "'n Hond slaap."]),
]


@pytest.mark.parametrize(("language", "sentences"), WITHIN)
def test_splitters_do_not_cut_before_lower_case(language, sentences):
    text = " ".join(sentences)
    assert split_simply(text) == sentences
    if language != "af":  # sentencex leaves the apostrophe at the sentence before
        assert AbbreviationSplitter(language)(text) == sentences


def test_ordinals_end_in_a_period_where_the_days_of_cldr_do():
    languages = _WITH_ORDINALS.pattern.split("|")
    patterns = {code: Locale.parse(code).date_formats["long"].pattern for code in languages}
    assert {code for code in languages if "d." not in patterns[code]} == {"eu", "pl", "tr"}
    for code in ("en", "fr", "es", "it", "ru", "pt", "nl", "zh", "ja"):
        assert "d." not in Locale.parse(code).date_formats["long"].pattern
        assert not _WITH_ORDINALS.fullmatch(code)


SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]


@pytest.mark.parametrize("language", ["en", "de", "ru", "hi", "it", "ja"])
def test_abbreviation_splitter_splits_text_with_spaces_of_any_kind(language):
    """sentencex 1.0.32 panics at a letter, a space of several bytes and a full stop."""
    split = AbbreviationSplitter(language)
    for space in SPACES:
        for letter in "CZzÉЯ中1":
            text = f"This is vitamin {letter}{space}. A man{space}sleeps."
            sentences = split(text)
            if not space.isascii():
                plain = [sentence.replace(space, " ") for sentence in sentences]
                assert plain == split(text.replace(space, " "))
            spans = sentence_ranges(text, split)
            assert [text[start:end] for start, end in spans] == sentences


class PanicException(BaseException):
    """Like the one of `pyo3_runtime`, which has no `Exception` among its bases."""


@pytest.mark.parametrize("error", [PanicException, KeyboardInterrupt, SystemExit, MemoryError])
def test_abbreviation_splitter_survives_panics_alone(error, caplog):
    split = AbbreviationSplitter("en")

    def fail(*arguments):
        raise error("index out of bounds")

    split._segment = fail
    if error is not PanicException:
        with pytest.raises(error):
            split("A man.")
        return
    with caplog.at_level("WARNING", "vanilla_transformer"):
        assert split("Dr. Smith slept. He woke up.") == ["Dr.", "Smith slept.", "He woke up."]
    (record,) = caplog.records
    assert record.getMessage() == (
        "'Dr. Smith slept. He woke up.' is split after each mark that ends a sentence, because "
        "sentencex failed: index out of bounds."
    )


def test_find_splitter_finds_functions_by_name():
    assert find_splitter("simple")("Dr. Smith slept.") == ["Dr.", "Smith slept."]
    assert find_splitter("textwrap:wrap")("One. Two.") == ["One. Two."]
    message = "`sentence_splitter` must be 'abbreviations', 'simple' or the place"
    with pytest.raises(ValueError, match=message):
        find_splitter("nowhere:split")


def test_sentence_ranges_rejects_a_splitter_that_changes_text():
    assert sentence_ranges(" a. b.", lambda text: ["a.", "b."]) == [(1, 3), (4, 6)]
    for wrong in (["b.", "a."], ["a."], ["a.", "B."], []):
        with pytest.raises(ValueError, match="in order and unchanged"):
            sentence_ranges(" a. b.", lambda text, wrong=wrong: wrong)
    for wrong in (None, "a. b.", [1]):
        message = "`sentence_splitter` must return a list of strings, got "
        with pytest.raises(ValueError, match=message):
            sentence_ranges(" a. b.", lambda text, wrong=wrong: wrong)


TEXTS = st.text(st.sampled_from("ab. !?。\u00a0\t"), min_size=1)


@given(TEXTS, st.sampled_from(["", "\n", "\n \n"]))
def test_split_line_keeps_white_space(text, separator):
    line = Segment(text.strip() or "a", separator)
    segments = [*split_line(line, split_simply)]
    joined = "".join(segment.text + segment.separator for segment in segments)
    assert joined == line.text + separator
    assert all(segment.text == segment.text.strip() != "" for segment in segments)


def test_splitter_of_follows_the_options():
    def splitter(split=None, name=None, **others):
        options = TranslationOptions(split_sentences=split, sentence_splitter=name, **others)
        return splitter_of(options)

    assert splitter() is None
    assert splitter(False, str.splitlines) is None
    assert splitter(None, str.splitlines) is str.splitlines
    assert splitter(True, "simple") is split_simply
    german = splitter(True, source_language="de")
    assert isinstance(german, AbbreviationSplitter) and german.language == "de"
    assert splitter(True, src_lang="deu_Latn").language == "de"
    assert splitter(True).language == "en"
    assert splitter(True, src_lang="fr", source_language="pt_BR").language == "pt"


def test_abbreviation_splitter_splits_a_long_text_as_a_short_one():
    paragraph = "Dr. Smith sleeps. He is tired! " * 1000
    expected = ["Dr. Smith sleeps.", "He is tired!"] * 1000
    assert AbbreviationSplitter("en")(paragraph) == expected
    long = AbbreviationSplitter("en")("[a] " * 5000 + "A dog. A cat.")
    assert "".join(long).replace(" ", "") == "[a]" * 5000 + "Adog.Acat."
    assert long[-1] == "A cat."
