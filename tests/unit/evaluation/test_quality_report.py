"""The report for readers who are no engineers: its sections, and that it escapes all text and loads
nothing.
"""

import re
from dataclasses import replace
from functools import partial

import html5lib
import pytest
import sacrebleu

from vanilla_transformer.evaluation.quality_report import Setup, quality_report, render_report
from vanilla_transformer.evaluation.quality_report.quality_report import (
    ScoredSentence,
    choose_examples,
    compare,
    describe_distribution,
    describe_lengths,
    describe_scale,
    describe_speed,
    mark_differences,
    score_sentences,
)
from vanilla_transformer.evaluation.scores import corpus_metrics
from vanilla_transformer.evaluation.significance import (
    Estimate,
    Report,
    SystemComparison,
    build_report,
)
from vanilla_transformer.evaluation.test_sets import Evaluation
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.resources import hash_content
from vanilla_transformer.text.translation_warnings import WARNINGS, WarningLimits, find_warnings

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} & \u202e"
BROKEN = "\0 \x0b \x1b[0m \x85 \udc80 \ufffe"  # characters that a page must not have
SOURCES = [
    "Two dogs run.",
    "A man reads 17 old books.",
    "",
    "A woman sleeps in the red house of her mother today.",
]
REFERENCES = [
    "Zwei Hunde laufen.",
    "Ein Mann liest 17 alte Bücher.",
    "",
    "Eine Frau schläft heute im roten Haus.",
]
OURS = [
    "Zwei Hunde laufen.",
    "Ein Mann liest 18 alte Bücher.",
    "",
    "Eine Frau Frau Frau Frau schläft.",
]
THEIRS = ["Hunde.", "Ein Mann liest 17 alte Bücher.", "", "Eine Frau Frau Frau Frau schläft."]
SETUP = Setup(
    "runs/mine", "vanilla-transformer evaluate runs/mine", "1.2.3", hardware="2 CPU cores"
)


def evaluation(
    sources=SOURCES, ours=OURS, theirs=None, references=REFERENCES, seconds=None, further=()
):
    report = build_report(
        ours, references, theirs, partial(corpus_metrics, further=further), samples=20
    )
    return Evaluation(sources, references, ours, report, theirs, seconds)


@pytest.fixture
def setup(tmp_path):
    (tmp_path / "test.en").write_text("\n".join(SOURCES))
    return replace(SETUP, files={"Source": str(tmp_path / "test.en")})


def parse(page):
    """Return the elements of a page, which must be valid."""
    return [*html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page).iter()]


def text_of(page):
    shown = [" ".join(each.itertext()) for each in parse(page) if each.tag == "body"]
    return " ".join(shown[0].split())


def sentence(score, reference="Ein Hund.", change=0.0, source="A dog.", translation=None):
    return ScoredSentence(
        source, translation or f"Hund {score}.", reference, None, score, change, []
    )


def test_report_escapes_all_texts(tmp_path):
    (tmp_path / "a<b>&.en").write_text("A dog.\n")
    texts = [f"{HOSTILE} {number}" for number in range(12)]
    others = [f"{text} more" for text in texts]
    hostile = Setup(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        files={HOSTILE: str(tmp_path / "a<b>&.en")},
        baseline=HOSTILE,
        languages=(HOSTILE, HOSTILE),
        hardware=HOSTILE,
        training={"pairs": HOSTILE, "steps": HOSTILE, "overlap": [HOSTILE]},
    )
    page = render_report(
        evaluation(texts, others, [text[::-1] for text in texts], texts, 1.0), hostile
    )
    elements = parse(page)
    assert not {each.tag for each in elements} & {"script", "img", "iframe", "object"}
    assert not [
        name
        for each in elements
        for name in each.attrib
        if name.startswith("on") or name == "style"
    ]
    shown = "\n".join(text for each in elements for text in each.itertext())
    assert "49" not in shown.split() and "{{ 7 * 7 }}" in shown and "a<b>&.en" in shown
    assert text_of(page).count(" ".join(HOSTILE.split())) > 20
    assert {each.get("lang") for each in elements if each.tag == "dd"} >= {HOSTILE}


