"""The paper's BLEU, compared with scores computed by hand and with sacreBLEU."""

import math
import sys

import pytest
import sacrebleu
import sacremoses

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import (
    MosesBLEU,
    corpus_metrics,
    score,
    score_paper_bleu,
    split_compounds,
)

HYPOTHESES = [
    "Der E-Mail-Anhang kostet 3.500,50 Euro.",
    "Das ist z.B. ein rich-text Format, sagt sie.",
]
REFERENCES = [
    "Der E-Mail-Anhang kostet nur 3.500,50 Euro.",
    "Das ist z.B. das rich-text Format, sagte sie.",
]


def test_split_compounds_equals_tensor2tensor():
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert split_compounds("E-Mail-Anhang") == "E ##AT##-##AT## Mail ##AT##-##AT## Anhang"
    # Matches of its expression do not overlap.
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"
    assert split_compounds("ja - nein") == "ja - nein"


def test_moses_bleu_has_the_tokens_of_moses():
    """The expected tokens are from Moses' `tokenizer.perl -l de`, version 1.1."""
    tokens = {
        "„Das ist z.B. die 2. Ausgabe“, sagte Dr. Müller.": (
            "„ Das ist z.B. die 2. Ausgabe “ , sagte Dr. Müller ."
        ),
        "Preis: 1,5-fach, 10 km/h & [x]...": "Preis : 1,5-fach , 10 km / h &amp; &#91; x &#93; ...",
        "Er geht's an.": "Er geht &apos; s an .",
    }
    tokenize = MosesBLEU("de", compounds=False).tokenizer
    assert {text: tokenize(text) for text in tokens} == tokens


def test_paper_bleu_equals_the_score_by_hand():
    """Count n-grams by hand.

    `rot ##AT##-##AT## blau ist der Hut .` and `rot ##AT##-##AT## blau ist der Rock .` have the same
    length and share 6 of 7 words, 4 of 6 bigrams, 3 of 5 trigrams and 2 of 4 4-grams.
    """
    scores = score_paper_bleu(["rot-blau ist der Hut."], ["rot-blau ist der Rock."])
    assert scores.paper_bleu == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25)
    # Not split, they have 5 words and share no 4-gram.
    assert scores.tokenized_bleu == 0.0


def test_paper_bleu_has_a_brevity_penalty():
    """All n-grams match, but the hypothesis has 5 words and the reference 7."""
    scores = score_paper_bleu(["a b c d e"], ["a b c d e f g"])
    assert scores.paper_bleu == pytest.approx(100 * math.exp(1 - 7 / 5))


def test_paper_bleu_is_not_smoothed_and_uses_all_orders():
    """No 4-gram matches: multi-bleu returns 0, while sacreBLEU's default smooths."""
    hypotheses, references = ["a b c x"], ["a b c y"]
    assert score_paper_bleu(hypotheses, references).paper_bleu == 0.0
    assert score(hypotheses, references).bleu > 0.0
    effective = sacrebleu.BLEU(tokenize="none", smooth_method="none", effective_order=True)
    assert effective.corpus_score(["a b c"], [["a b c"]]).score == pytest.approx(100.0)
    assert score_paper_bleu(["a b c"], ["a b c"]).paper_bleu == 0.0


def test_paper_bleu_equals_sacrebleu_on_moses_tokens():
    moses = sacremoses.MosesTokenizer("de")
    hypotheses = [moses.tokenize(text, return_str=True) for text in HYPOTHESES]
    references = [moses.tokenize(text, return_str=True) for text in REFERENCES]
    plain = sacrebleu.BLEU(tokenize="none", force=True, smooth_method="none")
    scores = score_paper_bleu(HYPOTHESES, REFERENCES)
    assert scores.tokenized_bleu == plain.corpus_score(hypotheses, [references]).score
    hypotheses = [*map(split_compounds, hypotheses)]
    references = [*map(split_compounds, references)]
    assert scores.paper_bleu == plain.corpus_score(hypotheses, [references]).score
    assert scores.paper_bleu > scores.tokenized_bleu


def test_paper_bleu_signature_names_moses():
    scores = score_paper_bleu(HYPOTHESES, REFERENCES)
    version = f"sacremoses{sacremoses.__version__}"
    assert f"tok:moses-de-compounds-{version}|smooth:none" in scores.paper_bleu_signature
    assert f"tok:moses-de-{version}|smooth:none" in scores.tokenized_bleu_signature
    assert "case:mixed" in scores.paper_bleu_signature


def test_moses_bleu_keeps_periods_of_the_language_abbreviations():
    text = "Siehe bzw. Seite"
    assert MosesBLEU("de").tokenizer(text) == text
    assert MosesBLEU("en").tokenizer(text) == "Siehe bzw . Seite"


@pytest.mark.parametrize("language", ["xx", "german", "fi"])
def test_corpus_metrics_refuses_languages_without_moses_rules(language):
    with pytest.raises(ValueError, match=f"de, .*got '{language}'"):
        corpus_metrics(paper_language=language)


def test_paper_bleu_without_sacremoses_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match=r"pip install 'vanilla-transformer\[evaluation\]'"):
        score_paper_bleu(HYPOTHESES, REFERENCES)
    assert score(HYPOTHESES, REFERENCES).bleu > 0
