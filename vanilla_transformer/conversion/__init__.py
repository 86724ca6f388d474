"""From and to the formats of other toolkits: one module for each, every one ending in a comparison of both sides."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Union

from vanilla_transformer.import_utils import requires_extra

if TYPE_CHECKING:
    from .comparison import Comparison

# A converter takes what to convert, the folder to write, and the sentences to compare both sides on. The comparison is
# None where nothing here runs the other side.
Converter = Callable[[str, str, Sequence[str]], Union["Comparison", None]]


def _later(module: str, function: str, extra: str | None = None, **options: str) -> Converter:
    """The converter of a module that is imported once it is used: it takes time, and not everybody has the extra."""

    def convert(folder: str, output_dir: str, sentences: Sequence[str]) -> Union["Comparison", None]:
        with nullcontext() if extra is None else requires_extra(extra, "This format"):
            converter = getattr(import_module(f"{__name__}.{module}"), function)
        return converter(folder, output_dir, sentences, **options)

    return convert


READERS: dict[str, Converter] = {
    "marian": _later("marian", "from_marian"),
    "marian-npz": _later("marian_npz", "from_marian_npz", "marian"),
    "fsmt": _later("fairseq", "from_fsmt"),
    "fairseq": _later("fairseq", "from_fairseq"),
    "joeynmt": _later("joeynmt", "from_joeynmt", "marian"),
    "opennmt-py": _later("opennmt", "from_opennmt_py", "marian"),
    "eole": _later("opennmt", "from_eole", "marian"),
}
WRITERS: dict[str, Converter] = {
    "marian": _later("marian", "to_marian"),
    "ctranslate2": _later("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="float32"),
    "ctranslate2-float16": _later("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="float16"),
    "ctranslate2-int8": _later("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="int8"),
    "onnx": _later("onnx", "to_onnx", "onnx"),
}

__all__ = ["READERS", "WRITERS", "Converter"]
