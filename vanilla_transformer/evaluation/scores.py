"""Translate a test set on all processes, and score it with BLEU, chrF and the paper's BLEU."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import sacrebleu
from accelerate.utils import broadcast_object_list, gather_object
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.scripts import bleu_tokenizer

from .named_metrics import OWN_METRICS, SACRE_METRICS, Metric, load_metric

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vanilla_transformer.decoding import TranslationPipeline


def translate_on_all_processes(
    translate: "TranslationPipeline", sentences: Sequence[str], **options: Any
) -> list[str]:
    """Return the translations of all sentences, in order, on every process.

    Process k of n translates the sentences k, k + n, k + 2n, … All processes must call this
    function with the same sentences, since they wait for each other. The progress bar shows the
    share of the main process.
    """
    state = process_state()
    if not state.is_main_process:
        options["progress_bar"] = False
    answers = translate(list(sentences[state.process_index :: state.num_processes]), **options)
    translated = [answer["translation_text"] for answer in answers]
    translations = [""] * len(sentences)
    # `gather_object` concatenates the lists of all processes, so each one passes a list of its
    # share.
    for index, share in enumerate(gather_object([translated])):
        translations[index :: state.num_processes] = share
    return translations


logger = logging.getLogger(__name__)
_COMPOUND = re.compile(r"(\S)-(\S)")
# Moses has rules for apostrophes and colons in these languages that its Python port lacks.
_NOT_PORTED = {"ca", "fi", "ga", "sv", "tdt"}


class MosesBLEU(sacrebleu.BLEU):
    """Case-sensitive BLEU of Moses tokens without smoothing, as Moses' `multi-bleu.perl` computes
    it.

    Everything except tokenization is sacreBLEU's, including resampling and signatures. The `tok`
    entry of the signature distinguishes it from sacreBLEU's scores.

    The tokens are the same as in version 1.1 of Moses' `tokenizer.perl`. The latest version also
    separates the period of an abbreviation at the end of a line.

    Args:
        language (`str`): The language code. Its abbreviations keep their periods.
        compounds (`bool`): Whether to split compounds at their hyphens, as the paper's score does.
    """

    def __init__(self, language: str = "de", compounds: bool = True):
        super().__init__(tokenize="none", force=True, smooth_method="none")
        self.tokenizer = _MosesTokens(language, compounds)
        self.tokenizer_signature = self.tokenizer.signature()


class _MosesTokens(BaseTokenizer):
    """The Moses tokenizer with sacreBLEU's tokenizer interface: text to tokens separated by
    spaces.
    """

    def __init__(self, language: str, compounds: bool):
        with requires_extra("evaluation", "The paper's BLEU"):
            import sacremoses
        prefixes = sacremoses.corpus.NonbreakingPrefixes()
        languages = {*prefixes.available_langs.values()} - _NOT_PORTED
        if language not in languages:
            names = ", ".join(sorted(languages))
            raise UserError(
                f"The Moses tokenizer supports the languages {names}; got {language!r}."
            )
        self.language, self.compounds = language, compounds
        self.moses = sacremoses.MosesTokenizer(language)
        self.version = sacremoses.__version__

    def signature(self) -> str:
        compounds = "-compounds" if self.compounds else ""
        return f"moses-{self.language}{compounds}-sacremoses{self.version}"

    def __call__(self, line: str) -> str:
        tokens = self.moses.tokenize(line, return_str=True)
        return split_compounds(tokens) if self.compounds else tokens


def split_compounds(tokens: str) -> str:
    """Split compounds: `rich-text format` becomes `rich ##AT##-##AT## text format`.

    The matches of Tensor2Tensor's regular expression do not overlap, so `a-b-c` is split at its
    first hyphen only. We keep that, so that scores are comparable.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


