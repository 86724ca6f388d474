"""
The translation pipeline of the package.

A call resolves its options, reads its sentences, decodes them, and joins answers; the flow is the
carried pipeline's. Decoding is a search by an engine, or by `generate()` where no engine decodes,
within [`steps`] around it.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils import GENERATION_CONFIG_NAME

from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import (
    TranslationPipeline as CarriedTranslationPipeline,
)
from vanilla_transformer.pipeline_vanilla_transformer import reads_sequences
from vanilla_transformer.text.changes import HIGHEST_BIAS
from vanilla_transformer.text.languages import Direction, find_direction
from vanilla_transformer.text.protection import find_masks
from vanilla_transformer.tokenization_vanilla_transformer import with_normalization
from vanilla_transformer.user_input.reasons import first_line

from .answers import build_answer, needs_alignments, to_translations, warning_finder
from .constraints import room_for_phrases, word_continuations
from .engine.engine import Engine
from .engine.engine_pool import EnginePool
from .engine.requests import DecodeRequest
from .forced_decoding import score_tokens
from .options import RERANKING, OptionError, TranslationOptions, check_languages
from .pretrained import load_ensemble
from .protection.protected_search import remove_masks
from .protection.stand_ins import StandIns, probe_stand_ins
from .segments import SentenceReader
from .sentences import Decode, Draft, Report, Sentence, Step, ignore
from .steps import complete_alternatives, follow_drafts, keep_protected, translate_parts
from .text_tasks import TaskInputs
from .translations import Translation, copy_sentence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vanilla_transformer.decoding.ensemble import DecodedModel

# Options with values for each text, or for several translations of one
_OF_TEXTS = (
    "alternatives",
    "constraints",
    "draft",
    "force_words_ids",
    "seed",
    "target_prefix",
)


class TranslationPipeline(CarriedTranslationPipeline):
    """
    Translate raw text as the pipeline that checkpoints carry does, by an [`Engine`].

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    See [`pipeline_vanilla_transformer.TranslationPipeline`] for texts, batches and further
    arguments, and [`TranslationOptions`] for all options of a call. Options of the constructor are
    the defaults of calls.

    An [`Engine`] decodes greedy search, beam search and sampling. It has as many slots as it needs,
    whatever `batch_size` is. The first call converts Marian (OPUS-MT), FSMT, M2M-100 and NLLB in
    memory; `model` is kept. What it does not decode, such as a repetition penalty, or a model with
    adapters, hooks or custom methods, `generate()` does, batch by batch; with an option that needs
    the engine, such a request raises a `ValueError`. Each call notices weights that were trained,
    loaded, resized, moved or merged since the last one; see [`TranslationPipeline.refresh`] for
    others.

    Answers have `translation_text`, and on request `score` and `log_probability` (see
    [`Hypothesis`]; in a text of several segments, log-probabilities add up, and the score is the
    mean), `tokens`, whose texts join to the answer's, `alignment` (a list of [`Link`]s),
    `confidence` (see [`Calibration`]) and `warnings` (see [`find_warnings`]).

    Args:
        precision (`str`, *optional*): `"float32"` (exact), `"bfloat16"` (faster where the processor
            multiplies it), `"int8"` (by torchao) or `"auto"`, see [`Engine`]. It needs the engine.
        compile (`bool` or `str`): See [`Engine`].
        ensemble (list of `str`, *optional*): Folders or Hub names of models with the same
            vocabulary, which decode with `model`: probabilities are the mean of theirs. It needs
            the engine.
        ensemble_weights (list of `float`, *optional*): A positive number for each model, beginning
            with `model`.
        rerank_reverse (`str`, *optional*): Folder or Hub name of a model that translates in the
            other direction. The n-best list is ordered by a score to which it contributes, see
            [`reranking`].
        rerank_quality (`str`, *optional*): Folder or Hub name of a model that predicts the quality
            by which the n-best list is ordered, see [`Comet`].
        normalize (`bool`): Whether text is normalized as the tokenizers of new models do it, before
            a tokenizer that does not, see [`with_normalization`].

    Raises:
        ValueError: The precision or `compile` is unknown.
    """

    def __init__(
        self,
        model: "DecodedModel",
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        *,
        precision: str | None = None,
        compile: bool | str = "auto",
        ensemble: Sequence[str | Path] | None = None,
        ensemble_weights: Sequence[float] | None = None,
        rerank_reverse: str | Path | None = None,
        rerank_quality: str | Path | None = None,
        normalize: bool = False,
        **kwargs: Any,
    ):
        rerankers = {"rerank_reverse": rerank_reverse, "rerank_quality": rerank_quality}
        if None not in rerankers.values():
            raise UserError(
                "Give `rerank_reverse` or `rerank_quality`, not both: each one orders the n-best "
                "list."
            )
        if isinstance(model, str | Path):
            raise UserError(
                f"`model` must be a model, got the folder or name {str(model)!r}. Call "
                "`load_pipeline` of vanilla_transformer.decoding.loading."
            )
        if normalize:
            tokenizer = with_normalization(tokenizer)
        super().__init__(model, tokenizer, **kwargs)
        defaults = self.default_options
        self.inputs = TaskInputs(self.model, self.tokenizer, self.task, defaults)
        self.task: str = self.inputs.task
        self.prefix = self.inputs.prefix
        self.default_options = {**self.inputs.defaults, **self.default_options}
        self._ensemble: Any = None
        if ensemble is not None or ensemble_weights is not None:
            self._ensemble = load_ensemble(self.model, self.tokenizer, ensemble, ensemble_weights)
        self._stand_ins: dict[Direction, StandIns] = {}
        self._engines = EnginePool(self.decoded_model, precision, compile, converts=True)
        self.reranker: Any = None  # of the extension `reranking`
        for argument, further in rerankers.items():
            if further is not None:
                from vanilla_transformer.extensions.reranking.reranking import RERANKERS

                self.reranker = RERANKERS[argument].load(further, self.model.device)

    @property
    def decoded_model(self) -> Any:
        """The model that translates: the ensemble, if there is one."""
        return self.model if self._ensemble is None else self._ensemble

    @property
    def is_compiled(self) -> bool:
        """Whether the last texts were decoded by compiled steps, or the next ones are."""
        return self._engines.is_compiled

    @property
    def uses_engine(self) -> bool:
        """Whether an engine decodes the model, perhaps converted in memory, so that all options
        work.
        """
        return self._engines.supports_model

    def refresh(self) -> None:
        """
        Let the next call decode the model as it is now.

        Needed only after a change that a call does not notice by itself: values written by way of a
        weight's `data` or into a buffer, and hooks and methods that are replaced after the first
        call.
        """
        self._stand_ins.clear()
        self._engines.refresh()

    def with_options(self, **options: Any) -> "TranslationPipeline":
        """
        Return a pipeline of the same model whose calls have other options by default. This one
        keeps its own.

            >>> greedy = translate.with_options(num_beams=1)

        Args:
            options: Options of calls, over the options of this pipeline.
        """
        pipeline = copy(self)
        pipeline.default_options = {**self.default_options, **options}
        TranslationOptions.resolve({}, pipeline.default_options)
        return pipeline

    @property
    def reranks(self) -> bool:
        """Whether a model reranks the n-best list of each sentence."""
        return self.reranker is not None

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """Translate; the library's models answer one text with one list, also with
        `num_return_sequences`.
        """
        answers = super().__call__(inputs, *args, **options)
        is_of_library = self.inputs.is_of_library and isinstance(inputs, str)
        if is_of_library and isinstance(answers[0], list):
            return answers[0]
        return answers

    def begin(self, options: dict[str, Any], count: int | None) -> "TranslationCall":
        """Return the request of a call, with its options resolved and checked."""
        # A generation config may replace the options of the constructor.
        if self.inputs.is_of_library:
            options = {"protect": self.default_options["protect"], **options}
        if reads_sequences(self.tokenizer):
            options = {**options, "protect": False, "split_sentences": False}
        of_model = self.model.generation_config
        resolved = TranslationOptions.resolve(options, self.default_options, of_model)
        has_further_model = self.reranks or self._ensemble is not None
        if resolved.alternatives is not None and has_further_model:
            raise OptionError(
                "`alternatives` are of one model without reranking. Leave the other models out."
            )
        if resolved.is_drafted and self.reranks:
            raise OptionError(
                "A `draft` is for one greedy search, but a model reranks translations. Leave one "
                "of them out."
            )
        direction = Direction(resolved.src_lang, resolved.tgt_lang)
        check_languages(self.tokenizer, direction, self.inputs.is_of_library)
        return TranslationCall(self, resolved, count)

    def encode(self, texts: list[str], options: TranslationOptions) -> list[list[int]]:
        """Return the token ids of sources, with what the model needs besides, see
        [`TaskInputs`].
        """
        return self.inputs.encode(texts, options, self.prefix)

    def encode_draft(self, text: str) -> list[int]:
        """Return the token ids of a translation, without special ones."""
        text = " ".join(text.split())
        return self.tokenizer(text_target=[text], add_special_tokens=False)["input_ids"][0]

    def postprocess(self, model_outputs: Any, clean_up: bool | None = None) -> list[str]:
        """Return the text of each row of token ids, whose spaces at its ends stay if the library's
        models made it.
        """
        is_whole = self.inputs.is_of_library
        options = {"skip_special_tokens": True}
        if clean_up is not None or is_whole:
            options["clean_up_tokenization_spaces"] = bool(clean_up)
        texts = self.tokenizer.batch_decode(model_outputs, **options)
        return texts if is_whole else [text.strip() for text in texts]

    def translate_sentences(
        self,
        sentences: Sequence[Sentence],
        batch_size: int | None = None,
        progress_bar: bool | None = None,
        **options: Any,
    ) -> list[Translation]:
        """
        Return the best translation of each sentence, in which the text at [`Sentence.kept`]
        survives, with an alignment if the model gives one.

            >>> translate.translate_sentences([Sentence("See `a.py` now.", "", (), kept=[(4, 10)])])

        Args:
            sentences: Sentences of any length, without tokens.

        Raises:
            OptionError: An option asks for several translations, or has values for each text.
        """
        if reads_sequences(self.tokenizer):
            raise OptionError(
                "Documents must be text of a language, but the model is of sequences. Give it one "
                "sequence a line, as plain text."
            )
        options = {"protect": True, **options}
        if getattr(self.model.config, "alignment_heads", None):
            options["return_alignments"] = True
        call = self.begin(options, len(sentences))
        for name in _OF_TEXTS:
            if getattr(call.options, name) is not None:
                raise OptionError(f"`{name}` is for texts, not for sentences. Leave it out.")
        with self.decoding(len(sentences), progress_bar) as report:
            rows = call.decode(sentences, batch_size or self.default_batch_size, report)
        return [row[0] for row in rows]

    def decode(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        """Return the translations of each sentence, best first: a search, within the steps that the
        options ask for.

        Args:
            report: A function that takes the number of sentences that were done since its last
                call.
        """
        decode: Decode = self.search
        if options.is_drafted or any(sentence.draft for sentence in sentences):
            decode = follow_drafts(decode)
        if not options.return_tensors:
            has_kept = any(sentence.kept is not None for sentence in sentences)
            for step in self.steps(options, keeps=options.protect or has_kept):
                decode = step(decode)
        return decode(sentences, options, report)

    def steps(self, options: TranslationOptions, keeps: bool) -> Iterator[Step]:
        """Yield the steps around the search of a request, from the inner to the outer ones.

        Args:
            keeps: Whether text of sentences must survive.
        """
        if options.alternatives is not None:
            yield partial(complete_alternatives, model=self.model, tokenizer=self.tokenizer)
        if options.glossary is not None:
            from vanilla_transformer.extensions.terms.terms import use_terms

            yield partial(use_terms, encode=self.encode, tokenizer=self.tokenizer)
        choosing = [getattr(options, name) for name in ("mbr", *RERANKING)]
        if self.reranks or any(value is not None for value in choosing):
            from vanilla_transformer.extensions.reranking.reranking import (
                steps as steps_of_reranking,
            )

            yield from steps_of_reranking(self, options)
        if keeps and options.alternatives is None:
            yield partial(translate_parts, encode=self.encode, config=self.model.config)
            has_heads = bool(getattr(self.model.config, "alignment_heads", None))
            uses_engine = self.uses_engine  # which looks at all weights
            yield partial(
                keep_protected,
                tokenizer=self.tokenizer,
                uses_masks=not self.reranks,
                stand_ins=partial(self.stand_ins, options),
                can_constrain=not self.reranks and uses_engine,
                aligns=uses_engine and has_heads,
            )
        if find_masks(self.tokenizer):
            yield remove_masks

    def stand_ins(self, options: TranslationOptions) -> StandIns:
        """Return the words that the model copies in the direction of a request, from its
        configuration or by a probe.
        """
        direction = Direction(options.src_lang, options.tgt_lang)
        if direction not in self._stand_ins:
            stored = StandIns.from_config(self.model.config, direction)
            self._stand_ins[direction] = stored or self.probe_stand_ins(direction)
        return self._stand_ins[direction]

    def probe_stand_ins(self, direction: Direction) -> StandIns:
        """Return the words that the model copies in a direction, see [`probe_stand_ins`]."""
        language = direction.source or find_direction(self.tokenizer).source
        return probe_stand_ins(partial(self._translate_plainly, direction), language)

    def _translate_plainly(self, direction: Direction, texts: Sequence[str]) -> list[str]:
        """Return the translations that greedy search finds without the options of a request.

        It is `generate()`, since an engine of its own might have to be compiled.
        """
        languages = {"src_lang": direction.source, "tgt_lang": direction.target}
        greedy = {"num_beams": 1, "do_sample": False, **languages}
        options = TranslationOptions.resolve(greedy, {}, self.model.generation_config)
        options = options.override(**self.inputs.forced(options))
        sources = self.encode([*texts], options)
        rows = self.generate_texts(
            sources, len(sources), options.generate_kwargs, ignore, self.postprocess
        )
        return [row[0] for row in rows]

    def _prefer(
        self, tokens: Sequence[int], sentence: Sentence, options: TranslationOptions
    ) -> Sequence[float]:
        """Return the bias of each token of a draft: the one of the draft or, if its source is
        known, up to 0.5 for a token that the sentence makes as likely as that source does.
        """
        _, bias, earlier = sentence.draft or Draft("")
        biases = [bias] * len(tokens)
        if not earlier or not tokens or not self.model.config.is_encoder_decoder:
            return biases
        (source,) = self.encode([earlier], options)
        with suppress(UserError):  # longer than the positions of the model
            rows = score_tokens(self.decoded_model, [source, sentence.tokens], [tokens, tokens])
            for number, (before, after) in enumerate(zip(*rows, strict=True)):
                biases[number] = max(bias, HIGHEST_BIAS * math.exp(min(0.0, after - before)))
        return biases

    def search(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        """Return the translations of each sentence, by an engine if one is required or faster, or
        by `generate()`.
        """
        forced = self.inputs.forced(options)
        if forced:
            options = options.override(**forced)
        sentences = self._complete(sentences, options)
        clean_up = options.clean_up_tokenization_spaces
        read: Any = partial(self.postprocess, clean_up=clean_up)
        engine = None
        if options.return_tensors:
            read = list
        else:
            engine = self._find_engine(sentences, options)
        if engine is None:
            sources = [sentence.tokens for sentence in sentences]
            with _naming_options(options):
                texts_of_sentences = self.generate_texts(
                    sources, options.batch_size, options.generate_kwargs, report, read
                )
            rows_of_translations = []
            for texts in texts_of_sentences:
                rows_of_translations.append([Translation(text) for text in texts])
            return rows_of_translations
        if not sentences:
            return []
        requests = []
        for sentence in sentences:
            prefix, phrases = sentence.prefix or (), sentence.phrases
            request = DecodeRequest(sentence.tokens, prefix, phrases, sentence.seed)
            if sentence.draft is not None:
                tokens = self.encode_draft(sentence.draft.text)
                bias = self._prefer(tokens, sentence, options)
                request = request._replace(draft=tokens, draft_bias=bias)
            requests.append(request)
        hypotheses = engine.decode(requests, options.count, report=report)
        config = self.model.config
        return to_translations(sentences, hypotheses, read, self.tokenizer, options, config)

    def _complete(
        self, sentences: Sequence[Sentence], options: TranslationOptions
    ) -> list[Sentence]:
        """Return sentences of which all have tokens."""
        texts = [sentence.text for sentence in sentences if not sentence.tokens]
        rows = iter(self.encode(texts, options))
        complete = []
        for sentence in sentences:
            if not sentence.tokens:
                sentence = sentence._replace(tokens=next(rows))
            complete.append(sentence)
        return complete

    def _find_engine(
        self, sentences: Sequence[Sentence], options: TranslationOptions
    ) -> Engine | None:
        """Return the engine that decodes sentences, or None if `generate()` does."""
        constraints: dict[str, Any] = {}
        phrases = [sentence.phrases for sentence in sentences]
        if any(phrases):
            constraints = {"constraint_tokens": room_for_phrases(phrases)}
        if any(phrases) or options.is_prefixed:
            constraints |= {"word_continuations": word_continuations(self.tokenizer)}
        needed = {
            "seed": options.seed is not None,
            "constraints": any(phrases) and options.is_constrained,
            "glossary": any(phrases),
            "target_prefix": options.is_prefixed,
            "draft": options.is_drafted,
        }
        required_by = options.returned
        if required_by is None and sentences:
            names = [name for name, is_needed in needed.items() if is_needed]
            required_by = names[0] if names else None
        if required_by is None and self._ensemble is not None:
            required_by = "ensemble"
        start = options.decoder_start_token_id  # in the library's search
        starts_with_text = start not in (None, *self.tokenizer.all_special_ids)
        if self.inputs.is_of_library and required_by is None and starts_with_text:
            return None
        if options.return_confidence and needs_alignments(options, self.model.config):
            options = options.model_copy(update={"return_alignments": True})
        longest = max((len(sentence.tokens) for sentence in sentences), default=0)
        return self._engines.find(options, required_by, longest, **constraints)


@contextmanager
def _naming_options(options: TranslationOptions) -> Iterator[None]:
    """Name the options of the model's folder that only the library knows, and does not accept.

    What it says about options of a call names them already.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, AssertionError) as error:
        of_call = options.generate_kwargs
        of_model = [name for name in options.library if name not in of_call]
        if not of_model:
            raise
        names = ", ".join(f"`{name}`" for name in of_model)
        requirement = f"`generate()` of transformers must accept {names} of the model"
        hint = f"Leave them out of its {GENERATION_CONFIG_NAME}."
        reason = first_line(error).rstrip(".")
        raise OptionError(f"{requirement}, but: {reason}. {hint}") from error


