"""Download public parallel corpora as plain text files, one sentence per line."""

import gzip
import hashlib
import logging
import shutil
import urllib.request
import zlib
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from tqdm.auto import tqdm

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.hashes import hash_file

logger = logging.getLogger(__name__)

_TIMEOUT = 60  # seconds without an answer
_PIECE = 2**20  # bytes


class TextFile(NamedTuple):
    """A text of a corpus: its number of lines, and the SHA-256 of the copy that our results were
    measured on.
    """

    lines: int
    sha256: str


class PublicCorpus(NamedTuple):
    """A corpus published as `{url}/{name}.gz` for each name in `files`."""

    url: str
    license: str
    files: dict[str, TextFile]


CORPORA = {
    # Elliott et al. (2016), task 1, raw text: https://github.com/multi30k/dataset
    "multi30k": PublicCorpus(
        url="https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw",
        license="for non-commercial research and education; the text must not be redistributed",
        files={
            "train.en": TextFile(
                29_000, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"
            ),
            "train.de": TextFile(
                29_000, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"
            ),
            "train.fr": TextFile(
                29_000, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d"
            ),
            "val.en": TextFile(
                1_014, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"
            ),
            "val.de": TextFile(
                1_014, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"
            ),
            "val.fr": TextFile(
                1_014, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc"
            ),
            "test_2016_flickr.en": TextFile(
                1_000, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"
            ),
            "test_2016_flickr.de": TextFile(
                1_000, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"
            ),
            "test_2016_flickr.fr": TextFile(
                1_000, "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6"
            ),
        },
    ),
}


def download_corpus(name: str, folder: Path, base_url: str | None = None) -> Path:
    """Download the corpus `name` into `folder`, all of its files or none.

    The number of lines of each file must be the published one. A file whose SHA-256 differs from
    the copy that our results were measured on is kept, with a warning: upstream may have corrected
    it.

    Args:
        base_url: A mirror with the same `.gz` files, `https://...` or `file://...`, instead of the
            original source.
    """
    if name not in CORPORA:
        raise UserError(f"There is no corpus {name!r}. Known corpora: {', '.join(CORPORA)}.")
    corpus = CORPORA[name]
    url = (base_url or corpus.url).rstrip("/")
    for file, expected in corpus.files.items():
        path = folder / file
        if path.exists() and hash_file(path) != expected.sha256:
            requirement = f"{path} must be new or the file of {name}, but it is another one"
            raise UserFileError(f"{requirement}. Move it, or choose another --output_dir.")
    with atomic_folder(folder) as aside:
        for file, expected in corpus.files.items():
            archive = aside / f"{file}.gz"
            address = f"{url}/{file}.gz"
            try:
                fetch_file(address, archive)
            except OSError as error:
                remedy = "Nothing was written. Check the network, or name a mirror with --base_url."
                raise UserFileError(f"Cannot download {address}: {error}. {remedy}") from error
            _extract(archive, aside / file, address, expected)
            archive.unlink()
    return folder


def fetch_file(url: str, path: Path) -> None:
    """
    Download a file to disk, with a progress bar.

    The libraries that this package needs refuse every address in their offline mode, also a mirror
    on this disk.
    """
    bar = {"desc": url.rpartition("/")[2], "unit": "B", "unit_scale": True, "delay": 1}
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, path.open("wb") as file:
            size = response.headers["Content-Length"]
            total = None if size is None else int(size)
            with tqdm.wrapattr(response, "read", total=total, disable=None, **bar) as stream:
                shutil.copyfileobj(stream, file, _PIECE)
    # A ValueError is for an address of no known kind.
    except (OSError, HTTPException, ValueError) as error:
        raise OSError(str(getattr(error, "reason", None) or error)) from error
    written = path.stat().st_size
    if total is not None and written < total:
        raise OSError(f"{written:,} of {total:,} bytes arrived")


def _extract(archive: Path, path: Path, url: str, expected: TextFile) -> None:
    """Decompress a downloaded text, check its number of lines, and warn if its SHA-256 is
    another.
    """
    lines, digest = 0, hashlib.sha256()
    try:
        with gzip.open(archive) as packed, path.open("wb") as text:
            for piece in iter(partial(packed.read, _PIECE), b""):
                text.write(piece)
                digest.update(piece)
                lines += piece.count(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problem = f"{url} is not a complete .gz file ({error})"
        raise UserError(f"{problem}. Nothing was written; download again.") from error
    if lines != expected.lines:
        requirement = f"{path.name} must have {expected.lines:,} lines"
        raise UserError(f"{requirement}, got {lines:,}. Nothing was written.")
    if digest.hexdigest() != expected.sha256:
        logger.warning(
            "%s differs from the copy that the published results were measured on.", path.name
        )
