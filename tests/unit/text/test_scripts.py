"""Scripts of texts, and the tokens by which BLEU compares them."""

import time
import unicodedata

import pytest

from vanilla_transformer.text import scripts
from vanilla_transformer.text.scripts import bleu_tokenizer, count_scripts, find_scripts, normalize

SENTENCES = {
    "en": "Two dogs are running across the green grass.",
    "de": "Zwei Hunde rennen über das grüne Gras.",
    "ru": "Две собаки бегут по зелёной траве.",
    "el": "Δύο σκυλιά τρέχουν στο πράσινο γρασίδι.",
    "ar": "كلبان يركضان على العشب الأخضر.",
    "he": "שני כלבים רצים על הדשא הירוק.",
    "hi": "दो कुत्ते हरी घास पर दौड़ रहे हैं।",
    "ta": "இரண்டு நாய்கள் பச்சை புல்வெளியில் ஓடுகின்றன.",
    "vi": "Hai con chó đang chạy trên bãi cỏ xanh.",
    "zh": "两只狗在绿色的草地上奔跑。",
    "ja": "二匹の犬が緑の芝生を走っています。",
    "ko": "두 마리의 개가 푸른 잔디 위를 달리고 있다.",
    "th": "สุนัขสองตัวกำลังวิ่งบนหญ้าสีเขียว",
    "km": "ឆ្កែពីរក្បាលកំពុងរត់លើស្មៅបៃតង។",
    "lo": "ໝາສອງໂຕກໍາລັງແລ່ນຢູ່ຫຍ້າສີຂຽວ",
    "my": "ခွေးနှစ်ကောင်သည် စိမ်းလန်းသော မြက်ခင်းပေါ်တွင် ပြေးနေသည်။",
    "bo": "ཁྱི་གཉིས་རྩྭ་ལྗང་ཁུའི་སྟེང་རྒྱུག་བཞིན་འདུག",
}
UNSPACED = dict.fromkeys(("ja", "ko", "th", "km", "lo", "my", "bo"), "char") | {"zh": "zh"}


@pytest.fixture
def without_mecab(monkeypatch):
    monkeypatch.setattr(scripts, "find_spec", lambda module: None)


@pytest.mark.parametrize("language", SENTENCES)
def test_bleu_tokenizer_follows_the_script(language, without_mecab):
    assert bleu_tokenizer([SENTENCES[language]] * 3) == UNSPACED.get(language, "13a")


def test_bleu_tokenizer_uses_the_tokenizers_of_words_that_are_installed(monkeypatch):
    monkeypatch.setattr(scripts, "find_spec", lambda module: object())
    languages = ("ja", "ko", "zh")
    tokenizers = {language: bleu_tokenizer([SENTENCES[language]]) for language in languages}
    assert tokenizers == {"ja": "ja-mecab", "ko": "ko-mecab", "zh": "zh"}


@pytest.mark.parametrize(
    "texts", [[], [""], ["1, 2, 3."], ["Das Zeichen 狗 heißt Hund."], ["🙂 …"]]
)
def test_bleu_tokenizer_of_other_texts_is_13a(texts):
    assert bleu_tokenizer(texts) == "13a"


def test_count_scripts_counts_letters_only():
    counts = count_scripts("Ab 12 – Ωю ｗ 漢")
    assert counts == {"LATIN": 3, "GREEK": 1, "CYRILLIC": 1, "CJK": 1}


def test_letters_that_scripts_share_are_of_no_other_one():
    assert find_scripts(["人々はコーヒーを飲む。"], 0.0) == ("CJK", "HIRAGANA", "KATAKANA")
    assert find_scripts(["здоровʼя"], 0.0) == ("CYRILLIC",)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize(
    "text", [*SENTENCES.values(), "e\u0301\u0323" * 9, "ﬁ①", "a" + "\u0301" * 29]
)
def test_normalize_gives_texts_their_usual_form(form, text):
    assert normalize(form, text) == unicodedata.normalize(form, text)


def test_normalize_grows_with_the_length():
    """Marks in an order other than the usual one are sorted, which takes the square of their
    number.
    """
    times = []
    for size in (20_000, 80_000):
        text = "a" + "\u0323\u0301" * size
        start = time.process_time()
        normalize("NFKC", text)
        times.append(time.process_time() - start)
    assert times[1] < max(6 * times[0], 0.5)
