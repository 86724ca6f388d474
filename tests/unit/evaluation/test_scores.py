"""BLEU and chrF, compared with sacreBLEU."""

import pytest
import sacrebleu

from vanilla_transformer.evaluation.scores import score, translate_and_score

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde laufen schnell."]
REFERENCES = ["Ein Mann schläft auf einem Sofa.", "Zwei Hunde rennen schnell."]


def test_score_equals_sacrebleu():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert 0 < scores.bleu < 100


def test_score_has_sacrebleu_signatures():
    scores = score(HYPOTHESES, REFERENCES)
    assert "case:mixed" in scores.bleu_signature and "tok:13a" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature


def test_score_is_case_sensitive():
    assert score(HYPOTHESES, HYPOTHESES).bleu == pytest.approx(100.0)
    assert score([text.lower() for text in HYPOTHESES], HYPOTHESES).bleu < 90.0


@pytest.mark.parametrize("hypotheses", [[], ["one"]])
def test_score_refuses_different_lengths(hypotheses):
    with pytest.raises(ValueError, match=f"got {len(hypotheses)} for 2"):
        score(hypotheses, REFERENCES)


def test_translate_and_score_uses_the_generation_config(tiny_model, tiny_tokenizer):
    pairs = [("A man is sleeping.", "Ein Mann schläft."), ("Two dogs.", "Zwei Hunde.")]
    hypotheses, scores = translate_and_score(tiny_model, tiny_tokenizer, pairs)
    ids = tiny_model.generate(**tiny_tokenizer([pairs[0][0]], return_tensors="pt"))
    assert hypotheses[0] == tiny_tokenizer.decode(ids[0], skip_special_tokens=True).strip()
    assert scores == score(hypotheses, [target for _, target in pairs])