def test_report_replaces_characters_that_a_page_must_not_have(setup):
    ours = [BROKEN, *OURS[1:]]
    page = render_report(evaluation(ours=ours), replace(setup, command=BROKEN, system=BROKEN))
    page.encode()
    assert text_of(page).count("\ufffd \ufffd \ufffd[0m \ufffd \ufffd \ufffd") == 3


@pytest.mark.parametrize("theirs", [None, THEIRS])
@pytest.mark.parametrize("sources", [SOURCES, []])
@pytest.mark.parametrize("seconds", [None, 2.0])
def test_report_loads_nothing_and_is_valid(theirs, sources, seconds, setup):
    page = render_report(evaluation(sources, theirs=theirs, seconds=seconds), setup)
    elements = parse(page)
    addresses = [each.get(name) for each in elements for name in ("href", "src") if each.get(name)]
    assert all(address.startswith(("#", "data:,")) for address in addresses)
    targets = {each.get("id") for each in elements}
    assert {address[1:] for address in addresses if address[0] == "#"} <= targets
    (style,) = [each.text for each in elements if each.tag == "style"]
    assert not re.search(r"url\(|@import", style) and "script-src" not in page
    assert f"default-src 'none'; img-src data:; style-src '{hash_content(style)}'" in page
    heads = {each.text for each in elements if each.tag == "h2"}
    assert heads >= {"In short", "Scores", "Examples", "Warnings", "How to reproduce it"}
    assert ("Speed" in heads) == (seconds is not None)
    assert ("Compared with" in text_of(page)) == (theirs is not None)
    assert ("Add --source FILE" in text_of(page)) == (not sources)


def test_report_has_the_scores_of_sacrebleu_and_how_to_reproduce_them(setup, tmp_path):
    found = evaluation(theirs=THEIRS, further=["ter"])
    shown = text_of(render_report(found, replace(setup, baseline="old.de")))
    for name, one in found.report.estimates.items():
        low, high = max(0.0, one.mean - one.margin), one.mean + one.margin
        assert f"{one.score:.1f} {low:.1f} to {high:.1f}" in shown, name
        assert f"{one.score:.4f} {one.signature}" in shown
    bleu, old = (sacrebleu.corpus_bleu(side, [REFERENCES]).score for side in (OURS, THEIRS))
    assert f"BLEU {bleu:.1f} {old:.1f} {bleu - old:+.1f}".replace("-", "−") in shown
    assert hash_file(tmp_path / "test.en") in shown and setup.command in shown
    assert "vanilla-transformer 1.2.3" in shown and f"sacrebleu {sacrebleu.__version__}" in shown


def test_report_shows_each_text_in_its_direction_and_language(setup):
    arabic = ["هذا كلب.", "رجل يقرأ 17 كتابا.", "", "تنام امرأة اليوم."]
    page = render_report(
        evaluation(ours=arabic, references=arabic), replace(setup, languages=("en", "ar_EG"))
    )
    texts = [each for each in parse(page) if each.tag == "dd" and "class" not in each.attrib]
    assert {(each.get("dir"), each.get("lang")) for each in texts} == {
        ("auto", "en"),
        ("auto", "ar-EG"),
    }
    assert [
        each.get("lang") for each in texts if "".join(each.itertext()).strip() == arabic[0]
    ] == ["ar-EG"] * 2


def test_report_says_that_sentences_are_few(setup):
    assert "only 3 sentences" in text_of(render_report(evaluation(), setup))
    many = evaluation(*([*side] * 70 for side in (SOURCES, OURS)), references=REFERENCES * 70)
    assert "Few sentences" not in text_of(render_report(many, setup))


def test_report_refuses_blank_references(setup):
    blank = Evaluation([""], [""], [""], evaluation().report)
    with pytest.raises(ValueError, match="all references are blank. Leave out --report"):
        render_report(blank, setup)


