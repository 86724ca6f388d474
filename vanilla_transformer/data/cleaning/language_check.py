"""Notice a corpus in the wrong direction or language, on a sample of it."""

import logging
from collections.abc import Sequence

import datasets
import numpy as np

from vanilla_transformer.data.readers import CorpusSpec, SentencePair

from .language_identification import identify, is_clearly_another, language_code, load_identifier
from .report import EXAMPLES, abbreviate

logger = logging.getLogger(__name__)

_SAMPLE = 300  # pairs of each corpus, evenly spaced
_SUSPICIOUS = 0.2  # share of the sample, from which on a corpus is reported


def find_language_mistakes(texts: datasets.Dataset, specs: Sequence[CorpusSpec]) -> list[str]:
    """
    Return a warning, with examples, for each corpus of which a fifth is in another direction or language.

    Corpora without `source_language` and `target_language`, or with names of languages that are no codes, are not
    checked.

    Args:
        texts: Columns `source`, `target` and `corpus`, the number of the pair's corpus.
    """
    if not any(spec.source_language and spec.target_language for spec in specs):
        return []
    try:
        load_identifier()
    except OSError as error:
        logger.info("The languages of the corpora are not checked. %s", error)
        return []
    corpora = texts.data.column("corpus").to_numpy()
    found = []
    for number, spec in enumerate(specs):
        rows = np.flatnonzero(corpora == number)
        sample = texts[rows[:: max(1, len(rows) // _SAMPLE)][:_SAMPLE].tolist()]
        found.append(_check(spec, list(map(SentencePair, sample["source"], sample["target"]))))
    return [warning for warning in found if warning]


def _check(spec: CorpusSpec, sample: Sequence[SentencePair]) -> str | None:
    source, target = map(language_code, spec.direction)
    if source is None or target is None or source == target:
        return None
    swapped = [pair for pair in sample if (identify(pair.source), identify(pair.target)) == (target, source)]
    if len(swapped) > _SUSPICIOUS * len(sample):
        mistake = f"has its sides swapped in {_share(swapped, sample)}. Exchange its source and target"
        return _describe(spec, mistake, swapped)
    for side, code in enumerate((source, target)):
        others = [pair for pair in sample if is_clearly_another(pair[side], code)]
        if len(others) > _SUSPICIOUS * len(sample):
            name = ("source", "target")[side]
            mistake = f"has a {name} in another language than {code} in {_share(others, sample)}"
            return _describe(spec, f"{mistake}. Check it, or set `drop_other_languages`", others)
    return None


def _share(found: Sequence[SentencePair], sample: Sequence[SentencePair]) -> str:
    return f"{len(found)} of {len(sample)} pairs"


def _describe(spec: CorpusSpec, mistake: str, pairs: Sequence[SentencePair]) -> str:
    examples = [f"    {abbreviate(pair.source)} | {abbreviate(pair.target)}" for pair in pairs[:EXAMPLES]]
    return "\n".join([f"The corpus {spec.name} {mistake}. Examples:", *examples])
