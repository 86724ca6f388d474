"""Check the JSON of a model before transformers reads it: by its numbers a stranger could take all
memory.
"""

import re
import reprlib
from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.errors import UserFileError
from vanilla_transformer.files.json_files import read_json, walk_json

KERNEL_KEYS = {
    "attn_implementation",
    "_attn_implementation",
    "experts_implementation",
    "_experts_implementation",
}
# Values for which transformers loads no code: others name kernels of the Hub, or load some.
_WITHOUT_CODE: dict[str, Sequence[str]] = {
    **dict.fromkeys(KERNEL_KEYS, ("eager", "sdpa", "grouped_mm", "batched_mm")),
    "quant_method": (
        *("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"),
        *("torchao", "quanto", "gptq", "awq", "hqq"),
    ),
}
_READ = ("config.json", "adapter_config.json", "tokenizer_config.json")
_MOST_BYTES = dict.fromkeys(("config.json", "generation_config.json", "adapter_config.json"), 2**20)
_MOST_BYTES_OF_OTHERS = 2**28  # vocabularies of several hundred thousand tokens
# Keys of sizes, and the largest value of any model.
_SIZES = {
    re.compile(r"(?:^|_)layers?(?:_|$)|^r$"): 10_000,
    re.compile(r"labels|extra_ids"): 100_000,
    re.compile(r"(?:^|_)(?:num|n|d|size|dim|heads|positions?|position_embeddings)(?:_|$)"): 2**24,
}
_AGAIN = "Copy or download the model again."


def check_model_files(folder: Path) -> None:
    """Check each JSON file of a folder, see [`check_model_file`]."""
    for path in sorted(folder.glob("*.json")):
        if path.is_file():
            check_model_file(path)


def check_model_file(path: Path) -> None:
    """Refuse a large file, sizes of no model, kernels from elsewhere, and weights outside of the
    folder.
    """
    size = path.stat().st_size
    most = _MOST_BYTES.get(path.name, _MOST_BYTES_OF_OTHERS)
    if size > most:
        raise UserFileError(f"{path} must have at most {most:,} bytes, got {size:,}. {_AGAIN}")
    if path.name.endswith((".safetensors.index.json", ".bin.index.json")):
        _check_index(path)
    if path.name not in _READ:
        return
    for key, value in walk_json(read_json(path)):
        highest = most_of_size(key)
        if highest is not None and type(value) is int and value > highest:
            requirement = f"must be at most {highest:,}"
        elif value is not None and value not in _WITHOUT_CODE.get(key, [value]):
            known = ", ".join(map(repr, _WITHOUT_CODE[key]))
            requirement = (
                f"must be one of {known}, since no code is loaded because a folder names it"
            )
        else:
            continue
        shown = reprlib.repr(value)
        raise UserFileError(f"In {path}, `{key}` {requirement}, got {shown}. {_AGAIN}")


def most_of_size(key: str) -> int | None:
    """Return the largest value of a size of a model, given its key in a configuration, or None for
    other keys.
    """
    return next((most for pattern, most in _SIZES.items() if pattern.search(key)), None)


def _check_index(path: Path) -> None:
    """Check that an index of shards names files of its folder."""
    ending = path.name.split(".")[-3]
    content = read_json(path)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    names = shards.values() if isinstance(shards, dict) else [shards]
    shard_name = re.compile(rf"[\w-][\w.-]*\.{ending}")
    for name in names:
        if not isinstance(name, str) or not shard_name.fullmatch(name):
            requirement = f"{path} must name files of its folder that end in .{ending}"
            raise UserFileError(f"{requirement}, got {reprlib.repr(name)}. {_AGAIN}")
