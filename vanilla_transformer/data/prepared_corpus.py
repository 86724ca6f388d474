"""
A prepared corpus: a folder of Arrow shards that `prepare` has cleaned and tokenized, of any size.

    manifest.json           written last: without it the folder is not a prepared corpus
    report.json             the results of cleaning, as `corpus.json` of a run has them
    tokenizer/
    shards/00000.arrow ...  streams with the columns `source`, `target`, `corpus` (its number in
                            the mix), `input_ids` and `labels`

Token ids end with EOS, and begin with the tags of their languages if the model has such tags:
training reads them as they are.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import datasets
import pyarrow as pa
from pydantic import Field

from vanilla_transformer.errors import MissingFileError, UserError, UserFileError
from vanilla_transformer.files.atomic import atomic_file
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.loading.model_folders import mapping
from vanilla_transformer.user_input.schemas import Schema

from .cached_texts import SCHEMA
from .tokenized_corpus import TokenTable

MANIFEST_FILE, REPORT_FILE = "manifest.json", "report.json"
SHARDS, TOKENIZER = "shards", "tokenizer"  # folders
_TOKENS = pa.list_(pa.int32())
ENCODED_SCHEMA = pa.schema({"input_ids": _TOKENS, "labels": _TOKENS})
SHARD_SCHEMA = pa.schema([*SCHEMA, *ENCODED_SCHEMA])
_Count = Annotated[int, Field(ge=1, le=10**15, strict=True)]
_Number = Annotated[int, Field(ge=0, lt=10**6, strict=True)]
_Length = Annotated[int, Field(ge=1, le=10**7, strict=True)]  # tokens of a sentence with EOS


class ShardEntry(Schema, frozen=True):
    """A shard as the manifest describes it: its file, the number of its corpus in the mix, its
    pairs, its tokens with EOS, and the SHA-256 of its bytes.
    """

    noun = "key of a shard"
    file: Annotated[
        str, Field(pattern=r"^shards/[0-9]+\.arrow$", title="a path such as shards/00000.arrow")
    ]
    corpus: _Number
    pairs: _Count
    source_tokens: _Count
    target_tokens: _Count
    longest_source: _Length
    longest_target: _Length
    bytes: _Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$", title="64 hexadecimal digits")]


class Manifest(Schema, frozen=True):
    """
    The shards of a prepared corpus, and the recipe that shaped them.

    Args:
        pairs: Pairs of all shards.
        tokenizer: The hash of the tokenizer; see [`hash_tokenizer`].
        corpora: The names of the corpora of the mix.
        recipe: The keys of the recipe that shaped the corpus, with their values.
    """

    noun = "key of a manifest"
    format: Literal[1] = Field(1, title="1, the only format that this version reads")
    pairs: _Count
    tokenizer: str
    corpora: list[str]
    recipe: dict[str, Any]
    shards: list[ShardEntry] = Field(min_length=1, title="a list of shards, with one or more")


def read_manifest(folder: str | Path) -> Manifest:
    """Return the manifest of a prepared corpus, whose values are checked. It is read once, as long
    as its file stays the same.
    """
    path = Path(folder) / MANIFEST_FILE
    try:
        status = path.stat()
        version = status.st_ino, status.st_size, status.st_mtime_ns
        return _read_version(path, version)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(
            f"A prepared corpus must be a folder that `prepare` has completed, but {path} is "
            "missing. Run `prepare` to its end, or name another folder."
        ) from error


@lru_cache(maxsize=1)
def _read_version(path: Path, version: tuple[int, int, int]) -> Manifest:
    content = read_json(path)
    try:
        if not isinstance(content, dict):
            raise UserError("It must be a mapping.")
        manifest = Manifest(**content)
        if manifest.pairs != sum(shard.pairs for shard in manifest.shards):
            raise UserError("`pairs` must be the sum of the pairs of its shards.")
        if max(shard.corpus for shard in manifest.shards) >= len(manifest.corpora):
            raise UserError("`corpora` must have the name of the `corpus` of each shard.")
    except UserError as error:
        reason = str(error).splitlines()[0]
        raise UserFileError(
            f"{path} must be the manifest of a prepared corpus. {reason} Copy the folder again, or "
            "run `prepare` again."
        ) from error
    return manifest


def write_manifest(folder: str | Path, manifest: Manifest) -> None:
    """Write the manifest of a folder whose other files are complete."""
    with atomic_file(Path(folder) / MANIFEST_FILE) as file:
        file.write(f"{manifest.model_dump_json(indent=2)}\n".encode())


def describe_shard(path: Path) -> ShardEntry:
    """Return the entry of a shard for the manifest, given its file in a folder `shards`. All of
    its pairs are of one corpus.
    """
    dataset = datasets.Dataset.from_file(str(path))
    table = TokenTable(dataset)
    sources, targets = table.sources.lengths(), table.targets.lengths()
    return ShardEntry(
        file=f"{SHARDS}/{path.name}",
        corpus=dataset.data.column("corpus")[0].as_py(),
        pairs=len(table),
        source_tokens=int(sources.sum()),
        target_tokens=int(targets.sum()),
        longest_source=int(sources.max()),
        longest_target=int(targets.max()),
        bytes=path.stat().st_size,
        sha256=hash_file(path),
    )


def open_shards(
    folder: str | Path, entries: Sequence[ShardEntry], verify: bool = False
) -> datasets.Dataset:
    """
    Open shards, in the order given, as one memory-mapped dataset.

    Args:
        verify: Whether to compare the hash of each file. By default its size and its number of
            pairs are compared.
    """
    shards = []
    for entry in entries:
        path = Path(folder, entry.file)
        try:
            with mapping(path):
                shard = datasets.Dataset.from_file(str(path))
            is_whole = (path.stat().st_size, len(shard)) == (entry.bytes, entry.pairs)
        except (FileNotFoundError, pa.ArrowException):
            is_whole = False
        if not is_whole or (verify and hash_file(path) != entry.sha256):
            raise UserFileError(
                f"Each shard must be as {MANIFEST_FILE} says, but {path} is missing or damaged. "
                "Copy it again, or run `prepare` again."
            )
        shards.append(shard)
    return datasets.concatenate_datasets(shards)
