"""Tune the weights of reranking."""

from collections.abc import Sequence

from pydantic import Field

from vanilla_transformer.cli.flags import (
    Count,
    LanguageArguments,
    ModelNameArguments,
    ThreadArguments,
    language_settings,
    parse,
)
from vanilla_transformer.user_input.schemas import Input


class TuneRerankingArguments(ModelNameArguments, LanguageArguments, ThreadArguments):
    """Flags of `tune-reranking`. The text files are aligned line by line; use validation text."""

    source: Input = Field(
        description="Source text, one sentence per line. Candidates are translated without "
        "`--protect`, as a reranker sees them; `evaluate --no_protect` with the flags that are "
        "found has the same BLEU."
    )
    target: Input = Field(description="Reference translations, one per line.")
    rerank_reverse: Input = Field(description="Model of the other direction.")
    num_beams: Count = Field(8, description="Beam size, and candidates of each sentence.")


def tune_reranking_command(arguments: Sequence[str]) -> None:
    options = parse(TuneRerankingArguments, arguments)
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.text.languages import Direction

    from .reranking import Reranker
    from .tuning import tune_reranking

    pairs = read_text_files(options.source, options.target)
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    translate = load_pipeline(options.model)
    reranker = Reranker.load(options.rerank_reverse, translate.model.device)
    languages = language_settings(translate.tokenizer, options)
    direction = Direction(languages.get("src_lang"), languages.get("tgt_lang"))
    tuned = tune_reranking(translate, reranker, sources, references, options.num_beams, direction)
    print(
        f"BLEU {tuned.bleu:.2f} reranked, {tuned.beam_search_bleu:.2f} in the order of beam "
        "search, with:"
    )
    print(f"--rerank_reverse_weight {tuned.reverse:g} --rerank_length_weight {tuned.length:g}")