class Scores(NamedTuple):
    """Corpus scores from 0 to 100 and their signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


class PaperScores(NamedTuple):
    """BLEU of Moses tokens from 0 to 100, with compounds split (as in the paper) and not split."""

    paper_bleu: float
    tokenized_bleu: float
    paper_bleu_signature: str
    tokenized_bleu_signature: str


def score(hypotheses: Sequence[str], references: Sequence[str], *further: Sequence[str]) -> Scores:
    """Compute cased corpus BLEU and chrF2 of detokenized text. [`bleu_tokenizer`] chooses the
    tokens of BLEU.

    Args:
        further: Further references of each hypothesis.
    """
    metrics = corpus_metrics(references)
    return Scores(**_score_all(metrics, hypotheses, references, *further))


def score_paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str = "de",
    further: Sequence[Sequence[str]] = (),
) -> PaperScores:
    """Compute the paper's BLEU of detokenized text in `language` (see `MosesBLEU`).

    Not comparable with `score`.
    """
    metrics = _paper_metrics(language)
    return PaperScores(**_score_all(metrics, hypotheses, references, *further))


def translate_and_score(
    translate: "TranslationPipeline", pairs: Sequence[tuple[str, str]], **options: Any
) -> tuple[list[str], Scores]:
    """Translate the source of each (source, target) pair, and score it.

    With several processes, all must call this function. Each translates its share, and all return
    the same result.
    """
    sources = [source for source, _ in pairs]
    references = [target for _, target in pairs]
    hypotheses = translate_on_all_processes(translate, sources, **options)
    return hypotheses, score(hypotheses, references)


def validation_scores(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    pairs: Sequence[tuple[str, str]],
    metrics: Mapping[str, Metric] = {},
    examples: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Return BLEU, chrF and further metrics of a validation, by name, as training logs them.

    The pipeline translates, as in all commands. Its steps are not compiled, since the next
    validation has new weights.

    Args:
        metrics: Further metrics by name; the main process computes them.
        examples: The number of first pairs that the entry `examples` has, with their translations.
        options: Options of the pipeline.
    """
    from vanilla_transformer.decoding import TranslationPipeline

    translate = TranslationPipeline(model, tokenizer, device=model.device, compile=False)
    progress_bar = False if translate.uses_engine else None
    if progress_bar is None and process_state().is_main_process:
        logger.info(
            "Validation: `generate()` translates %d sentences, as no engine decodes this %s.",
            len(pairs),
            type(model).__name__,
        )
    options["progress_bar"] = progress_bar
    hypotheses, scores = translate_and_score(translate, pairs, **options)
    sources = [source for source, _ in pairs]
    references = [target for _, target in pairs]
    entry: dict[str, Any] = scores._asdict()
    if metrics:
        entry |= measure_metrics(metrics, sources, hypotheses, references)
    if examples:
        names = ("source", "hypothesis", "reference")
        rows = [*zip(sources, hypotheses, references, strict=True)][:examples]
        entry["examples"] = [dict(zip(names, row, strict=True)) for row in rows]
    return entry


def measure_metrics(
    metrics: Mapping[str, Metric],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> dict[str, float]:
    """Return the values of metrics by name on every process; the main process computes them."""
    values, failure = dict[str, float](), None
    if process_state().is_main_process:
        try:
            for name, metric in metrics.items():
                values[name] = metric(sources, hypotheses, references)
        except UserError as error:
            failure = str(error)
    values, failure = broadcast_object_list([values, failure])
    if failure is not None:
        raise UserError(failure)
    return values


def evaluator_for(best_metric: str, examples: int = 0) -> Callable[..., dict[str, Any]]:
    """Return [`validation_scores`] that also has the metric which ranks the models of a run, and
    examples.
    """
    metrics = {}
    if best_metric not in OWN_METRICS:
        metrics[best_metric] = load_metric(best_metric)
    return partial(validation_scores, metrics=metrics, examples=examples)


def corpus_metrics(
    references: Iterable[str] = (),
    paper_language: str | None = None,
    tokenize: str | None = None,
    further: Iterable[str] = (),
) -> dict[str, SacreMetric]:
    """Return sacreBLEU metrics by name: `bleu`, `chrf`, and with a language `paper_bleu` and
    `tokenized_bleu`.

    Args:
        references: The references, whose script chooses the tokens of BLEU.
        tokenize: The name of sacreBLEU's tokenizer instead.
        further: Names of [`SACRE_METRICS`].
    """
    tokenize = tokenize or bleu_tokenizer(references)
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        names = ", ".join(sorted(sacrebleu.BLEU.TOKENIZERS))
        raise UserError(f"The tokenizer of BLEU must be one of {names}, got {tokenize!r}.")
    try:
        metrics: dict[str, SacreMetric] = {
            "bleu": sacrebleu.BLEU(tokenize=tokenize),
            "chrf": sacrebleu.CHRF(),
        }
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"The tokenizer {tokenize} of sacreBLEU does not work: {reason}") from error
    metrics |= {name: SACRE_METRICS[name]() for name in further}
    if paper_language is not None:
        metrics |= _paper_metrics(paper_language)
    return metrics


def check_same_length(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that there is one hypothesis for each reference."""
    if not references or len(hypotheses) != len(references):
        counts = f"{len(hypotheses)} for {len(references)}"
        raise UserError(f"There must be one hypothesis for each reference, got {counts}.")


def _paper_metrics(language: str) -> dict[str, SacreMetric]:
    return {
        "paper_bleu": MosesBLEU(language),
        "tokenized_bleu": MosesBLEU(language, compounds=False),
    }


def _score_all(
    metrics: dict[str, SacreMetric], hypotheses: Sequence[str], *references: Sequence[str]
) -> dict[str, Any]:
    """Return each score as `name` and each signature as `name_signature`."""
    for texts in references:
        check_same_length(hypotheses, texts)
    streams = [references[0], *map(without_blanks, references[1:])]
    scores = dict[str, Any]()
    for name, metric in metrics.items():
        scores[name] = metric.corpus_score(hypotheses, streams).score
    for name, metric in metrics.items():
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def without_blanks(references: Sequence[str]) -> list[Any]:
    """Return further references as sacreBLEU takes them: None, which does not count, for a blank
    one.
    """
    return [reference.strip() or None for reference in references]


def sentence_chrf(translations: Sequence[str], *references: Sequence[str]) -> list[float]:
    """Return the chrF of each translation, from 0 to 100, by one or several references of each."""
    further = map(without_blanks, references[1:])
    metric = sacrebleu.CHRF()
    rows = zip(translations, references[0], *further, strict=True)
    return [metric.sentence_score(translation, texts).score for translation, *texts in rows]
