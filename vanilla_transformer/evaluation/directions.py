"""Score a model of several languages in each direction."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, permutations
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import blank_side_error, read_lines
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import is_pipe
from vanilla_transformer.text.languages import Direction, Languages

from .scores import Scores, translate_and_score


class DirectionScores(NamedTuple):
    """Scores of one direction. It is zero-shot if the model was trained on others only."""

    direction: Direction
    sentences: int
    scores: Scores
    is_zero_shot: bool

    def as_row(self) -> dict[str, Any]:
        """Return the cells of a table."""
        return {
            "direction": str(self.direction),
            "sentences": self.sentences,
            "bleu": self.scores.bleu,
            "chrf": self.scores.chrf,
            "note": "zero-shot" if self.is_zero_shot else "",
        }

    def as_dict(self) -> dict[str, Any]:
        about = {
            "direction": list(self.direction),
            "sentences": self.sentences,
            "zero_shot": self.is_zero_shot,
        }
        return about | self.scores._asdict()


def parse_directions(names: Iterable[str], languages: Languages) -> list[Direction]:
    """Return directions by their names, such as `en-de`. Codes may contain hyphens."""
    directions = []
    for name in names:
        parts = name.split("-")
        splits: list[tuple[str, str]] = []
        for end in range(1, len(parts)):
            splits.append(("-".join(parts[:end]), "-".join(parts[end:])))
        if not splits:
            raise UserError(f"A direction must be two languages, such as en-de, got {name!r}.")
        known = [split for split in splits if split[1] in languages.targets]
        source, target = (known or splits)[0]
        directions.append(languages.resolve(source, target))
    return directions


def read_test_sets(
    prefix: str, directions: Sequence[Direction] | None, languages: Languages
) -> tuple[list[Direction], dict[str, list[str]]]:
    """Read the files `PREFIX.en`, `PREFIX.de`, … , which are aligned line by line.

    Args:
        directions: Directions to read. By default all between the languages of the model that have
            a file.

    Returns:
        The directions, and the lines of each language.
    """
    if directions is None:
        directions = _find_directions(prefix, languages)
    if not directions:
        shown = ", ".join(f"{prefix}.{code}" for code in list(languages.targets)[:3])
        raise UserError(f"The text of two languages must be in files such as {shown}, got fewer.")
    texts = dict[str, list[str]]()
    for code in chain.from_iterable(directions):
        if code is not None and code not in texts:
            texts[code] = read_lines(f"{prefix}.{code}")
    counts = {code: len(lines) for code, lines in texts.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} in {prefix}.{code}" for code, count in counts.items())
        raise UserError(f"All languages must have the same number of lines, got {shown}.")
    for direction in directions:
        sides = [texts[str(code)] for code in direction]
        for number, pair in enumerate(zip(*sides, strict=True), start=1):
            if any(pair) and not all(pair):
                code = direction[pair.index("")]
                raise blank_side_error(number, f"{prefix}.{code}")
    return list(directions), texts


def _find_directions(prefix: str, languages: Languages) -> list[Direction]:
    """Return all directions between the languages of the model that have a file."""
    targets = languages.targets
    candidates = dict.fromkeys([*(languages.source_codes or targets), *targets])
    codes: list[str] = []
    for code in candidates:
        path = f"{prefix}.{code}"
        if Path(path).is_file() or is_pipe(path):
            codes.append(code)
    sources = languages.source_codes or codes
    directions: list[Direction] = []
    for source, target in permutations(codes, 2):
        if source in sources and target in targets:
            directions.append(Direction(source, target))
    return directions


def score_directions(
    translate: TranslationPipeline,
    languages: Languages,
    directions: Sequence[Direction],
    texts: Mapping[str, Sequence[str]],
) -> list[DirectionScores]:
    """Translate and score the text of each direction; see [`translate_and_score`]."""
    results = []
    for direction in directions:
        source, target = (texts[str(code)] for code in direction)
        pairs = list(zip(source, target, strict=True))
        options = {"src_lang": direction.source, "tgt_lang": direction.target}
        _, scores = translate_and_score(translate, pairs, **options)
        trained = languages.directions
        is_zero_shot = bool(trained) and direction not in trained
        result = DirectionScores(direction, len(pairs), scores, is_zero_shot)
        results.append(result)
    return results
