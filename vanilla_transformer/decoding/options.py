"""
All options of a request, each declared once: its type, default, help, range, and the doors that know it.

A request is one call of the translation pipeline. The command line makes flags of the declarations, the service makes
the schema of its JSON body of them, and the pipeline resolves them once, at its door. Afterwards one frozen
[`TranslationOptions`] travels. A new option is a field here and the feature that implements it.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, NamedTuple

from vanilla_transformer.extensions import GLOSSARY, load, require
from vanilla_transformer.text.protection import DEFAULT, PATTERNS
from vanilla_transformer.user_input import check_number

Level = Mapping[str, Any]  # options by name: of the call, of its generation config, or of the model's
FLAG, JSON, CONFIG = "flag", "json", "config"  # doors: the command line, HTTP requests and generation configs
SOFT, HARD, EXACT = TERM_MODES = ("soft", "hard", "exact")
UTILITIES, MBR_SAMPLES = ("chrf", "bleu"), 32  # of minimum Bayes risk decoding
_USUAL_TOP_K = 50  # of `generate()`
_LONGEST_CODE = 40  # characters of the code of a language

# --- Declarations ---------------------------------------------------------------------------------------------------


class OptionError(ValueError):
    """Raised for options of a request that are out of range, or that do not fit each other or the model."""


class Rule(NamedTuple):
    """
    The values that an option may have.

    Attributes:
        text: Words for allowed values, as the end of "`name` must be …".
        allows: Returns whether a value, which is not None, is allowed.
        schema: The JSON schema of such values.
        kind: The type of its flag.
        show: Returns the words of a message for a wrong value.
    """

    text: str
    allows: Callable[[Any], bool]
    schema: Mapping[str, Any]
    kind: type
    show: Callable[[Any], str] = repr


@dataclass(frozen=True)
class Option:
    """
    The declaration of one option.

    Args:
        name: Name of the option in every door, except where `flag_name` is another one.
        default: The value if no level gives one. None where the checkpoint or the search decides.
        door_default: The value of its flag and its JSON entry if they are not given.
        help: One or two sentences for `--help` and for the JSON schema.
        rule: See [`Rule`]; None if the feature itself checks values.
        flag: Whether the command line has a flag for it.
        flag_name: The name of its flag; by default the option's.
        json: Whether the body of an HTTP request may have it.
        in_config: Whether a generation config may give it, besides the call and the pipeline's constructor.
        schema: The JSON schema, if it is not the rule's.
        kind: The type of a value of its flag.
        flag_keywords: Further keyword arguments of `ArgumentParser.add_argument`.
    """

    name: str
    default: Any
    door_default: Any
    help: str
    rule: Rule | None
    flag: bool
    flag_name: str
    json: bool
    in_config: bool
    schema: Mapping[str, Any]
    kind: type
    flag_keywords: Mapping[str, Any]

    @property
    def requirement(self) -> str:
        """The rule of the option as the beginning of a message: "`name` must be …"."""
        assert self.rule is not None
        return f"`{self.name}` must be {self.rule.text}"

    def check(self, value: Any) -> Any:
        """Return a value of the option, which is allowed.

        Raises:
            OptionError: It is not; the message is the same for all doors.
        """
        if value is not None and self.rule is not None and not self.rule.allows(value):
            raise OptionError(f"{self.requirement}, got {self.rule.show(value)}.")
        try:
            check_number(self.name, value)
        except ValueError as error:
            raise OptionError(str(error)) from None
        return value


def option(
    help: str,
    rule: Rule | None = None,
    *doors: str,
    default: Any = None,
    door_default: Any = None,
    flag_name: str | None = None,
    schema: Mapping[str, Any] | None = None,
    **flag_keywords: Any,
) -> Any:
    """Return a field of [`TranslationOptions`] with the declaration of an option.

    Args:
        doors: `FLAG`, `JSON` and `CONFIG`: where the option can be given, besides a call of the pipeline.

    See [`Option`] for the other arguments.
    """
    door_default = default if door_default is None else door_default
    declared = {"default": default, "door_default": door_default, "help": help, "rule": rule, "flag_name": flag_name}
    declared |= {"flag": FLAG in doors, "json": JSON in doors, "in_config": CONFIG in doors}
    declared["schema"] = schema or (rule.schema if rule else {"type": "string"})
    declared["kind"] = rule.kind if rule else str
    return field(default=default, metadata={"option": declared | {"flag_keywords": flag_keywords}})


def integer(minimum: int | None = None, or_none: bool = False) -> Rule:
    """Return the rule of integers of `minimum` or more."""
    text = "an integer" if minimum is None else f"an integer of {minimum} or more"
    schema = {"type": "integer"} | ({} if minimum is None else {"minimum": minimum})

    def allows(value: Any) -> bool:
        return type(value) is int and (minimum is None or value >= minimum)

    return Rule(f"{text}, or None" if or_none else text, allows, schema, int)


def number(minimum: float | None = None) -> Rule:
    """Return the rule of finite numbers of `minimum` or more."""
    text = "a finite number" if minimum is None else f"a number of {minimum} or more"
    schema = {"type": "number"} | ({} if minimum is None else {"minimum": minimum})

    def allows(value: Any) -> bool:
        return _is_finite(value) and (minimum is None or value >= minimum)

    return Rule(text, allows, schema, float)


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def one_of(*choices: str, joined: str = ", ") -> Rule:
    """Return the rule of a few names."""
    text = joined.join(map(repr, choices))
    text = text if joined == " or " else f"one of {text}"
    return Rule(text, lambda value: value in choices, {"type": "string", "enum": list(choices)}, str)


def _is_seed(value: Any) -> bool:
    return type(value) is int or callable(value)  # a `SentenceSeeds`, which several calls share


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool


def _is_column(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _is_splitter(value: Any) -> bool:
    return isinstance(value, str) or callable(value)


def _names_patterns(value: str) -> bool:
    return all(name.strip() in (DEFAULT, *PATTERNS) for name in value.split(","))


def _is_protection(word: str) -> bool:
    """Return whether a word after the flag is its value, and no text to translate."""
    return word.lower() in ("true", "false") or _names_patterns(word) or bool(re.fullmatch("[a-z0-9_,]+", word))


BOOLEAN = Rule("True or False", lambda value: type(value) is bool, {"type": "boolean"}, bool)
_PROTECTION = Rule(
    "True, False or names that the help lists, such as 'printf,url'",
    lambda value: type(value) is bool or (isinstance(value, str) and _names_patterns(value)),
    {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
    bool,
)
_PENALTY = one_of("power", "wu", joined=" or ")
_SEED = Rule("an integer", _is_seed, {"type": "integer"}, int)
_FILTER = Rule("a number", _is_number, {"type": "number"}, float)  # the library checks its range, see `check_filters`
_COUNT_FILTER = _FILTER._replace(kind=int)
_SHARE = Rule(
    "a number between 0 and 1",
    lambda value: type(value) is float and 0.0 < value < 1.0,
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    float,
)
_STOPPING = Rule(
    "True, False or 'never'",
    lambda value: type(value) in (bool, int) or value == "never",
    {"enum": [True, False, "never"]},
    str,
)
_SPLITTER = Rule(
    "a function or the name of one", _is_splitter, {"type": "string"}, str, lambda value: type(value).__name__
)
_STRING: Mapping[str, Any] = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_CODE = Rule(
    "the code of a language", lambda value: isinstance(value, str) and len(value) <= _LONGEST_CODE, _STRING, str
)
_PHRASES = Rule(
    "a list of phrases, or a list of phrases for each text",
    _is_column,
    {"type": "array", "items": {"anyOf": [_STRING, _STRINGS]}},
    list[str],
)
_PREFIXES = Rule(
    "a string, or one for each text",
    lambda value: isinstance(value, str) or _is_column(value),
    {"anyOf": [_STRING, _STRINGS]},
    str,
)


@dataclass(frozen=True)
class TranslationOptions:
    """
    The resolved options of one request; the declarations below say what each one means.

    None means that nothing was given: the search uses its own default, which is the library's.

    Attributes:
        batch_size: Sentences that `generate()` decodes at once.
        library: Options of transformers' `generate()` that are not declared here and ask for something, given in the
            call or in a generation config. If there is one, only the library's own loop decodes the request.
        generate_kwargs: The keyword arguments with which `generate()` decodes the request: options of the call and of
            the constructor, as they were given, and their generation config. Other options come from the model's.
    """

    # Search
    num_beams: int | None = option("Beam size; 1 is greedy search.", integer(1), FLAG, CONFIG)
    num_return_sequences: int | None = option(
        "Translations of each sentence, best first.", integer(1), FLAG, JSON, CONFIG
    )
    max_new_tokens: int | None = option(
        "Maximum number of tokens per translation; by default source length + 50.", integer(1), FLAG, CONFIG
    )
    max_new_tokens_beyond_source: int | None = option(
        "Maximum number of tokens of a translation, besides as many as its source has.",
        integer(0, or_none=True),
        CONFIG,
    )
    max_length: int | None = option(
        "Maximum number of tokens per translation, with the start symbol.", integer(1), CONFIG
    )
    min_new_tokens: int | None = option("Minimum number of tokens per translation, before EOS.", integer(0), CONFIG)
    length_penalty: float | None = option(
        "Exponent of the length by which beam search divides log-probabilities; more is longer.",
        number(),
        FLAG,
        CONFIG,
    )
    length_penalty_type: str | None = option(
        "How the length penalty divides: by a power of the length, or as Wu et al. (2016).", _PENALTY, CONFIG
    )
    early_stopping: bool | str | None = option("When beam search stops, as in a generation config.", _STOPPING, CONFIG)
    num_beam_groups: int | None = option(
        "Groups of beams whose hypotheses differ; it divides --num_beams.", integer(1), FLAG, JSON, CONFIG
    )
    diversity_penalty: float | None = option(
        "With --num_beam_groups: subtracted from a token's score for each earlier beam with it.",
        number(0),
        FLAG,
        JSON,
        CONFIG,
    )
    coverage_penalty: float | None = option(
        "Weight of the penalty for translations that attend too little to some source token.",
        number(0),
        FLAG,
        JSON,
        CONFIG,
    )
    no_repeat_ngram_size: int | None = option(
        "Length of token sequences that a translation must not have twice; 0 allows all.",
        integer(0),
        FLAG,
        JSON,
        CONFIG,
    )
    eos_token_id: int | Sequence[int] | None = option("Tokens that end a translation.", None, CONFIG)
    decoder_start_token_id: int | None = option("The token before each translation.", None, CONFIG)
    forced_bos_token_id: int | None = option("The token with which each translation begins.", None, CONFIG)
    # Sampling
    do_sample: bool = option("Sample, by default with one beam.", BOOLEAN, FLAG, JSON, CONFIG, default=False)
    temperature: float | None = option("Divisor of the logits in sampling.", _FILTER, FLAG, JSON, CONFIG)
    top_k: int | None = option(
        "Sample from so many most likely tokens; by default 50, and 0 means all.", _COUNT_FILTER, FLAG, JSON, CONFIG
    )
    top_p: float | None = option("Sample from the tokens with so much probability.", _FILTER, FLAG, JSON, CONFIG)
    epsilon_cutoff: float | None = option("Sample tokens of at least this probability.", _FILTER, FLAG, JSON, CONFIG)
    seed: Any = option("Seed from which each sentence gets one that does not depend on its batch.", _SEED, FLAG, JSON)
    # What each text has for itself: one value for all texts, or one for each
    target_prefix: Any = option("Text with which each translation begins.", _PREFIXES, FLAG, JSON)
    prefix_bias: float | None = option(
        "Prefer the prefix instead of forcing it: the weight of its next token, from 0 to 1.",
        _SHARE,
        FLAG,
        JSON,
        CONFIG,
    )
    alternatives: int | None = option(
        "Print a translation for each of so many most likely tokens after the prefix.", integer(1), FLAG, JSON
    )
    constraints: Any = option(
        "Words or phrases that each translation must contain, each in quotation marks if it has spaces. "
        "'Hund*' allows further letters.",
        _PHRASES,
        FLAG,
        JSON,
        flag_name="constraint",
        action="extend",
        nargs="+",
    )
    force_words_ids: Any = option("Phrases as token ids that each translation must contain.")
    # Terms
    glossary: Any = option(
        "Terms and their translations: a line with a term, a tab and its translation each, or TBX (.tbx).",
        None,
        FLAG,
        JSON,
        schema={"type": "object", "additionalProperties": _STRING},
    )
    term_mode: str | None = option(
        "soft: translations are written beside their terms, for models trained with `augment: "
        "{inline_terms: …}`. exact: beam search must use them. hard: likewise, but a model trained for it may "
        "inflect them. Default: soft if the model was trained for it, and otherwise exact.",
        one_of(*TERM_MODES),
        FLAG,
        JSON,
    )
    # The choice among candidates
    mbr: str | None = option(
        "Choose from samples, or from the n-best list of --num_beams, by expected chrf or bleu.",
        one_of(*UTILITIES),
        FLAG,
        JSON,
    )
    mbr_samples: int | None = option(f"Samples to choose from; by default {MBR_SAMPLES}.", integer(2), FLAG, JSON)
    rerank_reverse_weight: float | None = option(
        "With --rerank_reverse: factor of its log-probability; by default 0.5.", number(0), FLAG, JSON
    )
    rerank_length_weight: float | None = option(
        "With --rerank_reverse: what each token adds to the score; by default 0.5.", number(), FLAG, JSON
    )
    # Languages and sentences
    src_lang: str | None = option("Code of the language of the text, if the model has several.", _CODE, JSON)
    tgt_lang: str | None = option("Code of the language of the translations, if the model has several.", _CODE, JSON)
    protect: bool | str = option(
        "Keep URLs, e-mail addresses, placeholders such as {name} or %s, emoji, long numbers and so on as they are; "
        f"or kinds by their names, with commas between: {', '.join(PATTERNS)}; {DEFAULT} is all of them.",
        _PROTECTION,
        FLAG,
        JSON,
        default=False,
        door_default=True,
        is_value=_is_protection,
        metavar="NAMES",
    )
    split_sentences: bool | None = option(
        "Translate each sentence of a line by itself, and keep the white space between them.", BOOLEAN, FLAG, JSON
    )
    sentence_splitter: Any = option(
        "How lines are split: a function, abbreviations, simple, or module:function.", _SPLITTER
    )
    source_language: str | None = option(
        "Code of the language of the text, whose abbreviations end no sentence; by default `src_lang` or en."
    )
    # What answers have besides the translation
    return_scores: bool = option("Return the score and the log-probability.", BOOLEAN, JSON, default=False)
    return_tokens: bool = option("Return the tokens with their log-probabilities.", BOOLEAN, JSON, default=False)
    return_alignments: bool = option("Return links between characters of the text.", BOOLEAN, JSON, default=False)
    return_confidence: bool = option("Return the expected chrF, from 0 to 1.", BOOLEAN, JSON, default=False)
    return_warnings: bool = option("Return the signs of a bad translation.", BOOLEAN, JSON, default=False)
    progress: Callable[[int, int], object] | None = option(
        "Called with the numbers of sentences that are done and of all sentences."
    )
    batch_size: int = 32
    library: Mapping[str, Any] = field(default_factory=dict)
    generate_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, declared in declared_options().items():
            declared.check(getattr(self, name))
        for name, extension in EXTENSION_OF.items():
            if getattr(self, name) is not None:
                require(extension, f"`{name}`")
        if self.mbr is None and self.mbr_samples is not None:
            raise OptionError(f"`mbr_samples` needs `mbr`, one of {', '.join(map(repr, UTILITIES))}.")
        if self.glossary is None and self.term_mode is not None:
            raise OptionError(f"`term_mode` must be given with a `glossary`, got {self.term_mode!r} without one.")
        if self.glossary is not None:
            object.__setattr__(self, "glossary", load("terms", GLOSSARY)(self.glossary))
        if self.alternatives is not None:
            self._check_alternatives()
        if self.do_sample and self.top_k is None:
            object.__setattr__(self, "top_k", _USUAL_TOP_K)

    def _check_alternatives(self) -> None:
        given = {**self.generate_kwargs, "mbr": self.mbr, "seed": self.seed}
        for name in ("num_return_sequences", "do_sample", "mbr", "seed"):
            if given.get(name) is not None and given[name] is not False:
                raise OptionError(f"`alternatives` are completed by one search each. Leave `{name}` out.")

    # --- Resolution ---

    @classmethod
    def resolve(cls, call: Level, defaults: Level | None = None, model_config: Any = None) -> "TranslationOptions":
        """
        Return the options of a request, of four levels: the call, the constructor, and two generation configs.

        The first level that gives an option decides about it; None counts as not given. A generation config in the
        call replaces the constructor's options.

        Args:
            call: Keyword arguments of the call; `generation_config` may be among them.
            defaults: Keyword arguments of the constructor, likewise.
            model_config: The generation config of the model.

        Raises:
            OptionError: A value is out of range, or two options do not fit each other.
        """
        known = {*declared_options(), "generation_config"}
        call = {name: value for name, value in call.items() if value is not None or name not in known}
        if "generation_config" not in call:
            call = {**(defaults or {}), **call}
        config = call.pop("generation_config", None)
        levels = [call, *(vars(each) if each is not None else {} for each in (config, model_config))]
        options = cls.from_levels(levels)
        if options.do_sample or options.mbr is not None:
            check_filters({name: getattr(options, name) for name in FILTERS})
        if config is None:
            return options
        return dataclasses.replace(options, generate_kwargs={**options.generate_kwargs, "generation_config": config})

    @classmethod
    def from_levels(cls, levels: Sequence[Level]) -> "TranslationOptions":
        """Return the options of a request or of a call of `generate()`, given the options of each level.

        Args:
            levels: Keyword arguments of the call, options of its generation config, and of the model's.

        Raises:
            OptionError: See [`resolve`].
        """
        from vanilla_transformer.generation_vanilla_transformer import closest, closest_margin  # which imports torch

        known = declared_options()
        values = {name: closest(levels if known[name].in_config else levels[:1], name) for name in known}
        values |= {"max_new_tokens_beyond_source": (margin := closest_margin(levels))}
        if margin is not None:
            values["max_new_tokens"] = None
        if values["decoder_start_token_id"] is None:
            values["decoder_start_token_id"] = closest(levels, "bos_token_id")
        given = {name: value for name, value in values.items() if value is not None}
        kwargs = {
            name: value
            for name, value in levels[0].items()
            if name not in known or (value is not None and known[name].in_config)
        }
        return cls(**given, library=_library_options(levels, known), generate_kwargs=kwargs)

    def override(self, **values: Any) -> "TranslationOptions":
        """Return these options with other values, as if the call had given them."""
        known = declared_options()
        kwargs = {name: value for name, value in values.items() if known[name].in_config}
        return dataclasses.replace(self, **values, generate_kwargs={**self.generate_kwargs, **kwargs})

    def with_beams(self) -> "TranslationOptions":
        """Return these options for a beam search that needs several beams."""
        return self.override(num_beams=several_beams(self.num_beams, self.count))

    def without_columns(self) -> "TranslationOptions":
        """Return these options for another process, which gets sentences with their own seeds and phrases."""
        marks: dict[str, Any] = {"target_prefix": "", "constraints": (), "force_words_ids": (), "seed": 0}
        given = {name: mark for name, mark in marks.items() if getattr(self, name) is not None}
        return dataclasses.replace(self, **given, sentence_splitter=None, progress=None)

    def is_given(self, name: str) -> bool:
        """Return whether the call or the constructor gives an option that generation configs have, too."""
        return self.generate_kwargs.get(name) is not None

    # --- What follows from several options ---

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

    def asks_for(self, name: str) -> bool:
        """Return whether an option is given in the call, or changes the search."""
        neutral = (None, 0, 1) if name == "num_beam_groups" else (None, 0)
        return self.is_given(name) or getattr(self, name) not in neutral

    @property
    def search(self) -> str | None:
        """The first option of a search that `generate()` does not have, or None."""
        return next((name for name in ENGINE_ONLY if self.asks_for(name)), None)


RETURNED = ("return_scores", "return_tokens", "return_alignments", "return_confidence", "return_warnings")
LEAST_BEAMS = 4  # of searches that need several; the paper's
ENGINE_ONLY = ("num_beam_groups", "diversity_penalty", "coverage_penalty", "prefix_bias")
FILTERS = ("temperature", "top_k", "top_p", "epsilon_cutoff")  # of sampling
TERMS = ("glossary", "term_mode")
RERANKING = ("rerank_reverse_weight", "rerank_length_weight")
# The extension whose steps around the search an option asks for, from the inner steps to the outer ones.
EXTENSION_OF = {"glossary": "terms", **dict.fromkeys(("mbr", *RERANKING), "reranking")}


def several_beams(*wanted: int | None) -> int:
    """Return the beam size of a search that needs several beams: the largest wanted one, or the paper's."""
    return max(LEAST_BEAMS, *(beams or 1 for beams in wanted))


