"""Flags that several commands share, and how a command parses and checks its flags.

The options of a request are declared in `decoding.options`; here they become flags, with the files that give some.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import Field, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from vanilla_transformer.decoding.options import FLAG, TERMS, TranslationOptions, options_of
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.parser import Parser
from vanilla_transformer.utils.file_utils import check_outputs, refuse_existing_files
from vanilla_transformer.utils.import_utils import collection_paused, freeze_modules
from vanilla_transformer.utils.input_files import check_pipes, read_input
from vanilla_transformer.utils.user_input import check_numbers

if TYPE_CHECKING:
    from vanilla_transformer import TranslationPipeline

Arguments = TypeVar("Arguments")
# Flags that name files: those that a command writes (but some `json` are switches), and those that it reads.
OUTPUTS = ("output", "output_file", "json", "report")
INPUTS = ["input", "source", "target", "hypotheses", "compare_with", "alignments", "gold_alignments", "text", "recipe"]
INPUTS += ["glossary", "target_prefixes", "sentences", "ensemble", "rerank_reverse", "rerank_quality"]
INPUTS += ["facts", "template", "token_file", "api_key_file"]
MODEL = {"MODEL": "Folder of a model, or its name on the Hugging Face Hub."}
PRECISION_HELP = (
    "float32 (exact), bfloat16 (faster where the processor multiplies it), int8 (by torchao), or auto (bfloat16 where "
    "the device multiplies it, otherwise float32); by default the checkpoint's."
)
WORKERS_HELP = "Processes that divide the cores among them, for long texts on machines with many cores."


def parse(
    arguments_class: type[Arguments],
    words: Sequence[str],
    usage: str,
    arguments: Mapping[str, str] | None = None,
    main: Sequence[str] = (),
    program: str = "vanilla-transformer ",
) -> tuple[list[str], Arguments]:
    """Return the arguments of a command, and its flags, parsed as `arguments_class`.

    Args:
        usage: Usage of the command, which follows the `program` in the help.
        arguments: Explanations of the arguments, by name.
        main: Names of the flags that `--help` shows; by default all.
    """
    flags: Any = arguments_class
    outputs = [each.name for each in fields(flags) if each.name in OUTPUTS and _names_a_file(each)]
    classes = [arguments_class, *([OverwriteArguments] if outputs else [])]
    parser = Parser(classes, f"{program}{usage}", arguments, main)
    values, found = parser.read(words)
    parsed, *others = parser.build(values)
    check_numbers(vars(parsed))
    written = [getattr(parsed, name) for name in outputs if getattr(parsed, name) is not None]
    has_sentences = "SENTENCE" in (arguments or ())
    inputs = _inputs(parsed, found[:1] if has_sentences else found)
    if hasattr(parsed, "input") and parsed.input is None and not (has_sentences and found[1:]):
        inputs.append(0)  # standard input
    check_pipes(inputs)
    check_outputs(written, inputs)
    if others and not others[0].overwrite:
        refuse_existing_files(written)
    elif others and not written:
        raise UserError(f"--overwrite replaces the file of --{outputs[0]}, got it without one. Leave it out.")
    vars(parsed)["given"] = frozenset(values)
    register_models()
    set_threads(getattr(parsed, "threads", None))
    return found, parsed


def given_flags(options: Any) -> frozenset[str]:
    """Return the names of the flags that a command line gives; others have their defaults."""
    return vars(options).get("given", frozenset())


def _names_a_file(flag: Field) -> bool:
    return flag.type is not bool and not flag.metadata.get("is_folder")


def _inputs(options: Any, words: Sequence[str]) -> list[str | Path | int]:
    """Return the files that a command reads, of which `words` are some."""
    given = {each.name: getattr(options, each.name) for each in fields(options) if _names_a_file(each)}
    inputs = [given[name] for name in INPUTS if given.get(name) is not None]
    found = [*words, *(name for each in inputs for name in (each if isinstance(each, list) else [each]))]
    if given.get("text") is not None:  # which begins the names of files
        found += Path(given["text"]).parent.glob(f"{Path(given['text']).name}.*")
    return found


def register_models() -> None:
    """Import torch and transformers, and register the models, which a command needs once its flags are right."""
    with collection_paused():
        from vanilla_transformer import registration  # noqa: F401
    freeze_modules()


def set_threads(threads: int | None) -> None:
    """Compute in so many threads, or leave their number as it is."""
    if threads is not None:
        import torch

        from vanilla_transformer.utils.device_utils import check_threads

        torch.set_num_threads(check_threads(threads))


def check_workers(workers: int) -> int:
    """Return a number of worker processes."""
    if workers != 1:
        from vanilla_transformer.extensions.scale_out import engine_workers

        engine_workers.check_workers(workers)
    return workers


def require_one_model(words: Sequence[str]) -> str:
    """Return the model that `words` names."""
    if len(words) != 1:
        raise UserError(f"Name one model (its folder or Hub name), got {len(words)} names.")
    return words[0]


def require_no_words(words: Sequence[str]) -> None:
    """Check that a command without positional arguments got none."""
    if words:
        raise UserError(f"This command takes flags only, got {words[0]!r}.")


def refuse_file_names(what: str, texts: Sequence[str | None], hint: str) -> None:
    """Check that texts are not the names of files, whose content somebody means.

    Args:
        what: The subject of the message.
        hint: What to do instead, with `{}` for the name.
    """
    for text in texts:
        if text and (os.path.isfile(text) or (os.sep in text and os.path.exists(text))):
            kind = "folder" if os.path.isdir(text) else "file"
            raise UserError(f"{what} must be text, got the name of a {kind}: {text}. {hint.format(text)}")


def read_keys(path: str) -> list[str]:
    """Read secret keys from a file, one per line; blank lines are skipped. Other users could see flags in `ps`."""
    try:
        lines = [line.strip() for line in read_input(path).decode().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be a text file with one key per line, but it is not UTF-8.") from error
    if not lines:
        raise UserError(f"{path} must hold a key, but it is empty.")
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:  # the message must not show a key
            raise UserError(f"{path} must have one key per line without white space, but key {number} contains some.")
    return lines


_NAMING = {"html", "xml", "xliff"}  # formats of documents that name their language
DEFAULT_LANGUAGE = "en"  # of abbreviations and of terms in TBX


@dataclass
class LanguageArguments:
    """Flags of the languages."""

    source_language: str | None = field(
        default=None,
        metadata={
            "help": "Code of the language of the text, such as en: for models that translate from several, for its "
            "abbreviations, for terms in TBX (default: en), and for text of HTML and XML in other languages."
        },
    )
    target_language: str | None = field(
        default=None,
        metadata={
            "help": "Code of the language of the translations, such as de: for models that translate into several, "
            "for terms in TBX, and for the language that HTML, XML and XLIFF name."
        },
    )


def language_settings(tokenizer: Any, options: Any) -> dict[str, str]:
    """Return the keyword arguments of the pipeline that the languages of a text give.

    Args:
        options: Flags, of which `source_language` and `target_language` are read, and `glossary` and `format` if they
            are there.
    """
    from vanilla_transformer.decoding.options import check_languages
    from vanilla_transformer.text.languages import Direction, find_languages

    if find_languages(tokenizer) is None:
        is_named = getattr(options, "glossary", None) is not None or getattr(options, "format", None) in _NAMING
        if options.target_language is not None and not is_named:
            rule = "is for models that translate into several languages, for `--glossary FILE` and for `--format`"
            raise UserError(f"`target_language` {rule} html, xml or xliff, got none of them. Leave it out.")
        return {}
    check_languages(tokenizer, Direction(options.source_language, options.target_language))
    given = {"src_lang": options.source_language, "tgt_lang": options.target_language}
    return {name: value for name, value in given.items() if value is not None}


@dataclass
class EnsembleArguments:
    """Flags of an ensemble."""

    ensemble: list[str] | None = field(
        default=None,
        metadata={"help": "Further models with the same vocabulary: probabilities are the mean of all models'."},
    )
    ensemble_weights: list[float] | None = field(
        default=None, metadata={"help": "With --ensemble: a positive number for each model, the first one included."}
    )


@dataclass
class FurtherModelArguments(EnsembleArguments):
    """Flags of reranking, and of text that the tokenizer of an older model does not normalize."""

    rerank_reverse: str | None = field(
        default=None,
        metadata={"help": "Model of the other direction, by which the n-best list of --num_beams is reranked."},
    )
    rerank_quality: str | None = field(
        default=None,
        metadata={
            "help": "COMET model that scores without references, such as Unbabel/wmt22-cometkiwi-da, by which the "
            "n-best list of --num_beams is reranked."
        },
    )
    normalize: bool = field(
        default=False,
        metadata={
            "help": "Normalize white space, invisible characters and accents of the text as the tokenizers of new "
            "models do, for a model whose tokenizer does not."
        },
    )


def further_models(options: FurtherModelArguments) -> dict[str, Any]:
    """Return the arguments of the pipeline that the flags give."""
    given = {each.name: getattr(options, each.name) for each in fields(FurtherModelArguments)}
    return {name: value for name, value in given.items() if value not in (None, False)}


def model_names(first: str, options: FurtherModelArguments) -> list[str]:
    """Return the names of all models that decide about translations."""
    return [first, *(options.ensemble or []), *filter(None, [options.rerank_reverse, options.rerank_quality])]


@dataclass
class OverwriteArguments:
    """Flags of files. [`parse`] adds them to each command that writes one."""

    overwrite: bool = field(default=False, metadata={"help": "Replace a file that exists."})


@dataclass
class ThreadArguments:
    """Flags of the processor. [`parse`] heeds them."""

    threads: int | None = field(
        default=None,
        metadata={
            "help": "Threads that compute, in each worker at most, with PyTorch, ONNX Runtime and CTranslate2; by "
            "default one per core."
        },
    )


@dataclass
class ModelArguments(FurtherModelArguments, ThreadArguments):
    """Flags of the model."""

    backend: str | None = field(
        default=None,
        metadata={"help": "ctranslate2 or onnx for a model converted to it; by default what its folder was made for."},
    )
    device: str | None = field(
        default=None, metadata={"help": "cpu, cuda, cuda:1, …; by default the first accelerator, or the CPU."}
    )
    dtype: str | None = field(
        default=None,
        metadata={"help": "Type of the weights: float32, float16 or bfloat16; by default as saved."},
    )
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    workers: int = field(default=1, metadata={"help": WORKERS_HELP})


@dataclass
class RayArguments:
    """Flags of a Ray cluster."""

    engine: str | None = field(
        default=None, metadata={"help": "`ray` to work on all machines of a Ray cluster; by default this process."}
    )
    ray_workers: int | None = field(
        default=None,
        metadata={"help": "With `--engine ray`: processes with a model each; by default one per GPU or thread."},
    )
    ray_threads: int = field(default=1, metadata={"help": "With `--engine ray`: threads of each process."})


def check_engine(options: Any) -> None:
    """Check the flags of the cluster, and that no launcher has started several processes."""
    if (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        rule = "This command must be started once, since processes of a launcher divide no lines any more"
        raise UserError(f"{rule}, got {processes}. Use --engine ray for several GPUs or machines.")
    if options.engine not in (None, "ray"):
        raise UserError(f"`engine` must be 'ray' or left out, got {options.engine!r}.")
    if options.engine is None and given_flags(options) & {"ray_workers", "ray_threads"}:
        raise UserError("--ray_workers and --ray_threads are for a cluster. Add --engine ray or leave them out.")
    for name in ("ray_workers", "ray_threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"`{name}` must be 1 or more, got {value}.")
    if options.engine == "ray" and options.threads is not None:
        raise UserError("--threads is for this process. Give --ray_threads with --engine ray.")
    if options.engine == "ray" and options.output is None:
        raise UserError("--engine ray writes a file, of which finished parts are kept. Give its --output.")


# Options of what `translate` alone has: its lines, and several translations of each.
_SENTENCES = ("num_return_sequences", "target_prefix", "alternatives", "constraints")
# Flags that are not for documents.
_NOT_OF_DOCUMENTS = (
    "target_prefix",
    "target_prefixes",
    "alternatives",
    "constraint",
    "tab_constraints",
)


FLAG_NAMES = {"constraints": "constraint"}  # of options whose flags have another name
# What the types of options do not say about their flags.
_KEYWORDS: dict[str, dict[str, Any]] = {
    "constraints": {"action": "extend", "nargs": "+"},
}


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
    chosen = [name for name in options_of(FLAG) if name in (names or options_of()) and name not in without]
    return make_dataclass("Flags", map(_flag, chosen), namespace={"__doc__": title})


def _flag(name: str) -> tuple[str, Any, Any]:
    """Return the name, the type and the field of the flag of an option, whose checks refuse text of no such type."""
    declared = options_of()[name]
    kinds = get_args(declared.annotation) or (declared.annotation,)
    kind: Any = next((each for each in (bool, int, float) if each in kinds), str)
    keywords = {"help": declared.description, "keeps_text": True, **_KEYWORDS.get(name, {})}
    kind, default = (bool, bool(declared.default)) if kind is bool else (kind | None, declared.default)
    return FLAG_NAMES.get(name, name), kind, field(default=default, metadata=keywords)


_TEXTS = ("split_sentences", "protect")
_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "epsilon_cutoff", "seed")
_CHOICE = ("mbr", "mbr_samples", "rerank_reverse_weight", "rerank_length_weight")

_TermFlags: Any = flags_of(*TERMS, title="Flags of a glossary.")
_SentenceFlags: Any = flags_of(*_SENTENCES, title="Flags of single sentences.")
_TextFlags: Any = flags_of(*_TEXTS, title="Flags of the text.")
_SamplingFlags: Any = flags_of(*_SAMPLING, title="Flags of sampling.")
_ChoiceFlags: Any = flags_of(*_CHOICE, title="Flags of the choice among candidates.")
_SearchFlags: Any = flags_of(
    without=(*TERMS, *_SENTENCES, *_TEXTS, *_SAMPLING, *_CHOICE),
    title="Flags of the search. The checkpoint has the defaults.",
)


@dataclass
class SearchArguments(_TextFlags, _ChoiceFlags, _SamplingFlags, _SearchFlags):
    """Flags of the search. By default the checkpoint's generation config decides, which is the paper's decoding."""

    sentence_splitter: str = field(
        default="abbreviations",
        metadata={
            "help": "How documents and, with --split_sentences, lines of text are split: abbreviations (sentencex), "
            "simple (after each period), or your own function, such as my_module:split."
        },
    )

    @property
    def samples(self) -> bool:
        """Whether random numbers decide about the translations."""
        return self.do_sample or self.mbr is not None


@dataclass
class TermArguments(LanguageArguments, _TermFlags):
    """Flags of a glossary."""

    glossary_casefold: bool = field(
        default=False, metadata={"help": "Find terms with capitals in any case, too, as the ones without."}
    )


@dataclass
class TranslationArguments(ModelArguments, SearchArguments, TermArguments):
    """Flags of each command that translates: with the same ones, all translate a text alike."""


@dataclass
class SentenceArguments(_SentenceFlags):
    """Flags of single sentences."""

    target_prefixes: str | None = field(
        default=None, metadata={"help": "File with the prefix of each sentence, line by line; blank for none."}
    )
    tab_constraints: bool = field(
        default=False, metadata={"help": "Each line has its own constraints after the sentence, separated by tabs."}
    )


def request_settings(options: Any) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that flags give, after reading the glossary.

    Args:
        options: Flags of any class of this module, or of several.
    """
    settings = {}
    for name, declared in options_of(FLAG).items():
        value = getattr(options, FLAG_NAMES.get(name, name), None)
        if value is not None and (value is not False or declared.default):
            settings[name] = value
    if options.do_sample:
        settings = {"num_beams": 1, **settings}
    elif options.mbr is None and (idle := given_flags(options) & {*_SAMPLING} - {"do_sample"}):
        raise UserError(f"--{min(idle)} is for --do_sample and --mbr, got neither. Leave it out.")
    if options.split_sentences:
        settings["sentence_splitter"] = options.sentence_splitter
        settings["source_language"] = options.source_language or DEFAULT_LANGUAGE
    if "glossary" in settings:
        settings["glossary"] = _read_glossary(options)
    elif getattr(options, "glossary_casefold", False):
        raise UserError("`glossary_casefold` must be given with `--glossary FILE`, got it without.")
    TranslationOptions.resolve(settings)  # checks them before the model is loaded
    return settings


