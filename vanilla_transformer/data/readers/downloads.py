"""Corpora by the identifiers of OPUS and mtdata, which their own libraries download once."""

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from vanilla_transformer.file_utils import cached_folder
from vanilla_transformer.import_utils import requires_extra

from .corpus_spec import CorpusSpec

_EXTRA, _FEATURE = "corpora", "Downloading a corpus"
_MOSES_FILE, _TSV_FILE = "corpus.zip", "corpus.tsv"


def download(spec: CorpusSpec) -> Path:
    """
    Return the file of a corpus whose `dataset` is `opus:NAME`, `opus:NAME/RELEASE` or `mtdata:IDENTIFIER`.

    It is downloaded at the first call, into the cache of `datasets`.

    Raises:
        ValueError: the languages are not given, or the library knows no such corpus.
        OSError: the library is not installed, or the corpus cannot be downloaded.
    """
    library, _, name = str(spec.dataset).partition(":")
    source, target = spec.require_languages()
    fetch: Callable[..., None] = _download_opus if library == "opus" else _download_mtdata
    import datasets

    folder = Path(datasets.config.HF_DATASETS_CACHE) / "vanilla_transformer" / "downloads"
    entry = f"{library}-{name}-{source}-{target}".replace("/", "-")
    found = cached_folder(folder, entry, partial(fetch, name=name, source=source, target=target))
    return next(path for file in (_MOSES_FILE, _TSV_FILE) if (path := found / file).is_file())


def _download_opus(folder: Path, name: str, source: str, target: str) -> None:
    """Download the Moses archive of a corpus by opustools, which prints its progress and the reasons of failures."""
    with requires_extra(_EXTRA, _FEATURE):
        from opustools import OpusGet
    corpus, _, release = name.partition("/")
    printed = io.StringIO()
    with redirect_stdout(printed):
        getter = OpusGet(
            source=source,
            target=target,
            directory=corpus,
            release=release or "latest",
            preprocess="moses",
            download_dir=str(folder),
            suppress_prompts=True,
        )
        try:
            found, size = getter.get_corpora_data()
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise OSError(f"Cannot look up opus:{name}: {reason}. Check the network.") from error
        if not found:
            raise ValueError(f"OPUS must have the corpus {name} for {source} and {target}, but it has none.")
        getter.download(found, size)
    paths = [path for path in folder.iterdir() if zipfile.is_zipfile(path)]
    if len(paths) != 1:
        reason = " ".join(printed.getvalue().split("\r")[-1].split())
        raise OSError(f"Cannot download opus:{name}: {reason or 'the file is damaged'}. Nothing was written.")
    paths[0].rename(folder / _MOSES_FILE)


def _download_mtdata(folder: Path, name: str, source: str, target: str) -> None:
    """Download a corpus by mtdata in another process, since importing it changes the logging of the process."""
    with requires_extra(_EXTRA, _FEATURE):
        from importlib.metadata import version

        version("mtdata")
    module = "vanilla_transformer.data.readers.mtdata_process"
    words = [sys.executable, "-m", module, name, source, target, str(folder / _TSV_FILE)]
    result = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason was given"])[-1]
        error = ValueError if result.returncode == 2 else OSError
        raise error(f"Cannot download mtdata:{name}: {reason}")
