"""Convert models from and to the formats of other toolkits, one module per format.

A reader takes the name of a model, and for `LANGUAGES` perhaps two languages, and converts it as
its `Format` declares. A writer takes a model of this package, its tokenizer and the folder to write
into, and for `SHORTLISTS` perhaps the pairs of a shortlist, and returns what translates with it.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vanilla_transformer.machine.imports import requires_extra

if TYPE_CHECKING:
    from .comparison import Comparison

# A converter takes the model to convert, the folder to write, and the sentences to translate with
# both. It returns None if the other toolkit cannot run here. The readers in `LANGUAGES` take
# `languages` too.
Converter = Callable[..., "Comparison | None"]


def _load(path: str, extra: str | None = None) -> Any:
    """Import a format or a function, such as `marian.MARIAN`, whose module may need an extra."""
    module, name = path.split(".")
    with nullcontext() if extra is None else requires_extra(extra, "This format"):
        return getattr(import_module(f"{__name__}.{module}"), name)


def _read(path: str, *arguments: Any, **languages: Any) -> "Comparison | None":
    return _load("comparison.convert_from")(_load(path), *arguments, **languages)


def _write(
    path: str, *arguments: Any, extra: str | None = None, **options: Any
) -> "Comparison | None":
    return _load("comparison.convert_to")(_load(path, extra), *arguments, **options)


READERS: dict[str, Converter] = {
    "marian": partial(_read, "marian.MARIAN"),
    "marian-npz": partial(_read, "marian_npz.MARIAN_NPZ"),
    "m2m_100": partial(_read, "m2m_100.M2M_100"),
    "fsmt": partial(_read, "fairseq.FSMT"),
    "fairseq": partial(_read, "fairseq.FAIRSEQ"),
    "joeynmt": partial(_read, "joeynmt.JOEYNMT"),
    "opennmt-py": partial(_read, "opennmt.OPENNMT_PY"),
    "eole": partial(_read, "opennmt.EOLE"),
}
LANGUAGES = ("fairseq", "m2m_100")
SHORTLISTS = ("ctranslate2", "ctranslate2-float16", "ctranslate2-int8", "bergamot")
_write_ctranslate2 = partial(_write, "ctranslate2.write_ctranslate2", extra="ctranslate2")
WRITERS: dict[str, Converter] = {
    "marian": partial(_write, "marian.write_marian"),
    "ctranslate2": partial(_write_ctranslate2, quantization="float32"),
    "ctranslate2-float16": partial(_write_ctranslate2, quantization="float16"),
    "ctranslate2-int8": partial(_write_ctranslate2, quantization="int8"),
    # Int8 needs sentences to translate, here the ones to compare both models on.
    "bergamot": lambda *arguments, **text: _write(
        "bergamot.write_bergamot", *arguments, calibration=arguments[-1], **text
    ),
    "onnx": partial(_write, "onnx.write_onnx", extra="onnx"),
    "transformers.js": partial(_write, "transformers_js.write_transformers_js", extra="onnx"),
}

__all__ = ["LANGUAGES", "READERS", "SHORTLISTS", "WRITERS", "Converter"]
