"""The translation pipeline of the package: the engine, batches in threads, and other runtimes than torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.generation_vanilla_transformer import closest
from vanilla_transformer.pipeline_vanilla_transformer import Segment, split_lines
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedTranslationPipeline
from vanilla_transformer.text.glossary import as_glossary

from .constraints import ConstraintOptions, TextConstraints, room_for_phrases
from .ctranslate2 import load_ctranslate2
from .engine.engine_pool import EnginePool, option_levels
from .engine.samples import share_seed
from .engine_decoding import decode_alternatives, decode_by_engine, to_translations
from .ensembles import load_ensemble
from .language_options import LanguageOptions
from .minimum_bayes_risk import RiskOptions, decode_by_risk
from .parallel_batches import map_batches
from .prefixes import AlternativeOptions, TextPrefixes
from .progress import ProgressOptions
from .request_options import split_options
from .reranking import Reranker, RerankOptions, decode_reranked
from .search.option_error import OptionError
from .sentence_columns import split_columns
from .sentence_splitter import SentenceOptions, split_line
from .terms import HARD, TermOptions, decode_hard_terms
from .translations import ReturnOptions, join_entries, shift_sources
from .word_continuations import word_continuations


class TranslationPipeline(CarriedTranslationPipeline):
    """
    Translate raw text as the pipeline that checkpoints carry does, with several batches at once on a CPU.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    See [`pipeline_vanilla_transformer.TranslationPipeline`] for texts, batches and further arguments.

    With a `precision`, with `compile=True`, or if the cache has compiled steps of the model, an [`Engine`] decodes
    greedy search, beam search and sampling. It has as many slots as it needs, whatever `batch_size` is.

    A call with `return_scores=True` adds `score` and `log_probability` to each answer, and `return_tokens=True` adds
    `tokens`, a list of `{"text": …, "log_probability": …}` in which each segment ends with EOS. See [`Hypothesis`]. In
    a text of several segments, log-probabilities add up, and the score is the mean of the segments' scores.
    `return_alignments=True` adds `alignment`, a list of [`Link`]s from characters of the text to characters of its
    translation, if the model's configuration has `alignment_heads`. `return_confidence=True` adds `confidence`, the
    expected chrF from 0 to 1, if the model was calibrated, see [`Calibration`]. `return_warnings=True` adds
    `warnings`, the names of signs of a bad translation, see [`find_warnings`]. An [`Engine`] decodes these calls, so
    requests that it does not decode raise a `ValueError`.

    A call with `do_sample=True`, `num_beams=1` and a `seed` returns samples that depend on the text and the seed only:
    a text has the same ones alone and in any batch, and others where it is repeated in the call. An [`Engine`]
    decodes these calls, too.

    A call with `split_sentences=True` translates each sentence of a line by itself and puts them together with the
    white space between them. `sentence_splitter` replaces sentencex, which knows abbreviations: a function that
    returns the sentences of a text in order, or the name of one. See [`SentenceOptions`].

    A call with `constraints=["word", "a phrase"]` returns translations that contain them, as does one with
    `force_words_ids`, their token ids; a list of lists has the constraints of each text. A text with constraints must
    be one line, or one sentence if lines are split. An [`Engine`] decodes these calls by beam search.

    A call with a `glossary` translates its terms as it says, softly or by constraints; see [`TermOptions`].

    A call with a `target_prefix` returns translations that begin with it or, with a `prefix_bias`, that prefer to. A
    list has the prefix of each text. `alternatives=5` returns a translation for each of the 5 most likely tokens after
    the prefix, most likely first. `num_beam_groups` with `diversity_penalty`, and `coverage_penalty`, change beam
    search; see [`SearchOptions`] and [`CoveragePenalty`]. An [`Engine`] decodes these calls, too.

    A call with `mbr="chrf"` or `mbr="bleu"` decodes by minimum Bayes risk. It returns the candidate with the
    highest expected utility, its score, of `mbr_samples` samples (32 by default) or of the n-best list of `num_beams`.

    A call with `src_lang` and `tgt_lang` chooses the languages of a model that translates between many, such as NLLB;
    see [`LanguageOptions`]. The constructor takes them, too.

    A call with `progress=function` calls it with the number of sentences that are done and of all sentences, whenever
    some are done.

    With `rerank_reverse`, the n-best list of `num_beams` is ordered by a score to which a model of the other direction
    and the length contribute, by `rerank_reverse_weight` and `rerank_length_weight`. See [`reranking`].

    Args:
        backend (`str`, *optional*): `"ctranslate2"` if `model` is a folder that was converted for CTranslate2.
        precision (`str`, *optional*): `"float32"` (exact), `"bfloat16"` (faster where the processor multiplies it),
            `"int8"` (by torchao) or `"auto"` (the fastest that was measured to be accurate enough), see [`Engine`].
            Requests that the engine does not decode, such as a repetition penalty, raise a `ValueError`.
        compile (`bool` or `str`): See [`Engine`].
        ensemble (list of `str`, *optional*): Folders or Hub names of models with the same vocabulary, which decode
            with `model`: probabilities are the mean of theirs. An [`Engine`] decodes all requests.
        ensemble_weights (list of `float`, *optional*): A positive number for each model, beginning with `model`.
        rerank_reverse (`str`, *optional*): Folder or Hub name of a model that translates in the other direction.

    Raises:
        ValueError: The backend, the precision or `compile` is unknown.
        OSError: The folder is not one for the backend, or the backend is not installed.
    """

    # Each takes (folder, tokenizer, device) and returns (model, tokenizer).
    backends: dict[str, Callable[..., tuple[Any, Any]]] = {"ctranslate2": load_ctranslate2}
    map_batches = staticmethod(map_batches)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        backend: str | None = None,
        precision: str | None = None,
        compile: bool | str = "auto",
        ensemble: Sequence[str | Path] | None = None,
        ensemble_weights: Sequence[float] | None = None,
        rerank_reverse: str | Path | None = None,
        **kwargs: Any,
    ):
        self._engines = EnginePool(precision, compile)
        if backend is not None:
            for name, value in {"ensemble": ensemble, "rerank_reverse": rerank_reverse}.items():
                if value is not None:
                    hint = f"but `backend` is {backend!r}. Leave one of them out."
                    raise ValueError(f"`{name}` is for models that PyTorch decodes, {hint}")
            if backend not in self.backends:
                known = ", ".join(["None", *map(repr, self.backends)])
                raise ValueError(f"`backend` must be one of {known}, got {backend!r}.")
            model, tokenizer = self.backends[backend](model, tokenizer, kwargs.get("device"))
            kwargs["device"] = model.device
        super().__init__(model, tokenizer, **kwargs)
        self._ensemble: Any = None
        if ensemble is not None or ensemble_weights is not None:
            self._ensemble = load_ensemble(self.model, self.tokenizer, ensemble, ensemble_weights)
        self._reranker = None if rerank_reverse is None else Reranker.load(rerank_reverse, self.model.device)

    @property
    def decoded_model(self) -> Any:
        """The model that translates: the ensemble, if there is one."""
        return self.model if self._ensemble is None else self._ensemble

    @property
    def reranks(self) -> bool:
        """Whether a reverse model reranks the n-best list of each sentence."""
        return self._reranker is not None

    def __call__(self, inputs: str | Iterable[str], *args: Any, **kwargs: Any) -> Any:
        defaults = {} if "generation_config" in kwargs else self.default_generate_kwargs
        seed = closest([kwargs, defaults], "seed")
        shared: dict[str, Any] = {} if seed is None else share_seed({"seed": seed})  # by all windows of a stream
        glossary = closest([kwargs, defaults], "glossary")
        if glossary is not None:
            shared["glossary"] = as_glossary(glossary)
        given = [closest([kwargs, defaults], name) for name in ("constraints", "force_words_ids")]
        if given != [None, None]:
            wanted = TextConstraints(ConstraintOptions(*given), self.tokenizer, _count_texts(inputs))
            shared |= {"constraints": wanted, "force_words_ids": None}
        shared |= self._prefix_options(inputs, kwargs, defaults)
        languages = (closest([kwargs, defaults], name) for name in ("src_lang", "tgt_lang"))
        LanguageOptions(*languages).check(self.tokenizer)
        return super().__call__(inputs, *args, **kwargs | shared)

    def _prefix_options(self, inputs: Any, *levels: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a request for its target prefixes and alternatives, checked."""
        prefix, alternatives = (closest(levels, name) for name in ("target_prefix", "alternatives"))
        shared: dict[str, Any] = {}
        if alternatives is not None:
            prefix = "" if prefix is None else prefix
            AlternativeOptions(alternatives).check_alone({**levels[1], **levels[0]})
            shared["num_return_sequences"] = alternatives
            if self._reranker is not None or self._ensemble is not None:
                raise OptionError("`alternatives` are of one model without reranking. Leave the other models out.")
        if prefix is not None:
            shared["target_prefix"] = TextPrefixes(prefix, self.tokenizer, _count_texts(inputs))
        return shared

    def _translate(self, batch_size: int, progress_bar: bool | None, options: dict, texts: list[str]) -> list[Any]:
        constraints = options.get("constraints")
        if constraints is not None:
            segments = [len(each) for each in self._split(texts, options)]
            options = options | {"constraints": constraints.of_segments(segments)}
        prefixes = options.get("target_prefix")
        if prefixes is not None:
            segments = [len(each) for each in self._split(texts, options)]
            if options.get("alternatives") is not None and max(segments, default=0) > 1:
                raise OptionError(
                    f"A text with alternatives must be one line or sentence, got one of {max(segments)}."
                )
            options = options | {"target_prefix": prefixes.of_segments(segments)}
        answers = super()._translate(batch_size, progress_bar, options, texts)
        if split_options(ReturnOptions, options)[0].return_alignments:
            for text, answer in zip(texts, answers, strict=True):
                shift_sources(answer, len(text) - len(text.lstrip()))  # white space before the first segment
        return answers

    def _split(self, texts: list[str], options: dict) -> list[list[Segment]]:
        splitter = split_options(SentenceOptions, options)[0].splitter()
        if splitter is None:
            return super()._split(texts, options)
        return [[part for line in split_lines(text) for part in split_line(line, splitter)] for text in texts]

    def _generate(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[Any]]:
        progress, options = split_options(ProgressOptions, options)
        report = progress.follow(report, len(sentences))
        _, options = split_options(SentenceOptions, options)
        risk, options = split_options(RiskOptions, options)
        rerank, options = split_options(RerankOptions, options)
        decode = partial(self._decode, sentences, batch_size, report)
        if self._reranker is not None:
            if risk.mbr is not None:
                raise OptionError("Give `mbr` or `rerank_reverse`, not both: each one chooses from the candidates.")
            beams = closest(option_levels(self.model, options), "num_beams") or 1
            count = self._num_return_sequences(options)
            return decode_reranked(self._reranker, rerank, sentences, options, beams, count, decode)
        rerank.check_unused()
        return decode(options) if risk.mbr is None else decode_by_risk(risk, options, decode)

    def _decode(self, sentences: list[str], batch_size: int, report: Callable, options: dict) -> list[list[Any]]:
        """Return the translations of each sentence, with the terms of a glossary."""
        terms, _ = split_options(TermOptions, options)
        search = partial(self._search, batch_size)
        if terms.mode_for(self.tokenizer) == HARD:
            return decode_hard_terms(terms, sentences, options, report, search)
        return search(sentences, options, report)

    def _search(self, batch_size: int, sentences: list[str], options: dict, report: Callable) -> list[list[Any]]:
        """Return the translations of each sentence, by an engine if one is required or faster."""
        returned, options = split_options(ReturnOptions, options)
        columns, options = split_columns(options, sentences)
        alternatives, options = split_options(AlternativeOptions, options)
        terms, options = split_options(TermOptions, options)
        languages, options = split_options(LanguageOptions, options)
        options |= languages.forced(self.tokenizer)
        annotated = terms.annotate(sentences, self.tokenizer)
        phrases = terms.constrain(sentences, columns.constraints, self.tokenizer)
        needed = {"seed": columns.seed, "constraints": columns.constraints, "glossary": phrases}
        needed["target_prefix"] = columns.target_prefix
        required_by = returned.requested() or next((name for name, value in needed.items() if value), None)
        model = self.decoded_model
        if self._ensemble is not None:
            required_by = required_by or "ensemble"
        alignments, prefixed = returned.need_alignments(self.model.config), columns.target_prefix is not None
        own: dict[str, Any] = {"alignments": alignments, "prefixed": prefixed}
        if phrases is not None:
            own |= {"constraint_tokens": room_for_phrases(phrases)}
            own |= {"word_continuations": word_continuations(self.tokenizer)}
        engine = self._engines.find(model, options, required_by, **own)
        if engine is None:
            begun = options | vars(languages)
            return super()._generate([each.text for each in annotated], batch_size, begun, report)
        if not sentences:
            return []
        sources = self._encode([each.text for each in annotated], vars(languages))
        columns, count = replace(columns, constraints=phrases), alternatives.alternatives
        if count is None:
            found = decode_by_engine(engine, sources, self._num_return_sequences(options), columns, report)
        else:
            special = self.tokenizer.all_special_ids
            found = decode_alternatives(engine, self.model, sources, count, columns, special, report)
        config = self.model.config
        return to_translations(annotated, sources, found, self.postprocess, self.tokenizer, returned, config)

    def _encode(self, texts: list[str], options: dict) -> list[list[int]]:
        languages, _ = split_options(LanguageOptions, options)
        return languages.begin(self.tokenizer, super()._encode(texts, options))

    def _forward(self, input_tensors: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
        return super()._forward(input_tensors, **split_options(LanguageOptions, options)[1])

    def _answer(self, segments: Sequence[Segment], translations: Sequence[Any], options: dict) -> dict[str, Any]:
        returned, options = split_options(ReturnOptions, options)
        if not returned.requested():
            return super()._answer(segments, translations, options)
        answer = super()._answer(segments, [each.text for each in translations], options)
        text = answer["translation_text"]
        return answer | join_entries(segments, translations, text, returned, self.model.config)


def _count_texts(inputs: Any) -> int | None:
    """Return the number of texts, or None if it is not known."""
    return 1 if isinstance(inputs, str) else len(inputs) if isinstance(inputs, Sized) else None


__all__ = ["TranslationPipeline"]
