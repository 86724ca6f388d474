"""Convert models from and to the formats of other toolkits, one module per format."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vanilla_transformer.utils.import_utils import requires_extra

if TYPE_CHECKING:
    from .common import Comparison

# A converter takes the model to convert, the folder to write, and the sentences to translate with both. It returns
# None if the other toolkit cannot run here. The readers in `LANGUAGES` take `languages` too.
Converter = Callable[..., "Comparison | None"]


def _lazy(module: str, function: str, extra: str | None = None, **options: str) -> Converter:
    """Return a converter whose module is imported on the first call, since it may need an extra."""

    def convert(source: str, output_dir: str, sentences: Sequence[str], **given: Any) -> "Comparison | None":
        with nullcontext() if extra is None else requires_extra(extra, "This format"):
            converter = getattr(import_module(f"{__name__}.{module}"), function)
        return converter(source, output_dir, sentences, **options, **given)

    return convert


READERS: dict[str, Converter] = {
    "marian": _lazy("marian", "from_marian"),
    "marian-npz": _lazy("marian_npz", "from_marian_npz"),
    "m2m_100": _lazy("m2m_100", "from_m2m_100"),
    "fsmt": _lazy("fairseq", "from_fsmt"),
    "fairseq": _lazy("fairseq", "from_fairseq"),
    "joeynmt": _lazy("joeynmt", "from_joeynmt"),
    "opennmt-py": _lazy("opennmt", "from_opennmt_py"),
    "eole": _lazy("opennmt", "from_eole"),
}
LANGUAGES = ("fairseq", "m2m_100")
WRITERS: dict[str, Converter] = {
    "marian": _lazy("marian", "to_marian"),
    "ctranslate2": _lazy("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="float32"),
    "ctranslate2-float16": _lazy("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="float16"),
    "ctranslate2-int8": _lazy("ctranslate2", "to_ctranslate2", "ctranslate2", quantization="int8"),
    "onnx": _lazy("onnx", "to_onnx", "onnx"),
    "transformers.js": _lazy("transformers_js", "to_transformers_js", "onnx"),
}

__all__ = ["LANGUAGES", "READERS", "WRITERS", "Converter"]
