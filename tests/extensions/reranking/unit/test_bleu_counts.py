"""The counts of sentences give sacreBLEU's corpus BLEU."""

import pytest
import sacrebleu

from vanilla_transformer.extensions.reranking.tuning import corpus_bleu, count_ngrams

REFERENCES = [f"Der Mann mit der Nummer {number} liest heute ein altes Buch." for number in range(9)]


@pytest.mark.parametrize("first", [["Der Mann liest heute."], [""], ["der"], REFERENCES[:1]])
def test_corpus_bleu_of_counts_is_sacrebleus(first):
    hypotheses = [*first, *(text.replace("altes", "gutes") for text in REFERENCES[1:])]
    counts = count_ngrams(hypotheses, REFERENCES)
    assert counts.shape == (len(REFERENCES), 10)
    expected = sacrebleu.BLEU().corpus_score(hypotheses, [REFERENCES]).score
    assert corpus_bleu(counts.sum(axis=0)) == pytest.approx(expected, abs=1e-9)
