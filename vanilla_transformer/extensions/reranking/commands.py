"""Tune the weights of reranking."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vanilla_transformer.cli.flags import (
    MODEL,
    LanguageArguments,
    ThreadArguments,
    language_settings,
    parse,
    require_one_model,
)


@dataclass
class _RerankedTextArguments:
    """Flags of the text, and of the search."""

    source: str = field(
        metadata={
            "help": "Source text, one sentence per line. Candidates are translated without `--protect`, as a reranker "
            "sees them; `evaluate --no_protect` with the flags that are found has the same BLEU."
        }
    )
    target: str = field(metadata={"help": "Reference translations, one per line."})
    rerank_reverse: str = field(metadata={"help": "Model of the other direction."})
    num_beams: int = field(default=8, metadata={"help": "Beam size, and candidates of each sentence."})


@dataclass
class TuneRerankingArguments(LanguageArguments, ThreadArguments, _RerankedTextArguments):
    """Flags of `tune-reranking`. The text files are aligned line by line; use validation text."""


def tune_reranking_command(arguments: Sequence[str]) -> None:
    usage = "tune-reranking MODEL --rerank_reverse MODEL --source FILE --target FILE [--flags]"
    words, options = parse(TuneRerankingArguments, arguments, usage, MODEL)
    name = require_one_model(words)
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.text.languages import Direction

    from .reranking import Reranker
    from .tuning import tune_reranking

    pairs = read_text_files(options.source, options.target)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translate = load_pipeline(name)
    reranker = Reranker.load(options.rerank_reverse, translate.model.device)
    languages = language_settings(translate.tokenizer, options)
    direction = Direction(languages.get("src_lang"), languages.get("tgt_lang"))
    found = tune_reranking(translate, reranker, sources, references, options.num_beams, direction)
    print(f"BLEU {found.bleu:.2f} reranked, {found.beam_search_bleu:.2f} in the order of beam search, with:")
    print(f"--rerank_reverse_weight {found.reverse:g} --rerank_length_weight {found.length:g}")
