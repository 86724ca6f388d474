"""The text of a recipe before tokenization."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.scripts import find_scripts
from vanilla_transformer.text.translation_warnings import USED_SHARE

from .cached_texts import CachedTexts
from .cleaning_rules import CleaningRules
from .data_arguments import DataArguments
from .prepared_corpus import Manifest
from .readers import ROWS_PER_BATCH, CorpusSpec, SentencePair

_SAMPLED_SOURCES = 20_000


@dataclass(frozen=True)
class ValidationSet:
    """Held-out pairs of one direction."""

    direction: Direction
    pairs: Sequence[SentencePair]


@dataclass(frozen=True)
class Texts:
    """
    The text of a recipe before tokenization.

    Attributes:
        specs, rules: The corpora of the training text, and how each is cleaned.
        augmentations: The shares of training pairs that get each change.
        training: The training text, cleaned by the rules that need no tokens.
        validation_sets: Held-out pairs by their direction, maybe none.
        test: Held-out pairs, maybe none.
        forgetting: Pairs of the former domain of a model that is fine-tuned, maybe none.
        cache_dir (`Path`): Folder of everything cached.
        prepared (`Manifest`): What `train_data` holds, of which `training` is a sample then.
    """

    data: DataArguments
    specs: list[CorpusSpec]
    rules: list[CleaningRules]
    augmentations: dict[str, float]
    training: CachedTexts
    validation_sets: Sequence[ValidationSet]
    test: Sequence[SentencePair]
    forgetting: Sequence[SentencePair]
    cache_dir: Path
    prepared: Manifest | None = None

    @property
    def validation(self) -> list[SentencePair]:
        """Return the validation pairs of all directions."""
        return [pair for validation_set in self.validation_sets for pair in validation_set.pairs]

    @property
    def held_out(self) -> dict[str, Sequence[SentencePair]]:
        """Return the held-out pairs by their name, without empty sets."""
        return {name: pairs for name in ("validation", "test") if (pairs := getattr(self, name))}

    def sentences(self) -> Iterator[str]:
        """Yield every training sentence of both sides."""
        for table in self.training.dataset.with_format("arrow").iter(ROWS_PER_BATCH):
            sources, targets = table["source"].to_pylist(), table["target"].to_pylist()
            yield from chain.from_iterable(zip(sources, targets, strict=True))

    def source_scripts(self) -> list[str]:
        """Return the scripts of the sources, of 20,000 from all places of the text if there are
        more.
        """
        dataset = self.training.dataset
        rows = range(0, len(dataset), max(1, len(dataset) // _SAMPLED_SOURCES))
        return list(find_scripts(dataset.select(rows)["source"], USED_SHARE))
