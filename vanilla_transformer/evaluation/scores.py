"""BLEU and chrF by sacreBLEU, with the signatures that make them comparable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sacrebleu
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline


class Scores(NamedTuple):
    """Corpus scores from 0 to 100, and how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """
    Cased corpus BLEU (13a tokens) and chrF2 of detokenised text.

    Raises:
        ValueError: there is nothing to score, or not one reference for each hypothesis.
    """
    if not references or len(hypotheses) != len(references):
        raise ValueError(
            f"There must be one hypothesis for each reference, got {len(hypotheses)} for {len(references)}."
        )
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    return Scores(
        bleu.corpus_score(hypotheses, [references]).score,
        chrf.corpus_score(hypotheses, [references]).score,
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def translate_and_score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    **generate_kwargs: Any,
) -> tuple[list[str], Scores]:
    """Translations of the first text of each pair, by the checkpoint's own decoding, and scores against the second."""
    translate = TranslationPipeline(model, tokenizer, task="translation", device=model.device)
    hypotheses = [
        answer["translation_text"] for answer in translate([source for source, _ in pairs], **generate_kwargs)
    ]
    return hypotheses, score(hypotheses, [target for _, target in pairs])
