"""Download a corpus by mtdata and write it as TSV:
`python -m ...mtdata_process IDENTIFIER SOURCE TARGET FILE`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.files.private_folders import find_unsafe


def main(words: Sequence[str]) -> int:
    """Write the pairs of a corpus, in the direction of the languages, and return 2 if there is no
    such corpus.
    """
    identifier, source, target, file = words
    from mtdata import cache_dir, cached_index_file

    unsafe = find_unsafe(cached_index_file)
    if unsafe is not None:
        remedy = "MTDATA can name another folder, which only you can write."
        sys.stderr.write(f"it keeps its index as a pickle in {cache_dir}, but {unsafe}. {remedy}\n")
        return 1
    from mtdata.cache import Cache
    from mtdata.entry import DatasetId
    from mtdata.index import INDEX
    from mtdata.iso.bcp47 import bcp47
    from mtdata.parser import Parser

    try:
        entry = INDEX[DatasetId.parse(identifier)]
        sides = [bcp47(source), bcp47(target)]
    except Exception as error:  # mtdata raises no narrower ones
        sys.stderr.write(
            f"mtdata must have the corpus and the languages, but it has not ({error!r}).\n"
        )
        return 2
    orders = [order for order in (1, -1) if _are_compatible(entry.did.langs[::order], sides)]
    if not orders:
        languages = " and ".join(map(str, entry.did.langs))
        sys.stderr.write(f"it must be in {source} and {target}, but it is in {languages}.\n")
        return 2
    parser = Parser(Cache(cache_dir).get_entry(entry), ext=entry.in_ext or None, ent=entry)
    with Path(file).open("w", encoding="utf-8") as lines:
        for row in parser.read_segs(show_pbar=False):
            cells = [" ".join((text or "").split()) for text in row[:2]]
            lines.write("\t".join(cells[:: orders[0]]) + "\n")
    return 0


def _are_compatible(languages: Sequence[Any], sides: Sequence[Any]) -> bool:
    if len(languages) != 2:
        return False
    return languages[0].is_compatible(sides[0]) and languages[1].is_compatible(sides[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
