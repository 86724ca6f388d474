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
SLEEPER = "A woman sleeps in the red house of her mother today."
BOOKS = "Ein Mann liest 17 alte Bücher."
REPEATED = "Eine Frau Frau Frau Frau schläft."
SOURCES = ["Two dogs run.", "A man reads 17 old books.", "", SLEEPER]
REFERENCES = ["Zwei Hunde laufen.", BOOKS, "", "Eine Frau schläft heute im roten Haus."]
OURS = ["Zwei Hunde laufen.", "Ein Mann liest 18 alte Bücher.", "", REPEATED]
THEIRS = ["Hunde.", BOOKS, "", REPEATED]
COMMAND = "vanilla-transformer evaluate runs/mine"
SETUP = Setup("runs/mine", COMMAND, "1.2.3", hardware="2 CPU cores")


def evaluation(
    sources=SOURCES, ours=OURS, theirs=None, references=REFERENCES, seconds=None, further=()
):
    scores = partial(corpus_metrics, further=further)
    report = build_report(ours, references, theirs, scores, samples=20)
    return Evaluation(sources, references, ours, report, theirs, seconds)


@pytest.fixture
def setup(tmp_path):
    (tmp_path / "test.en").write_text("\n".join(SOURCES))
    return replace(SETUP, files={"Source": str(tmp_path / "test.en")})


def parse(page):
    """Return the elements of a page, which must be valid."""
    return [*html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page).iter()]


def text_of(page):
    (body,) = [element for element in parse(page) if element.tag == "body"]
    return " ".join(" ".join(body.itertext()).split())