def choose_beams(options: Level, usual: int | None, reranks: bool = False) -> dict[str, Any]:
    """Return keyword arguments of a call with the beam size that they need, for callers who do not choose one.

    Args:
        usual: The beam size of the checkpoint.
        reranks: Whether a model reranks the n-best list of each sentence.
    """
    if options.get("do_sample"):
        return {**options, "num_beams": 1}
    has_hard_terms = "glossary" in options and options.get("term_mode") != SOFT
    needs_beams = has_hard_terms or reranks or "constraints" in options or "num_beam_groups" in options
    if "num_return_sequences" in options or ("mbr" not in options and needs_beams):
        count = options.get("num_return_sequences", options.get("alternatives"))
        return {**options, "num_beams": several_beams(count, usual)}
    return dict(options)


@cache
def declared_options() -> dict[str, Option]:
    """Return the declarations of all options by their names, in order."""
    found = {each.name: each.metadata.get("option") for each in dataclasses.fields(TranslationOptions)}
    return {
        name: Option(**declared | {"name": name, "flag_name": declared["flag_name"] or name})
        for name, declared in found.items()
        if declared is not None
    }


def options_of_pipeline() -> list[str]:
    """Return the names of the options that the pipeline follows and `generate()` does not."""
    return [each.name for each in declared_options().values() if not each.in_config]


