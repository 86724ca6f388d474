"""Which columns of a table, or languages of a `translation`, are source and target."""

from collections.abc import Iterable

from .corpus_spec import CorpusSpec


def find_columns(names: Iterable[str], nested: bool, spec: CorpusSpec, location: str) -> tuple[str, str]:
    """Return which columns, or which languages of a `translation`, are source and target."""
    names = list(names)
    languages = [language for language in (spec.source_language, spec.target_language) if language is not None]
    for sides in (languages, ["source", "target"]):
        if len(sides) == 2 and set(sides) <= set(names):
            return sides[0], sides[1]
    found = ", ".join(map(repr, sorted(names) if nested else names))
    if nested and len(languages) < 2:
        raise ValueError(f"{location} needs `source_language` and `target_language`, two of {found}.")
    if nested:
        missing = next(language for language in languages if language not in names)
        raise ValueError(f"{location} has no language {missing!r}, it has {found}.")
    raise ValueError(
        f"{location} must have a column 'translation', it has {found}. Columns named as the two languages, or "
        "'source' and 'target', will do as well."
    )
