"""
The BLEU that the paper's table 2 reports. Section 6.1 does not say how it was computed; the authors' own code does
(Tensor2Tensor, `utils/get_ende_bleu.sh`): tokens of Moses' tokenizer, compounds split at their hyphens, multi-bleu.
"""

import re
from typing import Any

import sacrebleu
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from vanilla_transformer.import_utils import requires_extra

_COMPOUND = re.compile(r"(\S)-(\S)")
# Moses has rules for apostrophes and colons in these, which its port to Python has not.
_NOT_PORTED = {"ca", "fi", "ga", "sv", "tdt"}


class MosesBLEU(sacrebleu.BLEU):
    """
    Case-sensitive BLEU of Moses' tokens without smoothing, which is what its `multi-bleu.perl` computes. All but the
    tokens is sacreBLEU's, resampling and signatures too; the signature's `tok` tells it from sacreBLEU's own scores.

    Tokens are those of version 1.1 of Moses' `tokenizer.perl`; its last version also parts an abbreviation at the very
    end of a line from its full stop.

    Args:
        language (`str`): Code of the language, whose abbreviations keep their full stop.
        compounds (`bool`): Splits compounds at their hyphens, as the paper's score does.

    Raises:
        ValueError: Moses has no rules for this language, or its port to Python lacks some of them.
        OSError: sacremoses is not installed.
    """

    def __init__(self, language: str = "de", compounds: bool = True):
        super().__init__(tokenize="none", force=True, smooth_method="none")
        self.tokenizer = _MosesTokens(language, compounds)
        self.tokenizer_signature = self.tokenizer.signature()


class _MosesTokens(BaseTokenizer):
    """Text to tokens with spaces between them, as sacreBLEU calls it."""

    def __init__(self, language: str, compounds: bool):
        sacremoses = _sacremoses()
        languages = sorted({*sacremoses.corpus.NonbreakingPrefixes().available_langs.values()} - _NOT_PORTED)
        if language not in languages:
            raise ValueError(f"Moses' tokens are for the languages {', '.join(languages)}; got {language!r}.")
        self.language, self.compounds = language, compounds
        self.moses = sacremoses.MosesTokenizer(language)
        self.version = sacremoses.__version__

    def signature(self) -> str:
        return f"moses-{self.language}{'-compounds' if self.compounds else ''}-sacremoses{self.version}"

    def __call__(self, line: str) -> str:
        tokens = self.moses.tokenize(line, return_str=True)
        return split_compounds(tokens) if self.compounds else tokens


def split_compounds(tokens: str) -> str:
    """
    `rich-text format` becomes `rich ##AT##-##AT## text format`.

    Matches do not overlap in Tensor2Tensor's expression, so that `a-b-c` is split at its first hyphen only. That is
    kept, because scores are there to be compared.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def _sacremoses() -> Any:
    with requires_extra("evaluation", "The paper's BLEU"):
        import sacremoses
    return sacremoses
