"""Score a model of several languages in each direction."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
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
        scores = {"bleu": self.scores.bleu, "chrf": self.scores.chrf}
        note = "zero-shot" if self.is_zero_shot else ""
        return {
            "direction": str(self.direction),
            "sentences": self.sentences,
            **scores,
            "note": note,
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
        splits = [("-".join(parts[:end]), "-".join(parts[end:])) for end in range(1, len(parts))]
        if not splits:
            raise UserError(f"A direction must be two languages, such as en-de, got {name!r}.")
        known = [split for split in splits if split[1] in languages.targets]
        directions.append(languages.resolve(*(known or splits)[0]))
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
        every = dict.fromkeys([*(languages.source_codes or languages.targets), *languages.targets])
        codes = [
            code
            for code in every
            if Path(f"{prefix}.{code}").is_file() or is_pipe(f"{prefix}.{code}")
        ]
        known = languages.source_codes or codes
        pairs = [Direction(*pair) for pair in permutations(codes, 2)]
        directions = [
            pair for pair in pairs if pair.source in known and pair.target in languages.targets
        ]
    if not directions:
        shown = ", ".join(f"{prefix}.{code}" for code in list(languages.targets)[:3])
        raise UserError(f"The text of two languages must be in files such as {shown}, got fewer.")
    read = dict.fromkeys(code for direction in directions for code in direction if code is not None)
    texts = {code: read_lines(f"{prefix}.{code}") for code in read}
    counts = {code: len(lines) for code, lines in texts.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} in {prefix}.{code}" for code, count in counts.items())
        raise UserError(f"All languages must have the same number of lines, got {shown}.")
    for direction in directions:
        for number, pair in enumerate(
            zip(*(texts[str(code)] for code in direction), strict=True), start=1
        ):
            if any(pair) and not all(pair):
                raise blank_side_error(number, f"{prefix}.{direction[pair.index('')]}")
    return list(directions), texts


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
        options = {"src_lang": direction.source, "tgt_lang": direction.target}
        _, scores = translate_and_score(
            translate, list(zip(source, target, strict=True)), **options
        )
        is_zero_shot = bool(languages.directions) and direction not in languages.directions
        results.append(DirectionScores(direction, len(source), scores, is_zero_shot))
    return results