def test_sentences_are_the_ones_with_a_reference_and_have_scores_and_warnings():
    limits = WarningLimits(scripts=["LATIN"])
    found = score_sentences(evaluation(theirs=THEIRS), limits)
    rows = [0, 1, 3]
    assert [each.source for each in found] == [SOURCES[row] for row in rows]
    chrf = [
        [sacrebleu.sentence_chrf(side[row], [REFERENCES[row]]).score for row in rows]
        for side in (OURS, THEIRS)
    ]
    assert [each.score for each in found] == pytest.approx(chrf[0])
    changes = [ours - theirs for ours, theirs in zip(*chrf, strict=True)]
    assert [each.change for each in found] == pytest.approx(changes) and changes[0] > 0 > changes[1]
    assert [each.warnings for each in found] == [
        find_warnings(SOURCES[row], OURS[row], limits) for row in rows
    ]
    assert found[1].warnings == ["numbers"] and found[2].warnings == ["repetition"]
    shown = text_of(render_report(evaluation(), replace(SETUP, files={"Source": __file__})))
    assert "2 translations of 3 have a warning" in shown
    for name in ("numbers", "repetition"):
        assert f"{WARNINGS[name].capitalize()}: 1 translation (33.3 %)" in shown


@pytest.mark.parametrize(
    ("scores", "tone", "verdict"),
    [
        ({"bleu": (30, 20, 0.01), "chrf": (50, 40, 0.01)}, "good", "better"),
        ({"bleu": (20, 30, 0.01), "chrf": (40, 50, 0.01)}, "bad", "worse"),
        ({"bleu": (30, 20, 0.05), "chrf": (40, 50, 0.9)}, "", "no reliable difference"),
        ({"bleu": (30, 30, 1.0), "chrf": (40, 40, 1.0)}, "", "no reliable difference"),
        (
            {"bleu": (30, 20, 0.01), "chrf": (50, 40, 0.06)},
            "good",
            "better by BLEU; no reliable difference by chrF",
        ),
        (
            {"bleu": (20, 30, 0.01), "chrf": (50, 40, 0.06)},
            "bad",
            "no reliable difference by chrF; worse by BLEU",
        ),
        (
            {"bleu": (30, 20, 0.01), "chrf": (50, 40, 0.01), "ter": (70, 60, 0.01)},
            "",
            "better by BLEU and chrF; worse",
        ),
        ({"bleu": (30, 20, 0.01), "ter": (60, 70, 0.01)}, "good", "better"),
    ],
)
def test_comparison_says_which_system_is_better(scores, tone, verdict):
    pairs = {
        name: (Estimate(ours, ours, 1, ""), Estimate(theirs, theirs, 1, ""), p)
        for name, (ours, theirs, p) in scores.items()
    }
    comparisons = {name: SystemComparison(*pair) for name, pair in pairs.items()}
    found = compare(Report(3, 20, {name: pair[0] for name, pair in pairs.items()}, comparisons), [])
    assert found["tone"] == tone and found["verdict"].startswith(verdict)


def test_comparison_shows_the_sentences_that_changed_most():
    changes = [0.0, 5.0, -3.0, 12.0, 1.0, 7.0]
    sentences = [sentence(50.0, f"Hund {number}.", change) for number, change in enumerate(changes)]
    found = compare(evaluation(theirs=THEIRS).report, sentences)
    assert [each.change for each in found["groups"]["Improved most"]] == [12.0, 7.0, 5.0]
    assert [each.change for each in found["groups"]["Became worse"]] == [-3.0]
    assert (found["counts"][1], found["counts"][-1], found["counts"][0]) == (4, 1, 1)


@pytest.mark.parametrize("score", [0.0, 9.99, 10.0, 29.9, 30.0, 60.0, 100.0])
def test_scale_has_each_score_in_one_band(score):
    found = describe_scale(Estimate(score, score, 1.0, "nrefs:1|tok:13a|version:2"))
    ((first, last, meaning, _),) = [band for band in found["bands"] if band[3]]
    assert first <= score < last or score == last == 100
    assert meaning == found["meaning"] == quality_report._BANDS[first]


