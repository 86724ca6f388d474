"""From and to the formats of other toolkits: one module for each, every one ending in a comparison of both sides."""

from collections.abc import Callable, Sequence
from importlib import import_module

from vanilla_transformer.extras import needing

from .comparison import Comparison
from .fairseq import from_fairseq, from_fsmt
from .marian import from_marian, to_marian

# A converter takes what to convert, the folder to write, and the sentences to compare both sides on. The comparison is
# None where nothing here runs the other side.
Converter = Callable[[str, str, Sequence[str]], Comparison | None]


def _needing(extra: str, module: str, function: str, **options: str) -> Converter:
    """The converter of a module that is imported once it is used, because not everybody has what it needs."""

    def convert(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison | None:
        with needing(extra, "What this format needs"):
            converter = getattr(import_module(f"{__name__}.{module}"), function)
        return converter(folder, output_dir, sentences, **options)

    return convert


READERS: dict[str, Converter] = {
    "marian": from_marian,
    "marian-npz": _needing("marian", "marian_npz", "from_marian_npz"),
    "fsmt": from_fsmt,
    "fairseq": from_fairseq,
    "joeynmt": _needing("marian", "joeynmt", "from_joeynmt"),
    "opennmt-py": _needing("marian", "opennmt", "from_opennmt_py"),
    "eole": _needing("marian", "opennmt", "from_eole"),
}
WRITERS: dict[str, Converter] = {
    "marian": to_marian,
    "ctranslate2": _needing("ctranslate2", "ctranslate2", "to_ctranslate2", quantization="float32"),
    "ctranslate2-float16": _needing("ctranslate2", "ctranslate2", "to_ctranslate2", quantization="float16"),
    "ctranslate2-int8": _needing("ctranslate2", "ctranslate2", "to_ctranslate2", quantization="int8"),
    "onnx": _needing("onnx", "onnx", "to_onnx"),
}

__all__ = ["READERS", "WRITERS", "Comparison", "Converter", "from_fairseq", "from_fsmt", "from_marian", "to_marian"]
