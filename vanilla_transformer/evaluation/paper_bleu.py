"""The BLEU of the paper's table 2.

Section 6.1 does not say how it was computed, but the authors' code does (Tensor2Tensor, `utils/get_ende_bleu.sh`):
Moses tokenizer, compounds split at their hyphens, multi-bleu. Differs from that script: Moses'
`replace-unicode-punctuation.perl`, which it applies first, is left out, so typographic quotation marks and dashes
count as they are.
"""

import re
from typing import Any

import sacrebleu
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from vanilla_transformer.import_utils import requires_extra

_COMPOUND = re.compile(r"(\S)-(\S)")
# Moses has rules for apostrophes and colons in these languages that its Python port lacks.
_NOT_PORTED = {"ca", "fi", "ga", "sv", "tdt"}


class MosesBLEU(sacrebleu.BLEU):
    """Case-sensitive BLEU of Moses tokens without smoothing, as Moses' `multi-bleu.perl` computes it.

    Everything except tokenization is sacreBLEU's, including resampling and signatures. The `tok` entry of the
    signature distinguishes it from sacreBLEU's scores.

    The tokens are the same as in version 1.1 of Moses' `tokenizer.perl`. The latest version also separates the period
    of an abbreviation at the end of a line.

    Args:
        language (`str`): The language code. Its abbreviations keep their periods.
        compounds (`bool`): Whether to split compounds at their hyphens, as the paper's score does.

    Raises:
        ValueError: Moses has no rules for this language, or its Python port lacks some of them.
        OSError: sacremoses is not installed.
    """

    def __init__(self, language: str = "de", compounds: bool = True):
        super().__init__(tokenize="none", force=True, smooth_method="none")
        self.tokenizer = _MosesTokens(language, compounds)
        self.tokenizer_signature = self.tokenizer.signature()


class _MosesTokens(BaseTokenizer):
    """The Moses tokenizer with sacreBLEU's tokenizer interface: text to tokens separated by spaces."""

    def __init__(self, language: str, compounds: bool):
        sacremoses = _sacremoses()
        languages = sorted({*sacremoses.corpus.NonbreakingPrefixes().available_langs.values()} - _NOT_PORTED)
        if language not in languages:
            raise ValueError(f"The Moses tokenizer supports the languages {', '.join(languages)}; got {language!r}.")
        self.language, self.compounds = language, compounds
        self.moses = sacremoses.MosesTokenizer(language)
        self.version = sacremoses.__version__

    def signature(self) -> str:
        return f"moses-{self.language}{'-compounds' if self.compounds else ''}-sacremoses{self.version}"

    def __call__(self, line: str) -> str:
        tokens = self.moses.tokenize(line, return_str=True)
        return split_compounds(tokens) if self.compounds else tokens


def split_compounds(tokens: str) -> str:
    """Split compounds: `rich-text format` becomes `rich ##AT##-##AT## text format`.

    The matches of Tensor2Tensor's regular expression do not overlap, so `a-b-c` is split at its first hyphen only. We
    keep that, so that scores are comparable.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def _sacremoses() -> Any:
    with requires_extra("evaluation", "The paper's BLEU"):
        import sacremoses
    return sacremoses
