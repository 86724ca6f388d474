"""Marian's tokenizer for toolkits that cut text by SentencePiece and number the pieces themselves."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import MarianTokenizer


def find_sentencepiece(name: str | Path, folder: Path) -> Path:
    """
    A SentencePiece model, which a configuration names as the toolkit saw it in training: there, or in `folder`.

    Raises:
        FileNotFoundError: it is in neither place.
    """
    name = Path(name)
    for path in (name, folder / name, folder / name.name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"There is no SentencePiece model {name}, neither there nor in {folder}.")


def sentencepiece_tokenizer(
    spms: tuple[Path, Path], vocabularies: tuple[Sequence[str], Sequence[str]], special: Mapping[str, str]
) -> MarianTokenizer:
    """
    Args:
        spms: The SentencePiece models of source and target.
        vocabularies: The tokens of source and target, by id.
        special: The special tokens by their names in transformers, such as `pad_token`.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, tokens in zip(("vocab", "target_vocab_file"), vocabularies, strict=True):
            path = Path(folder, f"{name}.json")
            entries = {token: index for index, token in enumerate(tokens)}
            path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
            files[name] = str(path)
        separate = list(vocabularies[0]) != list(vocabularies[1])
        return MarianTokenizer(*map(str, spms), **files, separate_vocabs=separate, **special)
