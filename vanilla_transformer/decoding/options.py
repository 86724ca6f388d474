"""
All options of a request, each declared once: its type and range, default, description, and the
doors that know it.

A request is one call of the translation pipeline. The command line makes flags of the declarations,
the service makes the schema of its JSON body of them, and the pipeline resolves them once, at its
door. Afterwards one frozen [`TranslationOptions`] travels. A new option is a field here and the
feature that implements it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from annotated_types import Predicate
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    find_direction,
    find_languages,
)
from vanilla_transformer.user_input.schemas import find_mistakes

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

# Options by name: of the call, of its generation config, or of the model's
Level = Mapping[str, Any]
# Doors besides the call: the command line, HTTP, generation configs.
FLAG = "flag"
JSON = "json"
CONFIG = "config"
TermMode = Literal["soft", "hard", "exact"]
Utility = Literal["chrf", "bleu"]  # of minimum Bayes risk decoding
SOFT, HARD, EXACT = get_args(TermMode)
UTILITIES, MBR_SAMPLES = get_args(Utility), 32
_USUAL_TOP_K = 50  # of `generate()`

# --- Types ----------------------------------------------------------------------------------------


class OptionError(UserError):
    """Raised for options of a request that are out of range, or that do not fit each other or the
    model.
    """


PHRASES = "a list of phrases, or a list of phrases for each text"
PREFIXES = "a string, or one for each text"
DRAFTS = "text, or one for each text, None for no draft"
# A title has the words of messages where the type and its range do not say all.
# Larger sizes would fill the memory or take hours before the first result.
Size = Annotated[int | None, Field(ge=0, le=10_000)]
Length = Annotated[int | None, Field(ge=1, le=10_000)]
Count = Annotated[int | None, Field(ge=1, le=500)]
Number = Annotated[float | None, Field(allow_inf_nan=False, ge=-100, le=100)]
Weight = Annotated[float | None, Field(allow_inf_nan=False, ge=0, le=100)]
Tokens = Annotated[list[int], Strict(False)]  # or a tuple
Code = Annotated[str | None, Field(max_length=40, title="the code of a language")]


def _is_column(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


# A value for each text; an iterator is not consumed.
Column = Annotated[Any, Predicate(_is_column)]
_STRING: dict[str, Any] = {"type": "string"}
_STRINGS: dict[str, Any] = {"type": "array", "items": _STRING}
_PHRASES: dict[str, Any] = {"type": "array", "items": {"anyOf": [_STRING, _STRINGS]}}
_TERMS: dict[str, Any] = {"type": "object", "additionalProperties": _STRING}
Prefixes = str | Annotated[Column, WithJsonSchema(_STRINGS)] | None
_DRAFTS = {"type": "array", "items": {"anyOf": [_STRING, {"type": "null"}]}}
Drafts = str | Annotated[Column, WithJsonSchema(_DRAFTS)] | None
# An integer, or a `SentenceSeeds`, which several calls share
Seed = int | SkipJsonSchema[Callable[[str], int]] | None


class TranslationOptions(BaseModel):
    """
    The resolved options of one request; the declarations below say what each one means.

    None means that nothing was given: the search uses its own default, which is the library's.

    Attributes:
        batch_size: Sentences that `generate()` decodes at once.
        library: Options of transformers' `generate()` that are not declared here and ask for
            something, given in the call or in a generation config. If there is one, only the
            library's own loop decodes the request.
        generate_kwargs: The keyword arguments with which `generate()` decodes the request: options
            of the call and of the constructor, as they were given, and their generation config.
            Other options come from the model's.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    # Search
    num_beams: Annotated[Count, FLAG, CONFIG] = Field(
        None, description="Beam size; 1 is greedy search."
    )
    num_return_sequences: Annotated[Count, FLAG, JSON, CONFIG] = Field(
        None, description="Translations of each sentence, best first."
    )
    max_new_tokens: Annotated[Length, FLAG, CONFIG] = Field(
        None, description="Maximum number of tokens per translation; by default source length + 50."
    )
    max_new_tokens_beyond_source: Annotated[Size, CONFIG] = Field(
        None,
        description="Maximum number of tokens of a translation, besides as many as its source has.",
    )
    max_length: Annotated[Length, CONFIG] = Field(
        None, description="Maximum number of tokens per translation, with the start symbol."
    )
    min_new_tokens: Annotated[Size, CONFIG] = Field(
        None, description="Minimum number of tokens per translation, before EOS."
    )
    length_penalty: Annotated[Number, FLAG, CONFIG] = Field(
        None,
        description=(
            "Exponent of the length by which beam search divides log-probabilities; more is longer."
        ),
    )
    length_penalty_type: Annotated[Literal["power", "wu"] | None, CONFIG] = Field(
        None,
        title="'power' or 'wu'",
        description=(
            "How the length penalty divides: by a power of the length, or as Wu et al. (2016)."
        ),
    )
    early_stopping: Annotated[bool | int | Literal["never"] | None, CONFIG] = Field(
        None,
        title="True, False or 'never'",
        description="When beam search stops, as in a generation config.",
    )
    no_repeat_ngram_size: Annotated[Size, FLAG, JSON, CONFIG] = Field(
        None,
        le=1_000,
        description=(
            "Length of token sequences that a translation must not have twice; 0 allows all."
        ),
    )
    eos_token_id: Annotated[Any, CONFIG] = Field(None, description="Tokens that end a translation.")
    decoder_start_token_id: Annotated[Any, CONFIG] = Field(
        None, description="The token before each translation."
    )
    forced_bos_token_id: Annotated[Any, CONFIG] = Field(
        None, description="The token with which each translation begins."
    )
    forced_eos_token_id: Annotated[Any, CONFIG] = Field(
        None, description="The last token at the limit of the length."
    )
    bad_words_ids: Annotated[list[Tokens], Strict(False), CONFIG] = Field(
        [], description="Token sequences to avoid."
    )
    suppress_tokens: Annotated[Tokens, CONFIG] = Field(
        [], description="Tokens that no translation has."
    )
    renormalize_logits: Annotated[bool, CONFIG] = Field(
        False, description="Let allowed tokens have probability 1."
    )
    # Sampling; `resolve` checks the filters
    do_sample: Annotated[bool, FLAG, JSON, CONFIG] = Field(
        False, description="Sample, by default with one beam."
    )
    temperature: Annotated[float | None, FLAG, JSON, CONFIG] = Field(
        None, description="Divisor of the logits in sampling."
    )
    top_k: Annotated[int | float | None, FLAG, JSON, CONFIG] = Field(
        None,
        title="a number",
        description="Sample from so many most likely tokens; by default 50, and 0 means all.",
    )
    top_p: Annotated[float | None, FLAG, JSON, CONFIG] = Field(
        None, description="Sample from the tokens with so much probability."
    )
    epsilon_cutoff: Annotated[float | None, FLAG, JSON, CONFIG] = Field(
        None, description="Sample tokens of at least this probability."
    )
    seed: Annotated[Seed, FLAG, JSON] = Field(
        None,
        description="Seed from which each sentence gets one that does not depend on its batch.",
    )
    # What each text has for itself: one value for all texts, or one for each
    target_prefix: Annotated[Prefixes, FLAG, JSON] = Field(
        None, title=PREFIXES, description="Text with which each translation begins."
    )
    alternatives: Annotated[Count, FLAG, JSON] = Field(
        None,
        description="Print a translation for each of so many most likely tokens after the prefix.",
    )
    draft: Annotated[Drafts, JSON] = Field(
        None,
        title=DRAFTS,
        description="A translation that may be right, such as one of an earlier version of the "
        "text: greedy search checks many of its tokens at once, and returns what it returns "
        "without a draft, sooner.",
    )
    draft_bias: Annotated[float, Field(ge=0, le=0.5), FLAG, JSON] = Field(
        0.0,
        description="Preference for the words of the draft, from 0 (the same translation as "
        "without it) to 0.5.",
    )
    constraints: Annotated[Column | None, FLAG, JSON, WithJsonSchema(_PHRASES)] = Field(
        None,
        title=PHRASES,
        description="Words or phrases that each translation must contain, each in quotation marks "
        "if it has spaces. 'Hund*' allows further letters.",
    )
    force_words_ids: Any = Field(
        None, description="Phrases as token ids that each translation must contain."
    )
    # Terms
    glossary: Annotated[Any, FLAG, JSON, WithJsonSchema(_TERMS)] = Field(
        None,
        description=(
            "Terms and their translations: a line with a term, a tab and its translation "
            "each, or TBX (.tbx)."
        ),
    )
    term_mode: Annotated[TermMode | None, FLAG, JSON] = Field(
        None,
        description="soft: translations are written beside their terms, for models trained with "
        "`augment: {inline_terms: …}`. exact: beam search must use them. hard: likewise, but a "
        "model trained for it may inflect them. Default: soft if the model was trained for it, "
        "and otherwise exact.",
    )
    # Translations that are known
    memory: Annotated[Any, FLAG] = Field(
        None,
        description="Files with translations of sentences (TMX, XLIFF, PO, TSV and others): a "
        "sentence that is there gets its translation, and a similar one a translation that "
        "follows it.",
    )
    # The choice among candidates
    mbr: Annotated[Utility | None, FLAG, JSON] = Field(
        None,
        description=(
            "Choose from samples, or from the n-best list of --num_beams, by expected chrf or bleu."
        ),
    )
    mbr_samples: Annotated[int | None, Field(ge=2, le=10_000), FLAG, JSON] = Field(
        None, description=f"Samples to choose from; by default {MBR_SAMPLES}."
    )
    rerank_reverse_weight: Annotated[Weight, FLAG, JSON] = Field(
        None, description="With --rerank_reverse: factor of its log-probability; by default 0.5."
    )
    rerank_length_weight: Annotated[Number, FLAG, JSON] = Field(
        None,
        description="With --rerank_reverse: what each token adds to the score; by default 0.5.",
    )
    # Languages and sentences
    src_lang: Annotated[Code, JSON] = Field(
        None, description="Code of the language of the text, if the model has several."
    )
    tgt_lang: Annotated[Code, JSON] = Field(
        None, description="Code of the language of the translations, if the model has several."
    )
    protect: Annotated[bool, FLAG, JSON] = Field(
        True,
        description="Keep URLs, e-mail addresses, placeholders such as {name} or %s, emoji, long "
        "numbers and so on as they are.",
    )
    split_sentences: Annotated[bool | None, FLAG, JSON] = Field(
        None,
        description=(
            "Translate each sentence of a line by itself, and keep the white space between them."
        ),
    )
    sentence_splitter: str | Callable[[str], Any] | None = Field(
        None,
        title="a function or the name of one",
        description="How lines are split: a function, abbreviations, simple, or module:function.",
    )
    source_language: Any = Field(
        None,
        description="Code of the language of the text, whose abbreviations and ordinals end no "
        "sentence; by default `src_lang`.",
    )
    # What answers have besides the translation
    return_scores: Annotated[bool, JSON] = Field(
        False, description="Return the score and the log-probability."
    )
    return_tokens: Annotated[bool, JSON] = Field(
        False, description="Return the tokens with their log-probabilities."
    )
    return_alignments: Annotated[bool, JSON] = Field(
        False, description="Return links between characters of the text."
    )
    return_confidence: Annotated[bool, JSON] = Field(
        False, description="Return the expected chrF, from 0 to 1."
    )
    return_warnings: Annotated[bool, JSON] = Field(
        False, description="Return the signs of a bad translation."
    )
    # Of the pipelines of transformers 4
    truncation: Any = Field(
        None, description="Whether the tokenizer cuts a text; a model of ours gets no long ones."
    )
    return_tensors: bool | None = Field(
        None, description="Return the token ids of a text instead of a translation."
    )
    return_text: bool | None = Field(None, description="Without effect, as in transformers 4.")
    clean_up_tokenization_spaces: bool | None = Field(
        None, description="Remove spaces before punctuation."
    )
    stop_sequence: str | None = Field(
        None, description="Text whose first token ends a translation."
    )
    progress: Any = Field(
        None, description="Called with the numbers of sentences that are done and of all sentences."
    )
    batch_size: int = 32
    library: dict[str, Any] = {}
    generate_kwargs: dict[str, Any] = {}

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            mistakes = find_mistakes(error, type(self).model_fields)
            raise OptionError("\n".join(mistakes.values())) from None

    @field_validator("glossary")
    @classmethod
    def _read_glossary(cls, value: object) -> Any:
        if value is None:
            return None
        from vanilla_transformer.text.glossary import as_glossary

        return as_glossary(value)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("do_sample") and values.get("top_k") is None:
            return {**values, "top_k": _USUAL_TOP_K}
        return values

    @model_validator(mode="after")
    def _check_together(self) -> "TranslationOptions":
        if self.mbr is None and self.mbr_samples is not None:
            names = ", ".join(map(repr, UTILITIES))
            raise OptionError(f"`mbr_samples` needs `mbr`, one of {names}.")
        if self.glossary is None and self.term_mode is not None:
            requirement = "`term_mode` must be given with a `glossary`"
            raise OptionError(f"{requirement}, got {self.term_mode!r} without one.")
        self._check_draft()
        if self.alternatives is None:
            return self
        values = {**self.generate_kwargs, "mbr": self.mbr, "seed": self.seed}
        for name in ("num_return_sequences", "do_sample", "mbr", "seed"):
            value = values.get(name)
            if value is not None and value is not False:
                reason = "`alternatives` are completed by one search each"
                raise OptionError(f"{reason}. Leave `{name}` out.")
        return self

    def _check_draft(self) -> None:
        if self.draft is None and self.memory is None and self.draft_bias:
            requirement = "`draft_bias` must be given with a `draft`"
            raise OptionError(f"{requirement}, got {self.draft_bias} without one.")
        if self.draft is None:
            return
        if self.is_constrained or self.alternatives is not None or self.mbr is not None:
            raise OptionError(
                "A `draft` is for one greedy search, without `constraints`, `alternatives` and "
                "`mbr`. Leave them out."
            )
        if self.do_sample and self.draft_bias:
            raise OptionError("`draft_bias` is for greedy search. Leave `do_sample` or it out.")
        beams = self.generate_kwargs.get("num_beams") or 1
        count = 1 if self.do_sample else self.count
        if max(beams, count) > 1:
            requirement = "A `draft` needs `num_beams=1` and, but for samples, one translation"
            raise OptionError(f"{requirement}, got {beams} beams and {count} translations.")

    # --- Resolution ---

    @classmethod
    def resolve(
        cls,
        call: Level,
        defaults: Level | None = None,
        model_config: "GenerationConfig | None" = None,
    ) -> "TranslationOptions":
        """
        Return the options of a request, of four levels: the call, the constructor, and two
        generation configs.

        The first level that gives an option decides about it; None counts as not given. A
        generation config in the call replaces the constructor's options.

        Args:
            call: Keyword arguments of the call; `generation_config` may be among them.
            defaults: Keyword arguments of the constructor, likewise.
            model_config: The generation config of the model.
        """
        known = {*options_of(), "generation_config"}
        of_call = dict[str, Any]()
        for name, value in call.items():
            if value is not None or name not in known:
                of_call[name] = value
        if "generation_config" not in of_call:
            of_call = {**(defaults or {}), **of_call}
        config = of_call.pop("generation_config", None)
        levels: list[Level] = [of_call]
        for level in (config, model_config):
            levels.append({} if level is None else vars(level))
        options = cls.from_levels(levels)
        if options.do_sample or options.mbr is not None:
            from .engine.sampling import SamplingOptions  # which imports torch

            try:  # the ranges are the library's
                filters = {name: getattr(options, name) for name in FILTERS}
                SamplingOptions.from_options(filters)
            except (ValueError, TypeError, OverflowError) as error:
                raise OptionError(str(error)) from error
        if config is None:
            return options
        kwargs = {**options.generate_kwargs, "generation_config": config}
        return options.model_copy(update={"generate_kwargs": kwargs})

    @classmethod
    def from_levels(cls, levels: Sequence[Level]) -> "TranslationOptions":
        """Return the options of a request or of a call of `generate()`, given the options of each
        level.

        Args:
            levels: Keyword arguments of the call, options of its generation config, and of the
                model's.
        """
        # This module imports torch.
        from vanilla_transformer.generation_vanilla_transformer import closest, closest_margin

        known, in_config = options_of(), options_of(CONFIG)
        call, *configs = levels
        values = dict[str, Any]()
        for name in known:
            values[name] = closest(levels if name in in_config else [call], name)
        margin = closest_margin(levels)
        values["max_new_tokens_beyond_source"] = margin
        if margin is not None:
            values["max_new_tokens"] = None
        if values["decoder_start_token_id"] is None:
            values["decoder_start_token_id"] = closest(levels, "bos_token_id")
        kwargs = dict[str, Any]()
        for name, value in call.items():
            if name not in known or (value is not None and name in in_config):
                kwargs[name] = value
        ignored = {*known, *_WITHOUT_EFFECT}
        if not values["do_sample"]:
            ignored |= _OTHER_FILTERS
        names_of_configs = {*chain.from_iterable(configs)}
        library = dict[str, Any]()
        for name in dict.fromkeys(chain.from_iterable(levels)):
            if name in ignored or name.startswith("_"):
                continue
            value = closest(levels, name)
            is_neutral = value is None or value is False or value == _DEFAULTS.get(name)
            # In the call alone, it may be misspelled.
            if not is_neutral or name not in names_of_configs:
                library[name] = value
        given_values = {name: value for name, value in values.items() if value is not None}
        return cls(**given_values, library=library, generate_kwargs=kwargs)

    def override(self, **values: Any) -> "TranslationOptions":
        """Return these options with other values, as if the call had given them."""
        in_config = options_of(CONFIG)
        kwargs = {name: value for name, value in values.items() if name in in_config}
        values |= {"generate_kwargs": {**self.generate_kwargs, **kwargs}}
        set_values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**set_values, **values})

    def with_beams(self) -> "TranslationOptions":
        """Return these options for a beam search that needs several beams, and follows no draft."""
        beams = several_beams(self.num_beams, self.count)
        return self.override(num_beams=beams, draft=None, draft_bias=0.0)

    def choose_beams(self, usual: int | None, reranks: bool = False) -> "TranslationOptions":
        """Return these options with the beam size that they need, for callers who do not choose
        one.

        Args:
            usual: The beam size of the checkpoint.
            reranks: Whether a model reranks the n-best list of each sentence.
        """
        if self.do_sample:
            return self.override(num_beams=1)
        has_hard_terms = self.glossary is not None and self.term_mode != SOFT
        needs_beams = has_hard_terms or reranks or self.constraints is not None
        if self.num_return_sequences is not None or (self.mbr is None and needs_beams):
            return self.override(num_beams=several_beams(self.count, usual))
        return self

    def without_columns(self) -> "TranslationOptions":
        """Return these options for another process, which gets sentences with their own seeds and
        phrases.
        """
        marks: dict[str, Any] = {
            "target_prefix": "",
            "draft": "",
            "constraints": (),
            "force_words_ids": (),
            "seed": 0,
        }
        update: dict[str, Any] = {"sentence_splitter": None, "progress": None}
        for name, mark in marks.items():
            if getattr(self, name) is not None:
                update[name] = mark
        return self.model_copy(update=update)

    def is_given(self, name: str) -> bool:
        """Return whether the call or the constructor gives an option that generation configs have,
        too.
        """
        return self.generate_kwargs.get(name) is not None

    # --- What follows from several options ---

    def __hash__(self) -> int:
        """Hash the numbers and strings among the options; lists and dictionaries have no hash."""
        values = vars(self).values()
        hashable = [value for value in values if isinstance(value, str | int | float)]
        return hash(tuple(hashable))

    @property
    def given(self) -> dict[str, Any]:
        """The options that the call and the constructor give, as keyword arguments of a call."""
        in_config = options_of(CONFIG)
        arguments = dict(self.generate_kwargs)
        for name in options_of():
            value = getattr(self, name)
            is_set = name in self.model_fields_set and value is not None
            if is_set and name not in in_config:
                arguments[name] = value
        return arguments

    @property
    def returned(self) -> str | None:
        """The first option that adds an entry to answers, or None."""
        return next((name for name in RETURNED if getattr(self, name)), None)

    @property
    def count(self) -> int:
        """The translations of each sentence."""
        return self.alternatives or self.num_return_sequences or 1

    @property
    def is_constrained(self) -> bool:
        """Whether the request itself has constraints, besides its terms."""
        return self.constraints is not None or self.force_words_ids is not None

    @property
    def is_prefixed(self) -> bool:
        """Whether translations may have prefixes."""
        return self.target_prefix is not None or self.alternatives is not None

    @property
    def is_drafted(self) -> bool:
        """Whether translations may have drafts."""
        return self.draft is not None


