"""The fields of the configurations as arguments of a training run.

Types, defaults and help are read from the source text of the configurations, since importing those imports torch, and
`--help` must not wait for it.
"""

import ast
import re
from collections.abc import Collection
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, Literal

from .recipe import REMOVED

# Fields of the configuration that follow from the tokenizer and the corpus, or that training does not use.
_DERIVED = {"vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "max_source_length"}
_DERIVED |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "is_encoder_decoder"}
_DERIVED |= {"use_cache", *REMOVED}


def _model_arguments(name: str, module: str, unused: Collection[str], **defaults: Any) -> Any:
    """Create a dataclass of the fields that the classes of a configuration's module declare.

    Args:
        module: It documents all of its fields in the class `VanillaTransformer…Config`, the first with this ending.
        unused: Fields that are left out.
        defaults: By field, where a run has another default than the configuration.
    """
    source = Path(__file__).parents[1].joinpath(f"{module}.py").read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    text = next(ast.get_docstring(each) or "" for each in classes if re.fullmatch(r"\w+r(Long)?Config", each.name))
    added = []
    for node in (node for each in classes for node in each.body if isinstance(node, ast.AnnAssign)):
        assert isinstance(node.target, ast.Name) and node.value is not None
        key, default = node.target.id, ast.literal_eval(node.value)
        if key not in unused:
            kind = eval(ast.unparse(node.annotation), {"Literal": Literal})
            # A flag reads 0 as 0.0, and takes one type for all layers.
            kind = {float | int: float, str | list[str]: str}.get(kind, kind)
            metadata = {"help": _help(text, key)}
            added.append((key, kind, field(default=defaults.get(key, default), metadata=metadata)))
    return make_dataclass(name, added, frozen=True)


def _help(text: str, name: str) -> str:
    """Return the sentences about a field in the `Args` of a docstring."""
    found = re.search(rf"^    {name}(?: \(.*?\))?:((?:.|\n     +)*)", text, re.MULTILINE)
    assert found is not None, f"{name} is not documented"
    return " ".join(found[1].split()).replace("%", "%%")


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
ModelArguments = _model_arguments("ModelArguments", "configuration_vanilla_transformer", _DERIVED)
LongArguments = _model_arguments(
    "LongArguments", "configuration_vanilla_transformer_long", REMOVED, layer_types="full_attention"
)
