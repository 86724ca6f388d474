"""BLEU and chrF, compared with sacreBLEU."""

import pytest
import sacrebleu

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import (
    corpus_metrics,
    score,
    score_paper_bleu,
    translate_and_score,
)

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde laufen schnell."]
REFERENCES = ["Ein Mann schläft auf einem Sofa.", "Zwei Hunde rennen schnell."]


def test_score_equals_sacrebleu():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert 0 < scores.bleu < 100
    assert "case:mixed" in scores.bleu_signature and "tok:13a" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature


LINES = {
    "zh": ("两只狗在绿色的草地上奔跑。", "zh"),
    "th": ("สุนัขสองตัวกำลังวิ่งบนหญ้าสีเขียว", "char"),
    "my": ("ခွေးနှစ်ကောင်သည် မြက်ခင်းပေါ်တွင် ပြေးနေသည်။", "char"),
    "km": ("ឆ្កែពីរក្បាលកំពុងរត់លើស្មៅបៃតង។", "char"),
    "lo": ("ໝາສອງໂຕກໍາລັງແລ່ນຢູ່ຫຍ້າສີຂຽວ", "char"),
    "ru": ("Две собаки бегут по зелёной траве.", "13a"),
    "ar": ("كلبان يركضان على العشب الأخضر.", "13a"),
    "he": ("שני כלבים רצים על הדשא הירוק.", "13a"),
    "hi": ("दो कुत्ते हरी घास पर दौड़ रहे हैं।", "13a"),
    "vi": ("Hai con chó đang chạy trên bãi cỏ xanh.", "13a"),
    "el": ("Δύο σκυλιά τρέχουν στο πράσινο γρασίδι.", "13a"),
}


@pytest.mark.parametrize("language", LINES)
def test_score_equals_sacrebleu_with_the_tokenizer_of_the_script(language):
    line, tokenizer = LINES[language]
    references = [line] * 20
    hypotheses = [line.replace(line[number % 9], "x", 1) for number in range(20)]
    scores, expected = score(hypotheses, references), sacrebleu.BLEU(tokenize=tokenizer)
    assert scores.bleu == expected.corpus_score(hypotheses, [references]).score > 20
    assert f"tok:{tokenizer}|" in scores.bleu_signature


def test_tokenizer_of_bleu_can_be_chosen():
    chosen = corpus_metrics(REFERENCES, tokenize="char")["bleu"]
    expected = sacrebleu.BLEU(tokenize="char").corpus_score(HYPOTHESES, [REFERENCES]).score
    assert chosen.corpus_score(HYPOTHESES, [REFERENCES]).score == expected
    with pytest.raises(ValueError, match="must be one of 13a, char, .*got 'words'"):
        corpus_metrics(REFERENCES, tokenize="words")


@pytest.mark.parametrize("function", [score, score_paper_bleu])
@pytest.mark.parametrize("hypotheses", [[], ["one"]])
def test_score_refuses_different_lengths(function, hypotheses):
    with pytest.raises(UserError, match=f"got {len(hypotheses)} for 2"):
        function(hypotheses, REFERENCES)


def test_translate_and_score_uses_the_generation_config(tiny_model, tiny_tokenizer):
    pairs = [("A man is sleeping.", "Ein Mann schläft."), ("Two dogs.", "Zwei Hunde.")]
    hypotheses, scores = translate_and_score(TranslationPipeline(tiny_model, tiny_tokenizer), pairs)
    ids = tiny_model.generate(**tiny_tokenizer([pairs[0][0]], return_tensors="pt"))
    assert hypotheses[0] == tiny_tokenizer.decode(ids[0], skip_special_tokens=True).strip()
    assert scores == score(hypotheses, [target for _, target in pairs])
