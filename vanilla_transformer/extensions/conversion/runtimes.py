"""The runtimes of other toolkits, which load folders that were converted for them."""

from .ctranslate2_runtime import load_ctranslate2
from .onnx_runtime import load_onnx

# Each takes a folder, a tokenizer or None, and a device, and returns a model and a tokenizer.
RUNTIMES = {"ctranslate2": load_ctranslate2, "onnx": load_onnx}