def open_model(name: str, options: TranslationArguments) -> AbstractContextManager["TranslationPipeline"]:
    """Return a context of the pipeline by which a command translates: the flags are the defaults of its calls."""
    settings, workers = request_settings(options), check_workers(options.workers)
    from vanilla_transformer.decoding.loading import open_pipeline
    from vanilla_transformer.utils.device_utils import process_state

    device = options.device
    if device is None and (state := process_state()).num_processes > 1:  # of a launcher, each with its own device
        device = "cpu" if state.device.type == "cpu" else str(state.device)
    loading = {"backend": options.backend, "device": device, "dtype": options.dtype, **further_models(options)}

    @contextmanager
    def opened() -> Iterator["TranslationPipeline"]:
        with open_pipeline(name, workers, options.precision, **loading) as translate:
            translate.default_options |= settings | language_settings(translate.tokenizer, options)
            yield translate

    return opened()


# Flags that change no translation, and flags of models and files, which count by their content.
_NOT_OF_TRANSLATIONS = {"input", "output", "resume", "quiet", "batch_size", "device", "threads", "workers", "engine"}
_NOT_OF_TRANSLATIONS |= {"ray_workers", "ray_threads", "tag", "keep_warnings", "ensemble", "rerank_reverse"}
_NOT_OF_TRANSLATIONS |= {"rerank_quality", "glossary", "target_prefixes"}


