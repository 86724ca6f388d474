"""The pipeline uses translations of a glossary: soft ones are written beside their terms, hard ones
constrain.
"""

import pytest

from tests.model_variants import model_with_inline_terms
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
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
    return TranslationPipeline(*model_with_inline_terms(alignment_heads=[[0, 0]]), device="cpu")


def assert_equal(found, expected):
    """Compare answers.

    The last digits of a score depend on the other sentences of its batch on some processors.
    """
    for answer, reference in zip(found, expected, strict=True):
        if isinstance(answer, list):  # of several hypotheses
            assert_equal(answer, reference)
        else:
            assert answer == pytest.approx(reference)


def test_pipeline_warns_of_terms_that_a_translation_lacks(translate):
    glossary = Glossary(TERMS.items())
    found = translate(
        [*TEXTS, "See http://man.example/ now."], glossary=glossary, return_warnings=True
    )
    ignored = [
        glossary.is_ignored(text, each["translation_text"])
        for text, each in zip(TEXTS, found, strict=False)
    ]
    assert ["terms" in each["warnings"] for each in found] == [*ignored, False] and True in ignored
    hard = translate(TEXTS, glossary=TERMS, term_mode="hard", return_warnings=True)
    assert not any("terms" in each["warnings"] for each in hard)


@pytest.mark.parametrize("options", [{}, {"return_scores": True}, {"num_beams": 2, "mbr": "chrf"}])
def test_pipeline_translates_annotated_text(translate, options):
    expected = translate(ANNOTATED, **options)
    assert translate(TEXTS, glossary=TERMS, **options) == expected != translate(TEXTS, **options)
    assert translate(TEXTS, glossary=list(TERMS.items()), term_mode="soft", **options) == expected


def test_pipeline_constrains_the_search_by_exact_terms(translate):
    options, constraints = (
        {"num_beams": 2, "return_scores": True},
        [["Mann*"], ["zwei Hunde*"], [], []],
    )
    texts, annotated = (
        [TEXTS[0], "Two dogs run", *TEXTS[2:]],
        [ANNOTATED[0], ANNOTATED[1].split(".")[0], *TEXTS[2:]],
    )
    answers = translate(texts, glossary=TERMS, term_mode="exact", **options)
    assert answers == translate(annotated, constraints=constraints, **options)
    assert (
        "Mann" in answers[0]["translation_text"] and "zwei Hunde" in answers[1]["translation_text"]
    )
    (both,) = translate(
        texts[:1], glossary=TERMS, constraints=["Gras"], term_mode="exact", num_beams=2
    )
    assert "Mann" in both["translation_text"] and "Gras" in both["translation_text"]
    untrained = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    for mode in (None, "hard", "exact"):
        answers = untrained(texts, glossary=TERMS, term_mode=mode, **options)
        assert answers == untrained(texts, constraints=constraints, **options)


@pytest.mark.parametrize("options", [{}, {"return_scores": True}, {"num_return_sequences": 2}])
def test_pipeline_decodes_again_exactly_what_lacks_a_hard_term(translate, monkeypatch, options):
    options |= {"glossary": TERMS, "num_beams": 2}
    soft, exact = (translate(TEXTS, term_mode=mode, **options) for mode in ("soft", "exact"))
    assert soft[:2] != exact[:2] and soft[2:] == exact[2:]
    assert_equal(translate(TEXTS, term_mode="hard", **options), exact)
    monkeypatch.setattr(terms, "lacking_terms", lambda glossary, texts, translations: [1])
    assert_equal(translate(TEXTS, term_mode="hard", **options), [soft[0], exact[1], *soft[2:]])


def test_pipeline_keeps_constraints_of_texts_that_lack_a_hard_term(translate):
    options = {"glossary": TERMS, "constraints": [["Gras"], [], ["run"], []], "num_beams": 2}
    texts = [TEXTS[0], "Two dogs run", *TEXTS[2:]]
    found = [answer["translation_text"] for answer in translate(texts, term_mode="hard", **options)]
    assert (
        "Gras" in found[0] and "Mann" in found[0] and "zwei Hunde" in found[1] and "run" in found[2]
    )


def test_lacking_terms_accept_other_endings():
    glossary = Glossary([("dog", "Hund"), ("big", "große")])
    sources = ["A dog.", "A big dog", "A dog, a dog", "A cat"]
    translations = [["Des Hundes."], ["Ein großer Hund"], ["Hund", "Hund Hund"], [""]]
    assert terms.lacking_terms(glossary, sources, translations) == [2]


def test_pipeline_reads_a_glossary_once_for_a_stream(translate, tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in TERMS.items()))
    options = {"batch_size": 1, "num_beams": 1, "max_new_tokens": 1}
    answers = translate(("A man" for _ in range(66)), glossary=str(path), **options)
    first = next(answers)  # of the first window of 64 texts
    path.unlink()
    assert [first, *answers] == translate(["A <term> man <trans> Mann </term>"], **options) * 66


def test_pipeline_aligns_with_the_text_without_annotations(translate):
    units = {"A", "man", "is", "sleeping", ".", "Two", "dogs", "run", "runs", "Grass"}
    for text, answer in zip(
        TEXTS, translate(TEXTS, glossary=TERMS, return_alignments=True), strict=True
    ):
        assert {text[link.source_start : link.source_end] for link in answer["alignment"]} <= units


def test_pipeline_refuses_a_glossary_that_it_cannot_use(translate):
    untrained = TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")
    with pytest.raises(
        ValueError, match="^`term_mode` 'soft' is for models trained with inline terms, but"
    ):
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
        with pytest.raises(
            ValueError, match="must be plain text, but 'Mann' has characters that .* lacks"
        ):
            translate(TEXTS, glossary=Glossary([("man", "Mann")]))
    finally:
        tokenizer.unk_token = None