RETURNED = (
    "return_scores",
    "return_tokens",
    "return_alignments",
    "return_confidence",
    "return_warnings",
)
LEAST_BEAMS = 4  # of searches that need several; the paper's
FILTERS = ("temperature", "top_k", "top_p", "epsilon_cutoff")  # of sampling
TERMS = ("glossary", "term_mode")
RERANKING = ("rerank_reverse_weight", "rerank_length_weight")


def several_beams(*wanted: int | None) -> int:
    """Return the beam size of a search that needs several beams: the largest wanted one, or the
    paper's.
    """
    return max(LEAST_BEAMS, *(beams or 1 for beams in wanted))


# --- Declarations ---------------------------------------------------------------------------------

# Fields that resolution gives, and no door.
_RESOLVED = ("batch_size", "library", "generate_kwargs")


@cache
def options_of(door: str | None = None) -> dict[str, FieldInfo]:
    """Return the declarations of the options that a door knows, by name in order; by default of all
    options.
    """
    options = dict[str, FieldInfo]()
    for name, declaration in TranslationOptions.model_fields.items():
        is_known = door is None or door in declaration.metadata
        if is_known and name not in _RESOLVED:
            options[name] = declaration
    return options


# --- Levels ---------------------------------------------------------------------------------------

# Options that change no search, besides those that are declared.
_WITHOUT_EFFECT = {
    "pad_token_id",
    "bos_token_id",
    "use_cache",
    "disable_compile",
    "transformers_version",
}
_WITHOUT_EFFECT |= {
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
}
_WITHOUT_EFFECT |= {"assistant_lookbehind", "target_lookbehind"}
# Only sampling uses these.
_OTHER_FILTERS = {"min_p", "top_h", "typical_p", "eta_cutoff"}
# The library's defaults, which `Seq2SeqTrainer` writes into a generation config.
_DEFAULTS = {
    **dict.fromkeys(
        ("repetition_penalty", "encoder_repetition_penalty", "guidance_scale", "typical_p"), 1.0
    ),
    **dict.fromkeys(
        ("min_length", "encoder_no_repeat_ngram_size", "diversity_penalty", "eta_cutoff"), 0
    ),
    **{"num_beam_groups": 1, "cache_implementation": "dynamic"},
}


def check_languages(
    tokenizer: "PreTrainedTokenizerBase", direction: Direction, is_of_library: bool = False
) -> None:
    """Refuse languages that a tokenizer does not know, or that are not the two of its model, as far
    as it knows.
    """
    if direction == NO_DIRECTION:
        return
    languages = find_languages(tokenizer, at_end=is_of_library)
    try:
        if languages is not None:
            languages.resolve(*direction)
        elif find_direction(tokenizer) == NO_DIRECTION and not is_of_library:
            raise UserError(
                "The model translates from one language to one other. Leave the languages out."
            )
        else:
            find_direction(tokenizer, *direction)
    except UserError as error:
        raise OptionError(str(error)) from error
