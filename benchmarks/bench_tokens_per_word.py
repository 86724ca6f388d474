"""
Compare the tokens a word of this package's BPE and of SentencePiece's, of the same size and on the
same text.

    pip download --no-deps django wagtail weblate
    python -m benchmarks.bench_tokens_per_word *.whl

Arguments are text files, one sentence per line, or wheels, of whose catalogs (gettext) the
translations of each language are read. A tenth of the lines is left out of training and is
measured.
"""

import gettext
import io
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.text.scripts import find_scripts

LANGUAGES = ("de", "el", "ru", "ar", "he", "hi", "ta", "th", "zh_Hans", "ko", "ja", "vi")
VOCABULARY = 8000
_CATALOG = re.compile(r".*/locales?/([A-Za-z_]+)/LC_MESSAGES/[^/]+\.mo")
_HELD_OUT = 10  # one line of so many


def read_catalogs(wheels: Iterable[str], language: str) -> list[str]:
    """Return the translations into a language in the catalogs of some wheels, each once."""
    texts = dict[str, None]()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                match = _CATALOG.fullmatch(name)
                if match and match[1].replace("-", "_").lower() == language.lower():
                    catalog = gettext.GNUTranslations(io.BytesIO(archive.read(name)))
                    texts |= dict.fromkeys(_lines(catalog))
    return list(texts)


def _lines(catalog: gettext.GNUTranslations) -> Iterator[str]:
    for source, target in vars(catalog)["_catalog"].items():
        if source:  # the empty one is the header
            yield from filter(str.strip, target.splitlines())


def compare(texts: Sequence[str], vocab_size: int = VOCABULARY) -> tuple[int, float, float]:
    """Return the words of the held-out lines, and the tokens a word of SentencePiece's BPE and of
    this package's.
    """
    held_out = texts[::_HELD_OUT]
    training = [text for number, text in enumerate(texts) if number % _HELD_OUT]
    ours = VanillaTransformerTokenizer.train_from_iterator(training, vocab_size)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    words = sum(len(text.split()) for text in held_out)
    rows = theirs.encode(held_out), ours(held_out, add_special_tokens=False)["input_ids"]
    counts = [sum(map(len, row)) for row in rows]
    return words, counts[0] / words, counts[1] / words


def main(files: Sequence[str]) -> None:
    """Print a row of the table for each language of the wheels, or for each file."""
    wheels = [file for file in files if file.endswith(".whl")]
    corpora = {language: read_catalogs(wheels, language) for language in LANGUAGES if wheels}
    corpora |= {Path(file).name: read_lines(file) for file in files if file not in wheels}
    print(
        "| text | script | lines | SentencePiece | this package | ratio |\n"
        "|---|---|---|---|---|---|"
    )
    for name, texts in corpora.items():
        if texts:
            _, theirs, ours = compare(texts)
            row = (name, ", ".join(find_scripts(texts, 0.2)), f"{len(texts):,}")
            print(
                "|",
                " | ".join([*row, *(f"{each:.3f}" for each in (theirs, ours, ours / theirs))]),
                "|",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