class TranslationCall:
    """
    One call of the package's pipeline: its options, and the steps that depend on them, see
    [`Request`].

    Args:
        pipeline: Pipeline that was called.
        options: Options of the call.
        count: The number of texts, if it is known.
    """

    def __init__(
        self, pipeline: TranslationPipeline, options: TranslationOptions, count: int | None
    ):
        self._pipeline, self.options = pipeline, options
        self.num_return_sequences = options.count
        tokenizer, config = pipeline.tokenizer, pipeline.model.config
        self._memory = None
        if options.memory is not None and not options.return_tensors:
            from vanilla_transformer.extensions.memory.memory import as_memory

            direction = find_direction(tokenizer, options.src_lang, options.tgt_lang)
            self._memory = as_memory(options.memory, direction)
        known = self._memory or ()
        self._reader = SentenceReader(options, tokenizer, pipeline.encode, config, count, known)
        self._find_warnings = None
        if options.return_warnings:
            self._find_warnings = warning_finder(tokenizer, config, vars(options))

    def segments(self, texts: list[str]) -> list[list[Sentence]]:
        """Return the sentences of each text; none for blank text."""
        is_of_library = self._pipeline.inputs.is_of_library
        return self._reader.read(texts, is_of_library or bool(self.options.return_tensors))

    def keep(self, sentence: Sentence) -> Translation:
        """Return the translation of a sentence without tokens."""
        return copy_sentence(sentence.text)

    def decode(
        self, sentences: Sequence[Sentence], batch_size: int, report: Report
    ) -> list[list[Translation]]:
        """Return the translations of each sentence, best first; each has tokens."""
        progress, done = self.options.progress, 0

        def report_both(count: int) -> None:
            nonlocal done
            done += count
            report(count)
            if progress is not None:
                progress(done, len(sentences))

        options = self.options.model_copy(update={"batch_size": batch_size})
        decode: Decode = self._pipeline.decode
        if self._memory is not None:
            from vanilla_transformer.extensions.memory.memory_search import use_memory

            can_draft = self._pipeline.uses_engine and not self._pipeline.reranks
            decode = use_memory(decode, self._memory, can_draft)
        return decode(sentences, options, report_both)

    def answer(
        self, text: str, sentences: Sequence[Sentence], translations: Sequence[Translation]
    ) -> dict[str, Any]:
        """Return the answer of a text, given the translation of each of its sentences."""
        name = self._pipeline.inputs.answer
        if self.options.return_tensors:
            return {f"{name}_token_ids": translations[0].text}
        config = self._pipeline.model.config
        answer = build_answer(
            text, sentences, translations, self.options, config, self._find_warnings
        )
        return {f"{name}_text": answer.pop("translation_text"), **answer}
