"""The translation pipeline of the package: the engine, batches in threads, and other runtimes than torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any

from vanilla_transformer.generation_vanilla_transformer import closest
from vanilla_transformer.pipeline_vanilla_transformer import Segment, split_lines
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedTranslationPipeline
from vanilla_transformer.text.glossary import as_glossary
from vanilla_transformer.text.inline_terms import AnnotatedText

from .alignments import Link, align, token_spans
from .constraints import ConstraintOptions, TextConstraints, room_for_phrases, split_phrases
from .ctranslate2 import load_ctranslate2
from .engine.engine import Engine
from .engine.engine_pool import EnginePool
from .engine.hypothesis import Hypothesis
from .engine.samples import share_seed, split_seeds
from .ensembles import load_ensemble
from .minimum_bayes_risk import RiskOptions, choose
from .parallel_batches import map_batches
from .prefixes import TextPrefixes, check_alternatives, next_tokens, split_prefixes
from .progress import follow_progress
from .reranking import Reranker, RerankOptions
from .search.lexical_constraints import Phrases
from .search.option_error import OptionError
from .sentence_splitter import SentenceOptions, split_line
from .terms import EXACT, HARD, SOFT, TermOptions
from .translations import ReturnOptions, Translation, build_translation, join_entries, shift_sources, split_options


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

    def __call__(self, inputs: str | Iterable[str], *args: Any, **kwargs: Any) -> Any:
        defaults = {} if "generation_config" in kwargs else self.default_generate_kwargs
        seed = closest([kwargs, defaults], "seed")
        shared: dict[str, Any] = {} if seed is None else share_seed({"seed": seed})  # by all windows of a stream
        glossary = closest([kwargs, defaults], "glossary")
        if glossary is not None:
            shared["glossary"] = as_glossary(glossary)
        given = [closest([kwargs, defaults], name) for name in ("constraints", "force_words_ids")]
        if given != [None, None]:
            count = 1 if isinstance(inputs, str) else len(inputs) if isinstance(inputs, Sized) else None
            wanted = TextConstraints(ConstraintOptions(*given), self.tokenizer, count)
            shared |= {"constraints": wanted, "force_words_ids": None}
        shared |= self._prefix_options(inputs, kwargs, defaults)
        return super().__call__(inputs, *args, **kwargs | shared)

    def _prefix_options(self, inputs: Any, *levels: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a request for its target prefixes and alternatives, checked."""
        prefix, alternatives = (closest(levels, name) for name in ("target_prefix", "alternatives"))
        shared: dict[str, Any] = {}
        if alternatives is not None:
            prefix = "" if prefix is None else prefix
            shared["num_return_sequences"] = check_alternatives(alternatives, {**levels[1], **levels[0]})
            if self._reranker is not None or self._ensemble is not None:
                raise OptionError("`alternatives` are of one model without reranking. Leave the other models out.")
        if prefix is not None:
            count = 1 if isinstance(inputs, str) else len(inputs) if isinstance(inputs, Sized) else None
            shared["target_prefix"] = TextPrefixes(prefix, self.tokenizer, count)
        return shared

    def _split(self, texts: list[str], options: dict) -> list[list[Segment]]:
        splitter = split_options(SentenceOptions, options)[0].splitter()
        if splitter is None:
            return super()._split(texts, options)
        return [[part for line in split_lines(text) for part in split_line(line, splitter)] for text in texts]

    def _generate(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[Any]]:
        options, report = follow_progress(options, report, len(sentences))
        _, options = split_options(SentenceOptions, options)
        risk, options = split_options(RiskOptions, options)
        rerank, options = split_options(RerankOptions, options)
        if self._reranker is not None:
            if risk.mbr is not None:
                raise ValueError("Give `mbr` or `rerank_reverse`, not both: each one chooses from the candidates.")
            decode = partial(self._decode, sentences, batch_size, report=report)
            return self._rerank(self._reranker, rerank, sentences, options, decode)
        rerank.check_unused()
        if risk.mbr is not None:
            return self._decode_by_risk(risk, sentences, batch_size, options, report)
        return self._decode(sentences, batch_size, options, report)

    def _decode(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[Any]]:
        terms, _ = split_options(TermOptions, options)
        if terms.mode_for(self.tokenizer) == HARD:
            return self._decode_terms(terms, sentences, batch_size, options, report)
        return self._search(sentences, batch_size, options, report)

    def _decode_terms(
        self, terms: TermOptions, sentences: list[str], batch_size: int, options: dict, report: Callable
    ) -> list[list[Any]]:
        """Decode with soft terms, and again with exact ones where a translation lacks one."""
        options, seeds = split_seeds(options, sentences)
        options, phrases = split_phrases(options)
        every = ("seed", seeds), ("constraints", phrases), ("target_prefix", options.get("target_prefix"))
        columns = {name: each for name, each in every if each is not None}

        def search(mode: str, numbers: Sequence[int], report: Callable) -> list[list[Any]]:
            own = {name: [column[number] for number in numbers] for name, column in columns.items()}
            chosen = [sentences[number] for number in numbers]
            return self._search(chosen, batch_size, options | own | {"term_mode": mode}, report)

        found = search(SOFT, range(len(sentences)), report)
        texts = [[each.text if isinstance(each, Translation) else each for each in row] for row in found]
        lacking = terms.lacking(sentences, texts)
        if lacking:
            for number, row in zip(lacking, search(EXACT, lacking, lambda _: None), strict=True):
                found[number] = row
        return found

    def _search(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[Any]]:
        returned, options = split_options(ReturnOptions, options)
        options, seeds = split_seeds(options, sentences)
        options, given = split_phrases(options)
        options, prefixes, alternatives = split_prefixes(options)
        terms, options = split_options(TermOptions, options)
        annotated = terms.annotate(sentences, self.tokenizer)
        phrases = terms.constrain(sentences, given, self.tokenizer)
        needed = {"seed": seeds, "constraints": given, "glossary": phrases, "target_prefix": prefixes}
        required_by = returned.requested() or next((name for name, value in needed.items() if value), None)
        room, model = room_for_phrases(phrases), self.model
        if self._ensemble is not None:
            model, required_by = self._ensemble, required_by or "ensemble"
        alignments = returned.need_alignments(self.model.config)
        engine = self._engines.find(model, options, required_by, alignments, room, prefixes is not None)
        if engine is None:
            return super()._generate([each.text for each in annotated], batch_size, options, report)
        count = self._num_return_sequences(options)
        decode = partial(self._generate_by, engine, returned=returned, report=report)
        if alternatives is None or not sentences:
            return decode(annotated, count, seeds, phrases, prefixes)
        assert prefixes is not None
        texts = self._encode([each.text for each in annotated])
        special = [token for token in self.tokenizer.all_special_ids if token not in engine.options.eos_token_ids]
        tokens = next_tokens(self.model, texts, prefixes, alternatives, special)
        longer = [[*prefix, token] for prefix, some in zip(prefixes, tokens, strict=True) for token in some]
        annotated = [each for each in annotated for _ in range(alternatives)]
        phrases = None if phrases is None else [each for each in phrases for _ in range(alternatives)]
        found = [best for (best,) in decode(annotated, 1, None, phrases, longer)]
        return [found[start : start + alternatives] for start in range(0, len(found), alternatives)]

    def _decode_by_risk(
        self, risk: RiskOptions, sentences: list[str], batch_size: int, options: dict, report: Callable
    ) -> list[list[Any]]:
        """Return the translation of each sentence with the highest expected utility among candidates."""
        wanted = risk.candidate_options(options)
        found = self._decode(sentences, batch_size, wanted, report)
        chosen = [choose(candidates, str(risk.mbr), not wanted.get("do_sample")) for candidates in found]
        if not split_options(ReturnOptions, options)[0].requested():
            chosen = [each.text if isinstance(each, Translation) else each for each in chosen]
        return [[each] for each in chosen]

    def _rerank(
        self, reranker: Reranker, rerank: RerankOptions, sentences: list[str], options: dict, decode: Callable
    ) -> list[list[Any]]:
        """Return the best translations of each sentence, by the score of [`reranking`].

        Args:
            decode: Returns the candidates of each sentence, given the options of a request.
        """
        configs = options.get("generation_config"), self.model.generation_config
        levels = [options, *(vars(config) for config in configs if config is not None)]
        count, beams = self._num_return_sequences(options), closest(levels, "num_beams") or 1
        found = decode(rerank.candidate_options(options, beams, count))
        best = [ranked[:count] for ranked in reranker.rerank(sentences, found, rerank.weights)]
        is_detailed = split_options(ReturnOptions, options)[0].requested()
        return best if is_detailed else [[each.text for each in ranked] for ranked in best]

    def _generate_by(
        self,
        engine: Engine,
        sentences: list[AnnotatedText],
        count: int,
        seeds: Sequence[int] | None,
        phrases: Sequence[Phrases] | None,
        prefixes: Sequence[Sequence[int]] | None,
        returned: ReturnOptions,
        report: Callable,
    ) -> list[list[Any]]:
        """Return the `count` best translations of each sentence, in the given order. The longest ones enter first."""
        if not sentences:  # tokenizers decode an empty batch to one empty text
            return []
        encoded = self._encode([sentence.text for sentence in sentences])
        order = sorted(range(len(sentences)), key=lambda index: len(encoded[index]), reverse=True)
        found = dict[int, list[Hypothesis]]()
        sources = (encoded[index] for index in order)
        ordered = None if seeds is None else [seeds[index] for index in order]
        wanted = None if phrases is None else [phrases[index] for index in order]
        begun = None if prefixes is None else [prefixes[index] for index in order]
        for position, hypotheses in engine.translate_stream(sources, count, ordered, wanted, begun):
            found[order[position]] = hypotheses
            report(1)
        flat = [hypothesis for index in range(len(sentences)) for hypothesis in found[index]]
        translations: list[Any] = self.postprocess([hypothesis.tokens for hypothesis in flat])
        if returned.requested():
            links = [list[Link]() for _ in flat]
            if returned.need_alignments(self.model.config):
                repeated = [sentence for sentence in sentences for _ in range(count)]
                links = self._align(repeated, translations, flat)
            columns = zip(translations, flat, links, strict=True)
            translations = [build_translation(*each, self.tokenizer, returned) for each in columns]
        return [translations[start : start + count] for start in range(0, len(translations), count)]

    def _align(
        self, sentences: Sequence[AnnotatedText], translations: Sequence[str], hypotheses: Sequence[Hypothesis]
    ) -> list[list[Link]]:
        """Return the links between each sentence, without annotations, and its translation."""
        spans = token_spans(self.tokenizer, [sentence.text for sentence in sentences])
        rows = zip(sentences, spans, translations, hypotheses, strict=True)
        return [
            align(source.plain, [*map(source.original, places)], text, hypothesis, self.tokenizer)
            for source, places, text, hypothesis in rows
        ]

    def _answer(self, segments: Sequence[Segment], translations: Sequence[Any], options: dict) -> dict[str, Any]:
        returned, options = split_options(ReturnOptions, options)
        if not returned.requested():
            return super()._answer(segments, translations, options)
        answer = super()._answer(segments, [each.text for each in translations], options)
        text = answer["translation_text"]
        return answer | join_entries(segments, translations, text, returned, self.model.config)

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


__all__ = ["TranslationPipeline"]
