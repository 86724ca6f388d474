"""Flags of the search that chooses a translation."""

import math
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class SearchArguments:
    """Flags of the search. By default the checkpoint's generation config decides, which is the paper's decoding."""

    num_beams: int | None = field(default=None, metadata={"help": "Beam size; 1 is greedy search."})
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Maximum number of tokens per translation; by default source length + 50."}
    )
    length_penalty: float | None = field(
        default=None,
        metadata={"help": "Exponent of the length by which beam search divides log-probabilities; more is longer."},
    )
    num_beam_groups: int | None = field(
        default=None, metadata={"help": "Groups of beams whose hypotheses differ; it divides --num_beams."}
    )
    diversity_penalty: float | None = field(
        default=None,
        metadata={"help": "With --num_beam_groups: subtracted from a token's score for each earlier beam with it."},
    )
    coverage_penalty: float | None = field(
        default=None,
        metadata={"help": "Weight of the penalty for translations that attend too little to some source token."},
    )
    do_sample: bool = field(default=False, metadata={"help": "Sample, by default with one beam."})
    temperature: float | None = field(default=None, metadata={"help": "Divisor of the logits in sampling."})
    top_k: int | None = field(
        default=None, metadata={"help": "Sample from so many most likely tokens; by default 50, and 0 means all."}
    )
    top_p: float | None = field(default=None, metadata={"help": "Sample from the tokens with so much probability."})
    epsilon_cutoff: float | None = field(
        default=None, metadata={"help": "Sample tokens of at least this probability."}
    )
    seed: int | None = field(
        default=None, metadata={"help": "Seed from which each sentence gets one that does not depend on its batch."}
    )
    mbr: str | None = field(
        default=None,
        metadata={"help": "Choose from samples, or from the n-best list of --num_beams, by expected chrf or bleu."},
    )
    mbr_samples: int | None = field(default=None, metadata={"help": "Samples to choose from; by default 32."})
    rerank_reverse_weight: float | None = field(
        default=None, metadata={"help": "With --rerank_reverse: factor of its log-probability; by default 0.5."}
    )
    rerank_length_weight: float | None = field(
        default=None, metadata={"help": "With --rerank_reverse: what each token adds to the score; by default 0.5."}
    )

    @property
    def samples(self) -> bool:
        """Whether random numbers decide about the translations."""
        return self.do_sample or self.mbr is not None


def check_search(options: SearchArguments) -> None:
    """Check the flags that no library call checks before work begins.

    Raises:
        ValueError: a value is out of range.
    """
    if options.length_penalty is not None and not math.isfinite(options.length_penalty):
        raise ValueError(f"`length_penalty` must be a finite number, got {options.length_penalty}.")


def search_settings(options: SearchArguments) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that the flags give."""
    given = {each.name: getattr(options, each.name) for each in fields(SearchArguments)}
    settings = {name: value for name, value in given.items() if value is not None}
    if options.do_sample:
        return {"num_beams": 1, **settings}
    del settings["do_sample"]  # the checkpoint decides
    return settings


__all__ = ["SearchArguments", "check_search", "search_settings"]
