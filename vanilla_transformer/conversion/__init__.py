"""From and to the formats of other toolkits: one module for each, every one ending in a comparison of both sides."""

from collections.abc import Callable, Sequence

from .comparison import Comparison
from .marian import from_marian, to_marian

# A converter takes what to convert, the folder to write, and the sentences to compare both sides on.
Converter = Callable[[str, str, Sequence[str]], Comparison]


def _to_ctranslate2(quantization: str) -> Converter:
    def convert(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison:
        try:
            from .ctranslate2 import to_ctranslate2
        except ImportError as error:
            raise OSError(
                f"CTranslate2 is not installed ({error}). Install it with "
                "`pip install 'vanilla-transformer[ctranslate2]'`."
            ) from error
        return to_ctranslate2(folder, output_dir, sentences, quantization)

    return convert


READERS: dict[str, Converter] = {"marian": from_marian}
WRITERS: dict[str, Converter] = {
    "marian": to_marian,
    "ctranslate2": _to_ctranslate2("float32"),
    "ctranslate2-float16": _to_ctranslate2("float16"),
    "ctranslate2-int8": _to_ctranslate2("int8"),
}

__all__ = ["READERS", "WRITERS", "Comparison", "Converter", "from_marian", "to_marian"]
