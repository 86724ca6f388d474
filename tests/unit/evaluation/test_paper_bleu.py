"""The paper's BLEU: Moses' tokens, split compounds, multi-bleu; counted by hand, and held against sacreBLEU's own."""

import math
import sys

import pytest
import sacrebleu
import sacremoses

from vanilla_transformer.evaluation.paper_bleu import MosesBLEU, split_compounds
from vanilla_transformer.evaluation.scores import corpus_metrics, score, score_as_the_paper

HYPOTHESES = ["Der E-Mail-Anhang kostet 3.500,50 Euro.", "Das ist z.B. ein rich-text Format, sagt sie."]
REFERENCES = ["Der E-Mail-Anhang kostet nur 3.500,50 Euro.", "Das ist z.B. das rich-text Format, sagte sie."]


def test_compounds_are_split_as_tensor2tensor_does():
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert split_compounds("E-Mail-Anhang") == "E ##AT##-##AT## Mail ##AT##-##AT## Anhang"
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"  # its expression has used up the b by then
    assert split_compounds("ja - nein") == "ja - nein"


def test_tokens_are_those_of_moses():
    """By Moses' own `tokenizer.perl -l de`, version 1.1."""
    tokens = {
        "„Das ist z.B. die 2. Ausgabe“, sagte Dr. Müller.": "„ Das ist z.B. die 2. Ausgabe “ , sagte Dr. Müller .",
        "Preis: 1,5-fach, 10 km/h & [x]...": "Preis : 1,5-fach , 10 km / h &amp; &#91; x &#93; ...",
        "Er geht's an.": "Er geht &apos; s an .",
    }
    tokenize = MosesBLEU("de", compounds=False).tokenizer
    assert {text: tokenize(text) for text in tokens} == tokens


def test_the_score_is_the_one_counted_by_hand():
    """
    rot ##AT##-##AT## blau ist der Hut . against rot ##AT##-##AT## blau ist der Rock . have 6 of 7 words, 4 of 6 pairs,
    3 of 5 triples and 2 of 4 quadruples in common, and the same length.
    """
    scores = score_as_the_paper(["rot-blau ist der Hut."], ["rot-blau ist der Rock."])
    assert scores.paper_bleu == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25)
    # Unsplit they are of 5 words, and have no quadruple in common.
    assert scores.tokenized_bleu == 0.0


def test_a_short_hypothesis_is_punished_by_its_length():
    """Nothing is wrong, but 5 words stand against 7."""
    assert score_as_the_paper(["a b c d e"], ["a b c d e f g"]).paper_bleu == pytest.approx(100 * math.exp(1 - 7 / 5))


def test_nothing_is_smoothed_and_no_order_left_out():
    """No quadruple in common: multi-bleu says 0, where sacreBLEU's default smoothes."""
    hypotheses, references = ["a b c x"], ["a b c y"]
    assert score_as_the_paper(hypotheses, references).paper_bleu == 0.0
    assert score(hypotheses, references).bleu > 0.0
    effective = sacrebleu.BLEU(tokenize="none", smooth_method="none", effective_order=True)
    assert effective.corpus_score(["a b c"], [["a b c"]]).score == pytest.approx(100.0)
    assert score_as_the_paper(["a b c"], ["a b c"]).paper_bleu == 0.0


def test_it_is_sacrebleus_score_of_the_tokens():
    moses = sacremoses.MosesTokenizer("de")
    sides = [[moses.tokenize(text, return_str=True) for text in texts] for texts in (HYPOTHESES, REFERENCES)]
    plain = sacrebleu.BLEU(tokenize="none", force=True, smooth_method="none")
    scores = score_as_the_paper(HYPOTHESES, REFERENCES)
    assert scores.tokenized_bleu == plain.corpus_score(sides[0], [sides[1]]).score
    split = [[split_compounds(text) for text in side] for side in sides]
    assert scores.paper_bleu == plain.corpus_score(split[0], [split[1]]).score
    assert scores.paper_bleu != scores.tokenized_bleu


def test_plain_text_without_hyphens_scores_as_sacrebleus_13a_tokens():
    hypotheses = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde laufen schnell, sehr schnell!"]
    references = ["Ein Mann schläft auf einem Sofa.", "Zwei Hunde laufen schnell, ja schnell!"]
    scores = score_as_the_paper(hypotheses, references)
    assert scores.paper_bleu == scores.tokenized_bleu == pytest.approx(score(hypotheses, references).bleu)
    assert 0 < scores.paper_bleu < 100


def test_splitting_compounds_gives_credit_for_their_hyphens():
    scores = score_as_the_paper(HYPOTHESES, REFERENCES)
    assert scores.paper_bleu > scores.tokenized_bleu


def test_the_signatures_cannot_be_taken_for_sacrebleus_own():
    scores = score_as_the_paper(HYPOTHESES, REFERENCES)
    version = f"sacremoses{sacremoses.__version__}"
    assert f"tok:moses-de-compounds-{version}|smooth:none" in scores.paper_bleu_signature
    assert f"tok:moses-de-{version}|smooth:none" in scores.tokenized_bleu_signature
    assert "case:mixed" in scores.paper_bleu_signature


def test_the_language_decides_which_abbreviations_keep_their_full_stop():
    text = "Siehe bzw. Seite"
    assert MosesBLEU("de").tokenizer(text) == text
    assert MosesBLEU("en").tokenizer(text) == "Siehe bzw . Seite"


@pytest.mark.parametrize("language", ["xx", "german", "fi"])
def test_a_language_without_all_of_moses_rules_is_refused(language):
    with pytest.raises(ValueError, match=f"de, .*got '{language}'"):
        corpus_metrics(language)


def test_what_to_install_is_said_where_sacremoses_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(OSError, match=r"pip install 'vanilla-transformer\[evaluation\]'"):
        score_as_the_paper(HYPOTHESES, REFERENCES)
    assert score(HYPOTHESES, REFERENCES).bleu > 0


@pytest.mark.parametrize("hypotheses", [[], ["one"]])
def test_there_must_be_one_hypothesis_for_each_reference(hypotheses):
    with pytest.raises(ValueError, match=f"got {len(hypotheses)} for 2"):
        score_as_the_paper(hypotheses, REFERENCES)
