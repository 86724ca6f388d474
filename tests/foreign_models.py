"""Small models of each format that this package converts, and mutations of their files: cut, flipped
and lost bytes, and entries of wrong types or lost ones.
"""

import argparse
import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import MarianConfig, MarianMTModel

from tests.fairseq_files import build_fsmt_tokenizer, fairseq_folder, fsmt
from tests.m2m_100_models import build_m2m_tokenizer, m2m_100
from tests.marian_files import MARIAN_SENTENCES, build_marian_tokenizer, marian_folder
from tests.opennmt_files import eole_folder, opennmt_checkpoint
from tests.tiny import train_pieces
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.common import rename
from vanilla_transformer.extensions.conversion.joeynmt import JOEYNMT
from vanilla_transformer.extensions.conversion.weight_names import JOEYNMT_NAMES
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

SIDE = {"type": "transformer", "hidden_size": 16, "ff_size": 32, "num_heads": 2}
SIDE |= {"num_layers": 2, "dropout": 0.1, "layer_norm": "post"}
SIDE |= {"embeddings": {"embedding_dim": 16, "scale": True, "dropout": 0.0}}


def joey_folder(folder, same=True, **changes):
    folder.mkdir()
    pieces = train_pieces(folder / "sp", MARIAN_SENTENCES * 3)
    tokens = ["<unk>", "<pad>", "<s>", "</s>", *pieces[3:]]
    data = {"level": "bpe", "tokenizer_cfg": {"model_file": "elsewhere/sp.model"}}
    config = {"model": {"tied_embeddings": same, "tied_softmax": same}, "data": {}}
    config["model"] |= dict.fromkeys(("encoder", "decoder"), SIDE | changes)
    config["testing"] = {"beam_size": 5, "beam_alpha": 1.0, "max_output_length": 12}
    for side, kept in (("src", tokens), ("trg", tokens if same else tokens[:-3])):
        (folder / f"{side}_vocab.txt").write_text("\n".join(kept) + "\n")
        config["data"][side] = data | {"lang": side}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
SIZES |= {"vocab_size": 20}


def hugging_face_marian(folder, _):
    folder.mkdir()
    build_marian_tokenizer(folder).save_pretrained(folder)
    config = MarianConfig(**SIZES, pad_token_id=0, decoder_start_token_id=0)
    MarianMTModel(config).save_pretrained(folder)
    return folder / "model.safetensors"


def hugging_face_fsmt(folder, _):
    folder.mkdir()
    tokenizer = build_fsmt_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    fsmt(len(tokenizer)).save_pretrained(folder)
    return folder / "model.safetensors"


def hugging_face_m2m_100(folder, _):
    folder.mkdir()
    tokenizer = build_m2m_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    m2m_100(len(tokenizer)).save_pretrained(folder)
    return folder / "model.safetensors"


def joeynmt(folder, _):
    """Write a model of JoeyNMT whose weights are the ones that its configuration needs."""
    joey = joey_folder(folder)
    torch.save({"model_state": {}}, joey / "best.ckpt")
    config = VanillaTransformerConfig(**JOEYNMT.fields(JOEYNMT.read(joey)))
    model = VanillaTransformerForConditionalGeneration(config)
    weights = {}
    for name, tensor in model.state_dict().items():
        weights[rename(name, JOEYNMT_NAMES)] = tensor
    torch.save({"model_state": weights}, joey / "best.ckpt")
    return folder / "best.ckpt"


def opennmt_py(folder, text):
    folder.mkdir()
    return opennmt_checkpoint(text, folder)


# Each function writes a model of the format and returns the file with its weights.
MAKERS = {
    "marian": hugging_face_marian,
    "marian-npz": lambda folder, _: marian_folder(folder) / "model.npz",
    "fsmt": hugging_face_fsmt,
    "m2m_100": hugging_face_m2m_100,
    "fairseq": lambda folder, _: fairseq_folder(folder) / "checkpoint_best.pt",
    "joeynmt": joeynmt,
    "opennmt-py": opennmt_py,
    "eole": lambda folder, text: eole_folder(text, folder) / "model.00.safetensors",
}


# Mappings, lists and their values, as files hold them.
Tree = dict[str, Any] | list[Any] | argparse.Namespace
VALUES = [None, -1, 0, 3, 10**9, 10**30, 1.5, "x", "", [], [1], {}, {"a": 1}, True]
TEXTS = ["", "[]", "3", "null", "{", "- a\n- b\n", "\0", "x: [\n"]
OPTIONS = "special:model.yml"  # of Marian, in its weights


def mutate_file(path: Path, draw: random.Random) -> None:
    """Replace a file by a mutation of it: of its entries where it has some, or of its text or
    bytes.
    """
    entries = {".json": _mutate_json, ".yaml": _mutate_yaml, ".npz": _mutate_arrays}
    entries |= {".pt": _mutate_pickle, ".ckpt": _mutate_pickle}
    if path.suffix in entries and draw.random() < 0.7:
        entries[path.suffix](path, draw)
    elif path.suffix in (".json", ".yaml", ".yml", ".txt", ""):
        text = _mutate_text(path.read_text(encoding="utf-8"), draw)
        path.write_text(text, encoding="utf-8")
    else:
        path.write_bytes(_mutate_bytes(path.read_bytes(), draw))


def check_mutations(
    numbers: range,
    form: str,
    text_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    call: Callable[[Callable[[], None]], None] = lambda check: check(),
) -> None:
    """
    Check that mutations of a model are converted or refused in one line that names it, and that
    nothing is left.

    Args:
        call: Calls the check of a mutation, for example with limits.
    """
    model = tmp_path / "model"
    weights = MAKERS[form](model, text_folder)
    for number in numbers:
        work = tmp_path / str(number)
        work.mkdir()
        call(partial(_check_mutation, model, form, weights, number, work, capsys))


