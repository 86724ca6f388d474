"""The line with names of columns that a TSV file of sentences or terms may begin with."""

import re
from collections.abc import Sequence

_SIDES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
_CODE = re.compile(r"([a-z]{2})([-_][a-z0-9]{2,8})*")
# Of ISO 639-1.
_CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id
ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu
lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu
rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr
ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_KNOWN_CODES = frozenset(_CODES.split())


def find_named_columns(
    cells: Sequence[str], source_language: str | None = None, target_language: str | None = None
) -> tuple[int, int] | None:
    """
    Return the columns of both sides if cells name them, or None if the cells are text.

    They may be called `source` and `target` (or `src` and `tgt` or `trg`), or by the codes of the
    languages. Where a language is not given, two cells with codes of different languages are names,
    too.
    """
    names = [_normalize(cell) for cell in cells]
    for sides in _SIDES:
        if all(names.count(side) == 1 for side in sides):
            return names.index(sides[0]), names.index(sides[1])
    if source_language is not None and target_language is not None:
        source, target = _normalize(source_language), _normalize(target_language)
        sources = [index for index, name in enumerate(names) if _is_of(name, source)]
        targets = [index for index, name in enumerate(names) if _is_of(name, target)]
        if len(sources) != 1 or len(targets) != 1 or sources == targets:
            return None
        return sources[0], targets[0]
    matches = enumerate(map(_CODE.fullmatch, names))
    codes = [index for index, match in matches if match is not None and match[1] in _KNOWN_CODES]
    return (codes[0], codes[1]) if len(codes) == 2 and names[codes[0]] != names[codes[1]] else None


def _normalize(cell: str) -> str:
    return cell.strip().strip('"').casefold().replace("_", "-")


def _is_of(name: str, language: str) -> bool:
    """Return whether a name is the code of a language, or one of the two is a variant of the
    other.
    """
    return bool(name) and (
        f"{name}-".startswith(f"{language}-") or f"{language}-".startswith(f"{name}-")
    )
