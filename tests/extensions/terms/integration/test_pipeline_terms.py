"""The pipeline uses translations of a glossary: soft ones are written beside their terms, hard ones
constrain.
"""

import pytest

from tests.model_variants import model_with_inline_terms
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.extensions.terms import terms
from vanilla_transformer.text.glossary import Glossary

TEXTS = ["A man is sleeping.", "Two dogs run. A man runs.", "Grass", ""]
TERMS = {"man": "Mann", "two dogs": "zwei Hunde"}
ANNOTATED = [
    "A <term> man <trans> Mann </term> is sleeping.",
    "<term> Two dogs <trans> zwei Hunde </term> run. A <term> man <trans> Mann </term> runs.",
    "Grass",
    "",
]


@pytest.fixture(scope="module")
def translate():
    model = model_with_inline_terms(alignment_heads=[[0, 0]])
    return TranslationPipeline(*model, device="cpu")


def assert_equal(answers, expected):
    """Compare answers.

    The last digits of a score depend on the other sentences of its batch on some processors.
    """
    for answer, reference in zip(answers, expected, strict=True):
        if isinstance(answer, list):  # of several hypotheses
            assert_equal(answer, reference)
        else:
            assert answer == pytest.approx(reference)


def test_pipeline_warns_of_terms_that_a_translation_lacks(translate):
    glossary = Glossary(TERMS.items())
    texts = [*TEXTS, "See http://man.example/ now."]
    answers = translate(texts, glossary=glossary, return_warnings=True)
    warned = ["terms" in answer["warnings"] for answer in answers]
    assert any(warned)
    assert warned.pop() is False
    for text, answer, is_warned in zip(TEXTS, answers[:-1], warned, strict=True):
        assert is_warned == glossary.is_ignored(text, answer["translation_text"])
    hard = translate(TEXTS, glossary=TERMS, term_mode="hard", return_warnings=True)
    for answer in hard:
        assert "terms" not in answer["warnings"]


OPTIONS = [{}, {"return_scores": True}, {"num_beams": 2, "mbr": "chrf"}]


@pytest.mark.parametrize("options", OPTIONS)
def test_pipeline_translates_annotated_text(translate, options):
    expected = translate(ANNOTATED, **options)
    answers = translate(TEXTS, glossary=TERMS, **options)
    assert answers == expected
    assert answers != translate(TEXTS, **options)
    pairs = list(TERMS.items())
    assert translate(TEXTS, glossary=pairs, term_mode="soft", **options) == expected


TWO_MEN = "A man sees a man."
EXACT_TERMS = [
    ("A man is sleeping.", "Der Mann schläft.", False),
    ("A man is sleeping.", "Männer schlafen.", True),
    ("A man is sleeping.", "Der Mannes schläft.", True),
    (TWO_MEN, "Ein Mann sieht einen Mann.", False),
    (TWO_MEN, "Ein Mann sieht ihn.", True),
]


@pytest.mark.parametrize(("source", "answer", "is_constrained"), EXACT_TERMS)
def test_exact_terms_constrain_only_what_lacks_one(
    translate, monkeypatch, source, answer, is_constrained
):
    searched = []

    def search(sentences, options, report):
        rows = []
        for sentence in sentences:
            searched.append(bool(sentence.phrases))
            rows.append([Translation(answer)])
        return rows

    monkeypatch.setattr(translate, "search", search)
    translate(source, glossary={"man": "Mann"}, term_mode="exact", num_beams=2)
    assert searched == [False, True][: 1 + is_constrained]


def test_pipeline_constrains_the_search_by_exact_terms(translate):
    options = {"num_beams": 2, "return_scores": True}
    constraints = [["Mann"], ["zwei Hunde"], [], []]
    texts = [TEXTS[0], "Two dogs run", *TEXTS[2:]]
    annotated = [ANNOTATED[0], ANNOTATED[1].split(".")[0], *TEXTS[2:]]
    answers = translate(texts, glossary=TERMS, term_mode="exact", **options)
    assert answers == translate(annotated, constraints=constraints, **options)
    assert "Mann" in answers[0]["translation_text"]
    assert "zwei Hunde" in answers[1]["translation_text"]
    terms = {"glossary": TERMS, "constraints": ["Gras"], "term_mode": "exact"}
    (both,) = translate(texts[:1], num_beams=2, **terms)
    assert "Mann" in both["translation_text"]
    assert "Gras" in both["translation_text"]
    untrained = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    for mode in (None, "hard", "exact"):
        answers = untrained(texts, glossary=TERMS, term_mode=mode, **options)
        assert answers == untrained(texts, constraints=constraints, **options)