def _check_mutation(*mutation: Any) -> None:
    *_, number, work, _ = mutation
    status, message = _convert_mutation(*mutation)
    assert status in (0, 2), number
    if status == 2:
        assert str(work / "theirs") in message, (number, message)
        assert not (work / "ours").exists(), number


def _convert_mutation(
    model: Path,
    form: str,
    weights: Path,
    number: int,
    work: Path,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str]:
    """Convert mutation `number` of a model, and return the status of the command and its error
    message.

    Args:
        model: The folder of the model, which stays as it is.
        weights: The file with its weights.
        work: An empty folder for the copy and the result.
    """
    draw = random.Random(f"{form} {number}")
    folder = shutil.copytree(model, work / "theirs")
    paths = sorted(filter(Path.is_file, folder.rglob("*")))
    files = [path for path in paths if path.suffix not in (".py", ".md")]
    mutate_file(draw.choice(files), draw)
    (work / "sentences").write_text("A man.\n")
    source = folder / weights.relative_to(model) if form == "opennmt-py" else folder
    flags = ["--source_format", form, "--sentences", str(work / "sentences")]
    status = main(["convert", str(source), str(work / "ours"), *flags])
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == (status == 2)
    return status, "".join(errors)


def _mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    kind, start = draw.randrange(4), draw.randrange(max(1, len(content)))
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + content[start + draw.randrange(1, 300) :]
    changed = bytearray(content)
    end = len(content) if kind == 2 else min(400, len(content))
    for _ in range(draw.randrange(1, 20)):
        index = draw.randrange(end)
        changed[index] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _mutate_text(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    number = draw.randrange(len(lines))
    before, line, after = lines[:number], lines[number], lines[number + 1 :]
    value = draw.choice(["x", "[]", "{}", "null", "-1", "1" + "0" * 30, "''"])
    with_value = f"{line.rsplit(':', 1)[0]}: {value}"
    cut = line[:-1] + draw.choice("{[:'\t")
    changed = draw.choice([[], [line, line], [with_value], [cut]])
    texts = ["\n".join([*before, *changed, *after])] * 4
    return draw.choice([*texts, "\n".join(before), draw.choice(TEXTS)])


def _mutate_json(path: Path, draw: random.Random) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(_mutate_tree(content, draw)), encoding="utf-8")


def _mutate_yaml(path: Path, draw: random.Random) -> None:
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(_mutate_tree(content, draw)))


def _mutate_pickle(path: Path, draw: random.Random) -> None:
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(path, weights_only=True)
    torch.save(_mutate_tree(content, draw), path)


def _mutate_arrays(path: Path, draw: random.Random) -> None:
    with np.load(path) as content:
        arrays = dict(content)
    if draw.random() < 0.5:
        text = _mutate_text(arrays[OPTIONS].tobytes().rstrip(b"\0").decode(), draw)
        arrays[OPTIONS] = np.frombuffer(text.encode() + b"\0", dtype=np.int8)
    else:
        name = draw.choice(sorted(arrays))
        array = arrays[name]
        numbers = [array.astype(np.int8), np.float32(3)]
        arrays[name] = draw.choice([array[:1], array.T, np.zeros(0, np.float32), *numbers])
    np.savez(path, **arrays)


def _mutate_tree(tree: Tree, draw: random.Random) -> Tree:
    """Return a tree of mappings and lists in which one entry is lost or has another value."""
    parent, key = draw.choice([*_entries(tree)])
    if isinstance(parent, dict) and draw.random() < 0.4:
        del parent[key]
    elif isinstance(parent[key], torch.Tensor) and draw.random() < 0.7:
        tensor = parent[key]
        tensors = [tensor[:1], tensor.long(), tensor.reshape(-1), tensor.half()]
        parent[key] = draw.choice(tensors)
    else:
        parent[key] = draw.choice(VALUES)
    return tree


def _entries(tree: Tree) -> Iterator[tuple[Tree, Any]]:
    keys = list[Any]()
    if isinstance(tree, argparse.Namespace):
        tree = vars(tree)
    if isinstance(tree, dict):
        keys += tree
    elif isinstance(tree, list):
        keys += range(min(3, len(tree)))
    for key in keys:
        yield tree, key
        yield from _entries(tree[key])


PARSERS = {".yaml": yaml.safe_load, ".json": json.loads}


def change_entries(name, *paths, **changes):
    """Return a function that changes the entries of mappings in a file, each at its path, such as
    `model.encoder`.
    """

    def damage(folder):
        file = folder / name
        content = _read(file)
        for path in paths or ("",):
            entries = content
            for key in filter(None, path.split("/")):
                entries = entries[key]
            if isinstance(entries, argparse.Namespace):
                entries = vars(entries)
            entries.update(changes)
        if file.suffix in PARSERS:
            file.write_text(json.dumps(content))  # which is YAML, too
        else:
            torch.save(content, file)

    return damage


def _read(file):
    if file.suffix in PARSERS:
        return PARSERS[file.suffix](file.read_text())
    return torch.load(file, weights_only=False)


def change_arrays(*, without=(), options=None, **added):
    """Return a function that changes Marian's arrays, and its options: entries, or all of their
    text.
    """

    def damage(folder):
        with np.load(folder / "model.npz") as content:
            arrays = dict(content) | added
        for name in without:
            arrays.pop(name, None)
        if options is not None:
            before = yaml.safe_load(arrays[OPTIONS].tobytes().rstrip(b"\0"))
            text = options if isinstance(options, str) else yaml.safe_dump(before | options)
            arrays[OPTIONS] = np.frombuffer(text.encode() + b"\0", dtype=np.int8)
        np.savez(folder / "model.npz", **arrays)

    return damage