def translation_origin(name: str, options: TranslationArguments) -> dict[str, Any]:
    """Return all that translations depend on besides their text: an interrupted command continues with the same."""
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.utils.file_utils import hash_file

    names = {each.name for each in fields(options)} - _NOT_OF_TRANSLATIONS
    chosen = {name: getattr(options, name) for name in sorted(names)}
    for each in ("glossary", "target_prefixes"):
        if getattr(options, each, None) is not None:
            chosen[each] = hash_file(Path(getattr(options, each)))
    return {"model": [*map(hash_model, model_names(name, options))], "options": chosen}


def check_sentences(options: SentenceArguments, format: str) -> None:
    """Check that flags of sentences are given for text, and each prefix once."""
    given = [name for name in _NOT_OF_DOCUMENTS if getattr(options, name)]
    if format != "text" and given:
        raise UserError(f"--{given[0]} is for sentences, but `--format` is {format}.")
    if options.target_prefix is not None and options.target_prefixes is not None:
        raise UserError("Give --target_prefix (for all sentences) or --target_prefixes (a file), not both.")


def split_constraints(options: SentenceArguments, lines: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the sentences of lines, and the keyword argument of the pipeline if lines have their own constraints."""
    if not options.tab_constraints:
        return list(lines), {}
    rows = [line.split("\t") for line in lines]
    shared = options.constraint or []
    return [row[0] for row in rows], {"constraints": [[*row[1:], *(shared if row[0].strip() else [])] for row in rows]}


def read_prefixes(options: SentenceArguments, total: int | None) -> list[str] | None:
    """Return the prefix of each sentence, or None if there is no file of them.

    Args:
        total: The number of sentences, if it is known.
    """
    if options.target_prefixes is None:
        return None
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(options.target_prefixes)
    if total is not None and len(lines) != total:
        found = f"{len(lines)} in {options.target_prefixes}"
        raise UserError(f"There must be a target prefix for each of {total} sentences, got {found}.")
    return lines


def _read_glossary(options: TermArguments) -> Any:
    from vanilla_transformer.extensions.terms.glossary import as_glossary

    languages = options.source_language or DEFAULT_LANGUAGE, options.target_language
    return as_glossary(options.glossary, *languages, options.glossary_casefold)