ROWS = [{}, {"return_scores": True}, {"num_return_sequences": 2}]


@pytest.mark.parametrize("options", ROWS)
def test_pipeline_decodes_again_what_lacks_a_hard_term(translate, monkeypatch, options):
    options = options | {"glossary": TERMS, "num_beams": 2}
    soft = translate(TEXTS, term_mode="soft", **options)
    exact = translate(TEXTS, term_mode="exact", **options)
    assert soft[:2] != exact[:2]
    assert soft[2:] == exact[2:]
    assert_equal(translate(TEXTS, term_mode="hard", **options), exact)
    monkeypatch.setattr(terms, "lacking_terms", lambda *texts: [1])
    expected = [soft[0], exact[1], *soft[2:]]
    assert_equal(translate(TEXTS, term_mode="hard", **options), expected)


def test_pipeline_keeps_constraints_of_texts_that_lack_a_hard_term(translate):
    options = {"glossary": TERMS, "num_beams": 2, "term_mode": "hard"}
    options["constraints"] = [["Gras"], [], ["run"], []]
    answers = translate([TEXTS[0], "Two dogs run", *TEXTS[2:]], **options)
    first, second, third, _ = (answer["translation_text"] for answer in answers)
    assert "Gras" in first
    assert "Mann" in first
    assert "zwei Hunde" in second
    assert "run" in third


def test_lacking_terms_accept_other_endings():
    glossary = Glossary([("dog", "Hund"), ("big", "große")])
    sources = ["A dog.", "A big dog", "A dog, a dog", "A cat"]
    translations = [["Des Hundes."], ["Ein großer Hund"], ["Hund", "Hund Hund"], [""]]
    assert terms.lacking_terms(glossary, sources, translations) == [2]


def test_pipeline_reads_a_glossary_once_for_a_stream(translate, tmp_path):
    path = tmp_path / "terms.tsv"
    rows = [f"{source}\t{target}\n" for source, target in TERMS.items()]
    path.write_text("".join(rows))
    options = {"batch_size": 1, "num_beams": 1, "max_new_tokens": 1}
    answers = translate(("A man" for _ in range(66)), glossary=str(path), **options)
    first = next(answers)  # of the first window of 64 texts
    path.unlink()
    expected = translate(["A <term> man <trans> Mann </term>"], **options)
    assert [first, *answers] == expected * 66


def test_pipeline_aligns_with_the_text_without_annotations(translate):
    units = {"A", "man", "is", "sleeping", ".", "Two", "dogs", "run", "runs", "Grass"}
    answers = translate(TEXTS, glossary=TERMS, return_alignments=True)
    for text, answer in zip(TEXTS, answers, strict=True):
        for link in answer["alignment"]:
            assert text[link.source_start : link.source_end] in units


def test_pipeline_refuses_a_glossary_that_it_cannot_use(translate):
    untrained = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    message = "^`term_mode` 'soft' is for models trained with inline terms, but"
    with pytest.raises(ValueError, match=message):
        untrained(TEXTS, glossary=TERMS, term_mode="soft")
    for options, message in [
        ({"glossary": {}}, "^The glossary must have a term"),
        (
            {"glossary": {"man": "<trans>"}},
            "must be plain text, but '<trans>' has the mark <trans>",
        ),
        ({"glossary": 3}, "^`glossary` must be a path"),
        (
            {"glossary": TERMS, "term_mode": "exact", "repetition_penalty": 2.0},
            "^With `glossary`, greedy and beam",
        ),
        (
            {"glossary": TERMS, "term_mode": "hard", "do_sample": True, "num_beams": 1},
            "need beam search",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            translate(TEXTS, **options)


def test_pipeline_names_a_translation_that_it_cannot_spell(translate):
    tokenizer = translate.tokenizer
    tokenizer.unk_token = "n"  # as if the vocabulary had no other token for this letter
    try:
        message = "must be plain text, but 'Mann' has characters that .* lacks"
        with pytest.raises(ValueError, match=message):
            translate(TEXTS, glossary=Glossary([("man", "Mann")]))
    finally:
        tokenizer.unk_token = None
