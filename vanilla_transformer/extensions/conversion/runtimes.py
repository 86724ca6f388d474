"""The runtimes of other toolkits, by the folders that were converted for them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from .ctranslate2_runtime import CONVERTED_CONFIG, load_ctranslate2
from .onnx_runtime import ENCODER, load_onnx


class Runtime(NamedTuple):
    """
    How a runtime loads its folders.

    Attributes:
        file: A file that only its folders have.
        load: A function that takes a folder, a tokenizer or None, and a device, and returns a model
            and a tokenizer.
    """

    file: str
    load: Callable[..., tuple[Any, Any]]


RUNTIMES = {
    "ctranslate2": Runtime(CONVERTED_CONFIG, load_ctranslate2),
    "onnx": Runtime(f"{ENCODER}.onnx", load_onnx),
}