def sentence(score, reference="Ein Hund.", change=0.0, source="A dog.", translation=None):
    text = translation or f"Hund {score}."
    return ScoredSentence(source, text, reference, None, score, change, [])


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
    reverse = [text[::-1] for text in texts]
    page = render_report(evaluation(texts, others, reverse, texts, 1.0), hostile)
    elements = parse(page)
    assert not {element.tag for element in elements} & {"script", "img", "iframe", "object"}
    names = {name for element in elements for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    shown = "\n".join(text for element in elements for text in element.itertext())
    assert "49" not in shown.split() and "{{ 7 * 7 }}" in shown and "a<b>&.en" in shown
    assert text_of(page).count(" ".join(HOSTILE.split())) > 20
    assert {element.get("lang") for element in elements if element.tag == "dd"} >= {HOSTILE}


def test_report_replaces_characters_that_a_page_must_not_have(setup):
    ours = [BROKEN, *OURS[1:]]
    broken = replace(setup, command=BROKEN, system=BROKEN)
    page = render_report(evaluation(ours=ours), broken)
    page.encode()
    assert text_of(page).count("\ufffd \ufffd \ufffd[0m \ufffd \ufffd \ufffd") == 3


@pytest.mark.parametrize("theirs", [None, THEIRS])
@pytest.mark.parametrize("sources", [SOURCES, []])
@pytest.mark.parametrize("seconds", [None, 2.0])
def test_report_loads_nothing_and_is_valid(theirs, sources, seconds, setup):
    page = render_report(evaluation(sources, theirs=theirs, seconds=seconds), setup)
    elements = parse(page)
    addresses = []
    for element in elements:
        addresses += filter(None, (element.get("href"), element.get("src")))
    assert all(address.startswith(("#", "data:,")) for address in addresses)
    targets = {element.get("id") for element in elements}
    assert {address[1:] for address in addresses if address[0] == "#"} <= targets
    (style,) = [element.text for element in elements if element.tag == "style"]
    assert not re.search(r"url\(|@import", style) and "script-src" not in page
    assert f"default-src 'none'; img-src data:; style-src '{hash_content(style)}'" in page
    heads = {element.text for element in elements if element.tag == "h2"}
    assert heads >= {"In short", "Scores", "Examples", "Warnings", "How to reproduce it"}
    assert ("Speed" in heads) == (seconds is not None)
    assert ("Compared with" in text_of(page)) == (theirs is not None)
    assert ("Add --source FILE" in text_of(page)) == (not sources)


def test_report_has_the_scores_of_sacrebleu_and_how_to_reproduce_them(setup, tmp_path):
    evaluated = evaluation(theirs=THEIRS, further=["ter"])
    shown = text_of(render_report(evaluated, replace(setup, baseline="old.de")))
    for name, one in evaluated.report.estimates.items():
        low, high = max(0.0, one.mean - one.margin), one.mean + one.margin
        assert f"{one.score:.1f} {low:.1f} to {high:.1f}" in shown, name
        assert f"{one.score:.4f} {one.signature}" in shown
    bleu = sacrebleu.corpus_bleu(OURS, [REFERENCES]).score
    old = sacrebleu.corpus_bleu(THEIRS, [REFERENCES]).score
    assert f"BLEU {bleu:.1f} {old:.1f} {bleu - old:+.1f}".replace("-", "−") in shown
    assert hash_file(tmp_path / "test.en") in shown and setup.command in shown
    assert "vanilla-transformer 1.2.3" in shown
    assert f"sacrebleu {sacrebleu.__version__}" in shown


def test_report_shows_each_text_in_its_direction_and_language(setup):
    arabic = ["هذا كلب.", "رجل يقرأ 17 كتابا.", "", "تنام امرأة اليوم."]
    egyptian = replace(setup, languages=("en", "ar_EG"))
    page = render_report(evaluation(ours=arabic, references=arabic), egyptian)
    details = [element for element in parse(page) if element.tag == "dd"]
    texts = [element for element in details if "class" not in element.attrib]
    directions = {(element.get("dir"), element.get("lang")) for element in texts}
    assert directions == {("auto", "en"), ("auto", "ar-EG")}
    languages = []
    for element in texts:
        if "".join(element.itertext()).strip() == arabic[0]:
            languages.append(element.get("lang"))
    assert languages == ["ar-EG"] * 2


def test_report_says_that_sentences_are_few(setup):
    assert "only 3 sentences" in text_of(render_report(evaluation(), setup))
    many = evaluation(SOURCES * 70, OURS * 70, references=REFERENCES * 70)
    assert "Few sentences" not in text_of(render_report(many, setup))


def test_report_refuses_blank_references(setup):
    blank = Evaluation([""], [""], [""], evaluation().report)
    with pytest.raises(ValueError, match="all references are blank. Leave out --report"):
        render_report(blank, setup)


def test_sentences_are_the_ones_with_a_reference_and_have_scores_and_warnings():
    limits = WarningLimits(scripts=["LATIN"])
    scored = score_sentences(evaluation(theirs=THEIRS), limits)
    rows = [0, 1, 3]
    assert [item.source for item in scored] == [SOURCES[row] for row in rows]
    ours, theirs = [], []
    for row in rows:
        references = [REFERENCES[row]]
        ours.append(sacrebleu.sentence_chrf(OURS[row], references).score)
        theirs.append(sacrebleu.sentence_chrf(THEIRS[row], references).score)
    assert [item.score for item in scored] == pytest.approx(ours)
    changes = [new - old for new, old in zip(ours, theirs, strict=True)]
    assert [item.change for item in scored] == pytest.approx(changes)
    assert changes[0] > 0 > changes[1]
    warnings = [find_warnings(SOURCES[row], OURS[row], limits) for row in rows]
    assert [item.warnings for item in scored] == warnings
    assert warnings[1:] == [["numbers"], ["repetition"]]
    setup = replace(SETUP, files={"Source": __file__})
    shown = text_of(render_report(evaluation(), setup))
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
    estimates, comparisons = {}, {}
    for name, (ours, theirs, p) in scores.items():
        estimates[name] = Estimate(ours, ours, 1, "")
        other = Estimate(theirs, theirs, 1, "")
        comparisons[name] = SystemComparison(estimates[name], other, p)
    comparison = compare(Report(3, 20, estimates, comparisons), [])
    assert comparison["tone"] == tone
    assert comparison["verdict"].startswith(verdict)


def test_comparison_shows_the_sentences_that_changed_most():
    changes = [0.0, 5.0, -3.0, 12.0, 1.0, 7.0]
    sentences = []
    for number, change in enumerate(changes):
        sentences.append(sentence(50.0, f"Hund {number}.", change))
    comparison = compare(evaluation(theirs=THEIRS).report, sentences)
    groups, counts = comparison["groups"], comparison["counts"]
    assert [item.change for item in groups["Improved most"]] == [12.0, 7.0, 5.0]
    assert [item.change for item in groups["Became worse"]] == [-3.0]
    assert (counts[1], counts[-1], counts[0]) == (4, 1, 1)


@pytest.mark.parametrize("score", [0.0, 9.99, 10.0, 29.9, 30.0, 60.0, 100.0])
def test_scale_has_each_score_in_one_band(score):
    scale = describe_scale(Estimate(score, score, 1.0, "nrefs:1|tok:13a|version:2"))
    ((first, last, meaning, _),) = [band for band in scale["bands"] if band[3]]
    assert first <= score < last or score == last == 100
    assert meaning == scale["meaning"] == quality_report._BANDS[first]


@pytest.mark.parametrize("tokens", ["zh", "char", "flores200", "ja-mecab"])
def test_scale_is_for_bleu_of_words(tokens, setup):
    assert describe_scale(Estimate(30.0, 30.0, 1.0, f"nrefs:1|tok:{tokens}|version:2")) is None
    evaluated = evaluation()
    estimate = Estimate(30.0, 30.0, 1.0, f"tok:{tokens}|version:2")
    report = replace(evaluated.report, estimates={"bleu": estimate})
    shown = text_of(render_report(evaluated._replace(report=report), setup))
    assert "No rule of thumb applies" in shown and "BLEU by the rule of thumb" not in shown


@pytest.mark.parametrize("count", range(1, 30))
def test_examples_are_disjoint_and_ordered(count):
    sentences = []
    for number in range(count):
        sentences.append(sentence(float(number % 23), source=f"Dog {number}."))
    best, typical, worst = choose_examples(sentences[::-1]).values()
    shown = [item.source for item in (*best, *typical, *worst)]
    assert len(shown) == len({*shown}) == min(count, 15) and best
    scores = sorted(item.score for item in sentences)
    assert [item.score for item in best] == scores[::-1][: len(best)]
    assert [item.score for item in worst] == scores[: len(worst)]
    if count >= 15:
        assert len(typical) == 5
        assert scores[count // 2] in [item.score for item in typical]


def test_examples_show_equal_sentences_once_and_long_ones_first():
    short = sentence(100.0, "Ein Hund.", translation="Hund.")
    long = sentence(100.0, "Ein Hund und eine Katze.", source="Two.")
    others = [sentence(1.0, source=str(number)) for number in range(9)]
    best, *_ = choose_examples([short, long, short, *others]).values()
    assert best[:2] == [long, short] and best[2].score == 1.0


def test_lengths_and_distribution_count_each_sentence_once():
    lengths = (1, 5, 6, 10, 11, 15, 16, 25, 26, 300)
    sources = [" ".join(["dog"] * words) for words in lengths] + ["…"]
    scores = [0.0, 9.9, 10.0, 50.0, 99.9, 100.0, 100.0, 20.0, 30.0, 40.0, 5.0]
    sentences = []
    for score, source in zip(scores, sources, strict=True):
        sentences.append(sentence(score, "Hund Hund.", source=source))
    bars = describe_lengths(sentences)["bars"]
    assert [bar.name for bar in bars] == ["1–5", "6–10", "11–15", "16–25", "26 or more"]
    assert [bar.sentences for bar in bars] == [3, 2, 2, 2, 2]
    assert bars[1].value == 30.0
    counts = {bar.name: bar.sentences for bar in describe_distribution(sentences)}
    assert sum(counts.values()) == len(sentences)
    assert (counts["90–100"], counts["0–10"], counts["10–20"]) == (3, 3, 1)


MEANINGS = {10: "about as long", 8: "shorter", 12: "longer"}


@pytest.mark.parametrize("words", MEANINGS)
def test_lengths_are_compared_with_the_references(words):
    text = sentence(50.0, "Hund " * 10, translation="Hund " * words)
    lengths = describe_lengths([text])
    assert lengths["ratio"] == words / 10
    assert lengths["meaning"].startswith(MEANINGS[words])


def test_speed_is_of_sentences_and_words():
    speed = describe_speed([sentence(1.0, source="Two dogs run.")] * 10, 2.0)
    assert (speed["sentences"], speed["words"]) == (5.0, 15.0)
    assert speed["duration"] == "33 minutes"
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