# --- Levels ---------------------------------------------------------------------------------------------------------

# Options of a generation config that change no search, besides those that are declared.
_WITHOUT_EFFECT = {"pad_token_id", "bos_token_id", "disable_compile", "transformers_version"}
_WITHOUT_EFFECT |= {"num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"}
_WITHOUT_EFFECT |= {"assistant_lookbehind", "target_lookbehind"}
_OTHER_FILTERS = {"min_p", "top_h", "typical_p", "eta_cutoff"}  # which only sampling uses
# Values that ask for nothing, besides None, False and 0.
_NEUTRAL = {
    "cache_implementation": "dynamic",
    "encoder_repetition_penalty": 1,
    "guidance_scale": 1,
    "repetition_penalty": 1,
    "typical_p": 1,
}


def _library_options(levels: Sequence[Level], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return the options that only the library's own loop follows, by name."""
    from vanilla_transformer.generation_vanilla_transformer import closest  # which imports torch

    ignored = _WITHOUT_EFFECT if closest(levels, "do_sample") else _WITHOUT_EFFECT | _OTHER_FILTERS
    found = {}
    for name in dict.fromkeys(name for level in levels for name in level):
        if name in known or name in ignored or name.startswith("_"):
            continue
        value = closest(levels, name)
        is_unknown = not any(name in level for level in levels[1:])  # even if it is None: it may be misspelled
        if is_unknown or (value is False if name == "use_cache" else not _is_neutral(name, value)):
            found[name] = value
    return found


def _is_neutral(name: str, value: Any) -> bool:
    if value is None or value is False:
        return True
    return type(value) in (int, float, str) and value == _NEUTRAL.get(name, 0)


# --- Doors ----------------------------------------------------------------------------------------------------------


def check_option(name: str, value: Any) -> Any:
    """Return a value of an option, given through any door.

    Raises:
        OptionError: It is out of range.
    """
    return declared_options()[name].check(value)


def check_filters(values: Level) -> None:
    """Check the filters of sampling, whose ranges are the library's.

    Raises:
        OptionError: One is out of range.
    """
    from .engine.sampling import SamplingOptions  # which imports torch

    try:
        SamplingOptions.from_options(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise OptionError(str(error)) from error


def flags_of(*names: str, without: Sequence[str] = (), title: str = "Flags of a request.") -> Any:
    """
    Return a dataclass with the flags of some options, to inherit from; all of its fields have defaults.

        >>> SearchFlags: Any = flags_of("num_beams", "do_sample")
        >>> @dataclass
        ... class SearchArguments(SearchFlags):
        ...     "Flags of the search."

    Args:
        names: Names of options; by default all that are flags.
        without: Options whose flags are left out.
        title: Docstring of the class, under which `--help` lists the flags.
    """
    options = [each for each in _with(flag=True) if each.name in (names or declared_options())]
    flags = [_flag(each) for each in options if each.name not in without]
    return dataclasses.make_dataclass("Flags", flags, namespace={"__doc__": title})


def given_flags(arguments: Any, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that flags give.

    Args:
        arguments: An object whose class inherits from [`flags_of`].
        names: Names of options; by default all whose flag the object has.
    """
    found = {}
    for each in _with(flag=True):
        value = getattr(arguments, each.flag_name, None)
        if (not names or each.name in names) and value is not None and value is not False:
            found[each.name] = value
    return found


def json_options() -> list[str]:
    """Return the names of the options that the body of an HTTP request may have."""
    return [each.name for each in _with(json=True)]


def request_model(name: str = "TranslationBody", **further: Any) -> Any:
    """
    Return a pydantic model with the options that the body of an HTTP request may have.

    It refuses unknown entries. A wrong value has the same message as everywhere, from [`check_option`].

    Args:
        further: Other entries of the body, as pydantic's `create_model` takes them.

    Raises:
        ImportError: pydantic is not installed; FastAPI brings it.
    """
    from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, create_model

    entries = dict(further)
    for each in _with(json=True):
        checked = Annotated[Any, AfterValidator(each.check), WithJsonSchema(dict(each.schema))]
        about = re.sub(r"--(\w+)", r"`\1`", each.help)  # which names other options as flags
        entries[each.name] = checked, Field(each.door_default, description=about)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **entries)


def _with(flag: bool = False, json: bool = False) -> list[Option]:
    """Return the options that are flags, or entries of a JSON body."""
    return [each for each in declared_options().values() if (flag and each.flag) or (json and each.json)]


def _flag(each: Option) -> tuple[str, Any, Any]:
    """Return the name, the type and the field of a flag, whose metadata are keyword arguments of the parser.

    A value of another type stays text, of which [`check_option`] says what it must be.
    """
    kind = bool if each.kind is bool else each.kind | None
    default = bool(each.door_default) if each.kind is bool else each.door_default
    keywords = {"help": each.help, "keeps_text": True, **each.flag_keywords}
    return each.flag_name, kind, field(default=default, metadata=keywords)


__all__ = ["ENGINE_ONLY", "FILTERS", "RETURNED", "TERMS", "TERM_MODES", "UTILITIES", "Option", "OptionError", "Rule"]
__all__ += ["TranslationOptions", "check_filters", "check_option", "declared_options", "flags_of", "given_flags"]
__all__ += ["json_options", "option", "request_model"]