@pytest.mark.parametrize("tokens", ["zh", "char", "flores200", "ja-mecab"])
def test_scale_is_for_bleu_of_words(tokens, setup):
    assert describe_scale(Estimate(30.0, 30.0, 1.0, f"nrefs:1|tok:{tokens}|version:2")) is None
    found = evaluation()
    report = replace(
        found.report, estimates={"bleu": Estimate(30.0, 30.0, 1.0, f"tok:{tokens}|version:2")}
    )
    shown = text_of(render_report(found._replace(report=report), setup))
    assert "No rule of thumb applies" in shown and "BLEU by the rule of thumb" not in shown


@pytest.mark.parametrize("count", range(1, 30))
def test_examples_are_disjoint_and_ordered(count):
    sentences = [sentence(float(number % 23), source=f"Dog {number}.") for number in range(count)]
    best, typical, worst = choose_examples(sentences[::-1]).values()
    shown = [each.source for each in (*best, *typical, *worst)]
    assert len(shown) == len({*shown}) == min(count, 15) and best
    scores = sorted(each.score for each in sentences)
    assert [each.score for each in best] == scores[::-1][: len(best)]
    assert [each.score for each in worst] == scores[: len(worst)]
    if count >= 15:
        assert len(typical) == 5 and scores[count // 2] in [each.score for each in typical]


def test_examples_show_equal_sentences_once_and_long_ones_first():
    rows = [
        sentence(100.0, "Ein Hund.", translation="Hund."),
        sentence(100.0, "Ein Hund und eine Katze.", source="Two."),
    ]
    best, *_ = choose_examples(
        [*rows, rows[0], *(sentence(1.0, source=str(each)) for each in range(9))]
    ).values()
    assert best[:2] == rows[::-1] and best[2].score == 1.0


def test_lengths_and_distribution_count_each_sentence_once():
    sources = [" ".join(["dog"] * words) for words in (1, 5, 6, 10, 11, 15, 16, 25, 26, 300)] + [
        "…"
    ]
    scores = [0.0, 9.9, 10.0, 50.0, 99.9, 100.0, 100.0, 20.0, 30.0, 40.0, 5.0]
    found = [
        sentence(score, "Hund Hund.", source=source)
        for score, source in zip(scores, sources, strict=True)
    ]
    bars = describe_lengths(found)["bars"]
    names = ["1–5", "6–10", "11–15", "16–25", "26 or more"]
    assert [(bar.name, bar.sentences) for bar in bars] == [
        *zip(names, [3, 2, 2, 2, 2], strict=True)
    ]
    assert bars[1].value == 30.0
    counts = {bar.name: bar.sentences for bar in describe_distribution(found)}
    assert (
        sum(counts.values()) == len(found)
        and counts["90–100"] == 3
        and counts["0–10"] == 3
        and counts["10–20"] == 1
    )


@pytest.mark.parametrize(
    ("words", "meaning"), [(10, "about as long"), (8, "shorter"), (12, "longer")]
)
def test_lengths_are_compared_with_the_references(words, meaning):
    found = describe_lengths([sentence(50.0, "Hund " * 10, translation="Hund " * words)])
    assert found["ratio"] == words / 10 and found["meaning"].startswith(meaning)


def test_speed_is_of_sentences_and_words():
    found = describe_speed([sentence(1.0, source="Two dogs run.")] * 10, 2.0)
    assert (
        found["sentences"] == 5.0 and found["words"] == 15.0 and found["duration"] == "33 minutes"
    )
    assert describe_speed([sentence(1.0)] * 10, 20.0)["duration"] == "5.6 hours"
    assert describe_speed([sentence(1.0)] * 10, 0.1)["duration"] == "1.7 minutes"
    assert describe_speed([], None) is None


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Ein Hund läuft.", []),
        ("ein HUND läuft.", []),
        ("Ein kleiner brauner Hund läuft.", ["kleiner brauner"]),
        ("Ein Hund schläft!", ["schläft!"]),
        ("  Ein Hund", []),
        ("", []),
    ],
)
def test_differences_are_marked_and_the_text_is_kept(text, marked):
    pieces = [*mark_differences(text, "Ein Hund läuft.")]
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, differs in pieces if differs] == marked
