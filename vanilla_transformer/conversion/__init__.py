"""From and to the formats of other toolkits: one module for each, every one ending in a comparison of both sides."""

from collections.abc import Callable, Sequence

from vanilla_transformer.extras import needing

from .comparison import Comparison
from .fairseq import from_fairseq, from_fsmt
from .marian import from_marian, to_marian

# A converter takes what to convert, the folder to write, and the sentences to compare both sides on. The comparison is
# None where nothing here runs the other side.
Converter = Callable[[str, str, Sequence[str]], Comparison | None]
_WHAT = "What this format needs"


def _to_ctranslate2(quantization: str) -> Converter:
    def convert(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison:
        with needing("ctranslate2", _WHAT):
            from .ctranslate2 import to_ctranslate2
        return to_ctranslate2(folder, output_dir, sentences, quantization)

    return convert


def _from_marian_npz(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison | None:
    with needing("marian", _WHAT):
        from .marian_npz import from_marian_npz
    return from_marian_npz(folder, output_dir, sentences)


def _from_joeynmt(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison | None:
    with needing("marian", _WHAT):
        from .joeynmt import from_joeynmt
    return from_joeynmt(folder, output_dir, sentences)


def _from_opennmt(name: str) -> Converter:
    def convert(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison | None:
        with needing("marian", _WHAT):
            from .opennmt import from_eole, from_opennmt_py
        return {"eole": from_eole, "opennmt-py": from_opennmt_py}[name](folder, output_dir, sentences)

    return convert


def _to_onnx(folder: str, output_dir: str, sentences: Sequence[str]) -> Comparison:
    with needing("onnx", _WHAT):
        from .onnx import to_onnx
    return to_onnx(folder, output_dir, sentences)


READERS: dict[str, Converter] = {
    "marian": from_marian,
    "marian-npz": _from_marian_npz,
    "fsmt": from_fsmt,
    "fairseq": from_fairseq,
    "joeynmt": _from_joeynmt,
    "opennmt-py": _from_opennmt("opennmt-py"),
    "eole": _from_opennmt("eole"),
}
WRITERS: dict[str, Converter] = {
    "marian": to_marian,
    "ctranslate2": _to_ctranslate2("float32"),
    "ctranslate2-float16": _to_ctranslate2("float16"),
    "ctranslate2-int8": _to_ctranslate2("int8"),
    "onnx": _to_onnx,
}

__all__ = ["READERS", "WRITERS", "Comparison", "Converter", "from_fairseq", "from_fsmt", "from_marian", "to_marian"]
