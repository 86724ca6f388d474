"""Flags that several commands share, and how a command parses and checks its flags.

The options of a request are declared in `decoding.options`; here they become flags, with the files
that give some.
"""

import atexit
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, create_model, model_validator
from pydantic.fields import FieldInfo

from vanilla_transformer.decoding.options import FLAG, TranslationOptions, options_of
from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.formats import FORMATS
from vanilla_transformer.files.inputs import check_pipes, read_input
from vanilla_transformer.files.outputs import check_outputs
from vanilla_transformer.machine.imports import collection_paused, freeze_modules
from vanilla_transformer.user_input.command_line import CommandLine
from vanilla_transformer.user_input.schemas import (
    ARGUMENT,
    INPUT,
    OUTPUT,
    Input,
    Schema,
    is_argument,
    parts_of,
)
from vanilla_transformer.user_input.user_modules import use_user_module

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vanilla_transformer import TranslationPipeline
    from vanilla_transformer.decoding.corpus_shards import ShardWork, Work

Count = Annotated[int, Field(ge=1, le=100_000)]
# Flags of several commands that `--help` shows besides the flags of the command itself.
_MAIN = (
    *("source", "target", "num_beams", "target_language", "glossary", "precision"),
    *("max_score_drop", "max_lost", "max_time_ratio", "max_size_ratio", "changes"),
)
PRECISION_HELP = (
    "float32 (exact), bfloat16 (faster where the processor multiplies it), int8 (by torchao), or "
    "auto (bfloat16 where the device multiplies it, otherwise float32); by default the "
    "checkpoint's."
)
WORKERS_HELP = (
    "Processes that divide the cores among them, for long texts on machines with many cores."
)


class CommandArguments(Schema):
    """Flags of every command."""

    user_module: Input | None = Field(
        None, description="Import this file of Python first, which defines classes of models."
    )

    def further_inputs(self) -> list[str | Path | int]:
        """Return files that the command reads and no flag names; 0 is standard input."""
        return []


class OverwriteArguments(CommandArguments):
    """Flags of commands that write a file."""

    overwrite: bool = Field(False, description="Replace a file that exists.")


class ModelNameArguments(CommandArguments):
    """The argument of commands with a model."""

    model: Annotated[str, ARGUMENT, INPUT] = Field(
        description="Folder of a model, or its name on the Hugging Face Hub."
    )


class ParallelTextArguments(CommandArguments):
    """Flags of the text. Its files are aligned line by line."""

    source: Input = Field(description="Source text, one sentence per line.")
    target: Input = Field(description="Its translations, one per line.")


Arguments = TypeVar("Arguments", bound=CommandArguments)
Opened = TypeVar("Opened")


def parse(schema: type[Arguments], words: Sequence[str]) -> Arguments:
    """Return the arguments and flags of a command, once they and the files that they name are
    checked.

    The name of the class is that of the command: `WriteCorpusArguments` is for `write-corpus`.
    """
    class_name = schema.__name__.removesuffix("Arguments")
    name = re.sub("(?<!^)(?=[A-Z])", "-", class_name).lower()
    fields = schema.model_fields
    main: list[str] = []
    for key in inspect.get_annotations(schema):
        if key in fields:
            main.append(fields[key].alias or key)
    groups = group_fields(schema)
    line = CommandLine(groups, f"vanilla-transformer {name}", [*main, *_MAIN])
    options = schema(**line.read(words))
    files: dict[object, list[Any]] = {INPUT: [], OUTPUT: []}
    for field_name, field in fields.items():
        value = getattr(options, field_name)
        if value is None:
            continue
        names = value if isinstance(value, list) else [value]
        parts = [*parts_of(field)]
        for mark in files:
            if mark not in parts:
                continue
            if field_name in options.model_fields_set and "" in names:
                problem = "got '', perhaps from a variable of the shell that is not set"
                raise UserError(f"`{field_name}` must name a file or a folder, {problem}.")
            files[mark] += names
    inputs = [*files[INPUT], *options.further_inputs()]
    outputs = files[OUTPUT]
    check_pipes(inputs)
    check_outputs(outputs, inputs)
    if isinstance(options, OverwriteArguments):
        if options.overwrite and not outputs:
            raise UserError(
                "--overwrite replaces the file that a command writes, got no such file. Leave it "
                "out."
            )
        kept_outputs = [] if options.overwrite else outputs
        for path in map(Path, kept_outputs):
            # Devices, pipes and empty files are written to.
            if path.is_file() and path.stat().st_size:
                problem = f"{path} exists. Choose another, or replace it by --overwrite."
                raise UserFileError(f"The output must be a new file, but {problem}")
    if options.user_module is not None:
        use_user_module(options.user_module)
    register_models()
    set_threads(getattr(options, "threads", None))
    return options


def group_fields(schema: type[Schema]) -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of a schema by the first sentence about the class that declares them, its
    own ones first.
    """
    left = dict(schema.model_fields)
    arguments: dict[str, FieldInfo] = {}
    for name in schema.model_fields:
        if is_argument(left[name]):
            arguments[name] = left.pop(name)
    groups = {"arguments": arguments}
    for declaring in schema.__mro__:
        docstring = " ".join((declaring.__doc__ or "").split())
        title = docstring.partition(". ")[0].removesuffix(".")
        group = groups.setdefault(title, {})
        for name in inspect.get_annotations(declaring):
            if name in left:
                group[name] = left.pop(name)
    return groups


def register_models() -> None:
    """Import torch and transformers, and register the models, which a command needs once its flags
    are right.
    """
    with collection_paused():
        from vanilla_transformer import registration  # noqa: F401
    freeze_modules()


def set_threads(threads: int | None) -> None:
    """Compute in so many threads, or leave their number as it is."""
    if threads is not None:
        import torch

        from vanilla_transformer.machine.cores import check_threads

        torch.set_num_threads(check_threads(threads))


def check_workers(workers: int) -> int:
    """Return a number of worker processes."""
    if workers != 1:
        from vanilla_transformer.machine import cores

        cores.check_workers(workers)
    return workers


def refuse_file_names(what: str, texts: Sequence[str | None], hint: str) -> None:
    """Check that texts are not the names of files, whose content somebody means.

    Args:
        what: The subject of the message.
        hint: What to do instead, with `{}` for the name.
    """
    for text in texts:
        if text and (os.path.isfile(text) or (os.sep in text and os.path.exists(text))):
            kind = "folder" if os.path.isdir(text) else "file"
            advice = hint.format(text)
            raise UserError(f"{what} must be text, got the name of a {kind}: {text}. {advice}")


def read_keys(path: str) -> list[str]:
    """Read secret keys from a file, one per line; blank lines are skipped.

    Other users could see flags in `ps`.
    """
    try:
        text = read_input(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} must be a text file with one key per line, but it is not UTF-8."
        ) from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{path} must hold a key, but it is empty.")
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:  # the message must not show a key
            raise UserError(
                f"{path} must have one key per line without white space, but key {number} contains "
                "some."
            )
    return lines


# Formats of documents that name their language
_NAMING = [name for name, row in FORMATS.items() if row.names_languages]
DEFAULT_LANGUAGE = "en"  # of terms in TBX


class LanguageArguments(CommandArguments):
    """Flags of the languages."""

    source_language: str | None = Field(
        None,
        description="Code of the language of the text, such as en: for models that translate from "
        "several, for its abbreviations, for terms in TBX (default: en), and for text of HTML and "
        "XML in other languages.",
    )
    target_language: str | None = Field(
        None,
        description="Code of the language of the translations, such as de: for models that "
        "translate into several, for terms in TBX, and for the language that documents name "
        f"({', '.join(_NAMING)}).",
    )


def language_settings(tokenizer: "PreTrainedTokenizerBase", options: Any) -> dict[str, str]:
    """Return the keyword arguments of the pipeline that the languages of a text give.

    Args:
        options: Flags, of which `source_language` and `target_language` are read, and `glossary`
            and `source_format` if they are there.
    """
    from vanilla_transformer.decoding.options import check_languages
    from vanilla_transformer.text.languages import Direction, find_direction, find_languages

    if find_languages(tokenizer) is None:
        find_direction(tokenizer, options.source_language, options.target_language)  # or refuse
        is_known = find_direction(tokenizer).target is not None
        of_files = (getattr(options, name, None) for name in ("glossary", "memory"))
        is_named = any(of_files) or getattr(options, "source_format", None) in _NAMING
        if options.target_language is not None and not (is_named or is_known):
            reason = (
                "is for models that translate into several languages, for `--glossary FILE` "
                "and `--memory FILE`, and for `--format`"
            )
            names = ", ".join(sorted(_NAMING))
            raise UserError(f"`target_language` {reason} {names}, got none of them. Leave it out.")
        return {}
    direction = Direction(options.source_language, options.target_language)
    check_languages(tokenizer, direction)
    languages = {"src_lang": direction.source, "tgt_lang": direction.target}
    return {name: code for name, code in languages.items() if code is not None}


class EnsembleArguments(CommandArguments):
    """Flags of an ensemble."""

    ensemble: list[Input] | None = Field(
        None,
        description=(
            "Further models with the same vocabulary: probabilities are the mean of all models'."
        ),
    )
    ensemble_weights: list[float] | None = Field(
        None,
        description="With --ensemble: a positive number for each model, the first one included.",
    )


class FurtherModelArguments(EnsembleArguments):
    """Flags of reranking, and of text that the tokenizer of an older model does not normalize."""

    rerank_reverse: Input | None = Field(
        None,
        description=(
            "Model of the other direction, by which the n-best list of --num_beams is reranked."
        ),
    )
    rerank_quality: Input | None = Field(
        None,
        description="COMET model that scores without references, such as "
        "Unbabel/wmt22-cometkiwi-da, by which the n-best list of --num_beams is reranked.",
    )
    normalize: bool = Field(
        False,
        description="Normalize white space, invisible characters and accents of the text as the "
        "tokenizers of new models do, for a model whose tokenizer does not.",
    )


def further_models(options: FurtherModelArguments) -> dict[str, Any]:
    """Return the arguments of the pipeline that the flags give."""
    settings: dict[str, Any] = {}
    for name in FurtherModelArguments.model_fields:
        value = getattr(options, name)
        if name not in CommandArguments.model_fields and value not in (None, False):
            settings[name] = value
    return settings


def model_names(first: str, options: FurtherModelArguments) -> list[str]:
    """Return the names of all models that decide about translations."""
    ensemble = options.ensemble or []
    rerankers = [options.rerank_reverse, options.rerank_quality]
    return [first, *ensemble, *filter(None, rerankers)]


class ThreadArguments(CommandArguments):
    """Flags of the processor. [`parse`] heeds them."""

    threads: int | None = Field(
        None,
        description="Threads that compute, in each worker at most; by default one per core.",
    )


class ModelArguments(FurtherModelArguments, ThreadArguments):
    """Flags of the model."""

    device: str | None = Field(
        None, description="cpu, cuda, cuda:1, …; by default the first accelerator, or the CPU."
    )
    dtype: str | None = Field(
        None, description="Type of the weights: float32, float16 or bfloat16; by default as saved."
    )
    precision: str | None = Field(None, description=PRECISION_HELP)
    workers: int = Field(1, description=WORKERS_HELP)


def check_one_process(instead: str) -> None:
    """Refuse a command that a launcher started in several processes, and name what to use
    instead.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise UserError(
            "This command must be started once, since processes of a launcher divide no lines any "
            f"more, got {processes}. Use {instead}."
        )


class ClusterArguments(Schema):
    """Flags of a Ray cluster."""

    engine: Literal["ray"] | None = Field(
        None, description="`ray` to work on all machines of a Ray cluster; by default this process."
    )
    ray_workers: Count | None = Field(
        None,
        description=(
            "With `--engine ray`: processes with a model each; by default one per GPU or thread."
        ),
    )
    ray_threads: Count = Field(1, description="With `--engine ray`: threads of each process.")

    @model_validator(mode="after")
    def _check_workers(self) -> "ClusterArguments":
        cluster_flags = {"ray_workers", "ray_threads"}
        if self.engine is None and self.model_fields_set & cluster_flags:
            raise UserError(
                "--ray_workers and --ray_threads are for a cluster. Add --engine ray or leave them "
                "out."
            )
        return self


class RayArguments(CommandArguments, ClusterArguments):
    """Flags of a command that a Ray cluster may work for."""

    @model_validator(mode="after")
    def _check_cluster(self) -> "RayArguments":
        check_one_process("--engine ray for several GPUs or machines")
        if self.engine == "ray":
            if getattr(self, "threads", None) is not None:
                raise UserError(
                    "--threads is for this process. Give --ray_threads with --engine ray."
                )
            if getattr(self, "output", None) is None:
                raise UserError(
                    "--engine ray writes a file, of which finished parts are kept. Give its "
                    "--output."
                )
        return self


def cluster_work(options: Any, build: Callable[[], "ShardWork"]) -> "Work | None":
    """Return the work of a Ray cluster on the shards of a corpus, if a command has `--engine ray`.

    Args:
        options: Flags, of which the ones of [`ClusterArguments`] are read, and `quiet` if there is
            one.
        build: Called by each worker; returns the function that works on a part of a shard.
    """
    if options.engine is None:
        return None
    from vanilla_transformer.extensions.scale_out import work_by_ray

    return partial(
        work_by_ray,
        build=build,
        workers=options.ray_workers,
        threads=options.ray_threads,
        hidden=getattr(options, "quiet", False),
    )


# Options of what `translate` alone has: its lines, and several translations of each.
_OF_SENTENCES = (
    "num_return_sequences",
    "target_prefix",
    "draft_bias",
    "alternatives",
    "constraints",
)
FLAG_NAMES = {"constraints": "constraint"}  # of options whose flags have another name
_FLAG_TYPES: dict[str, Any] = {
    "constraints": list[str] | None,
    "glossary": Input | None,
    "memory": list[Input] | None,
}


def flags_of(names: Sequence[str], title: str) -> Any:
    """Return a schema with the flags of options, to inherit from.

    Its title is a heading of the help.
    """
    fields: dict[str, Any] = {}
    for name in names:
        declared = options_of()[name]
        flag_type = _FLAG_TYPES.get(name, declared.annotation)
        fields[FLAG_NAMES.get(name, name)] = (flag_type, copy(declared))
    return create_model("Flags", __base__=CommandArguments, __doc__=title, **fields)


_SentenceFlags: Any = flags_of(_OF_SENTENCES, "Flags of single sentences.")
_RequestFlags: Any = flags_of(
    [name for name in options_of(FLAG) if name not in _OF_SENTENCES],
    "Flags of a request. By default the checkpoint's generation config decides, which is the "
    "paper's decoding.",
)
_SAMPLING = ("temperature", "top_k", "top_p", "epsilon_cutoff", "seed")


class TranslationArguments(ModelNameArguments, ModelArguments, _RequestFlags, LanguageArguments):
    """Flags of each command that translates: with the same ones, all translate a text alike."""

    sentence_splitter: str = Field(
        "abbreviations",
        description="How documents and, with --split_sentences, lines of text are split: "
        "abbreviations (sentencex), simple (after each period), or your own function, such as "
        "my_module:split.",
    )
    glossary_casefold: bool = Field(
        False, description="Find terms with capitals in any case, too, as the ones without."
    )

    @property
    def samples(self) -> bool:
        """Whether random numbers decide about the translations."""
        return self.do_sample or self.mbr is not None


class SentenceArguments(_SentenceFlags):
    """Flags of single sentences."""

    target_prefixes: Input | None = Field(
        None, description="File with the prefix of each sentence, line by line; blank for none."
    )
    draft: Input | None = Field(
        None,
        description="File with the draft of each sentence, line by line; blank for none. A draft "
        "is a translation that may be right, such as one of an earlier version: greedy search "
        "checks it, and returns what it returns without it, sooner.",
    )
    tab_constraints: bool = Field(
        False,
        description="Each line has its own constraints after the sentence, separated by tabs.",
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
    if getattr(options, "draft", None) is not None:
        settings["draft"] = ""  # until its lines are read
    if options.do_sample:
        settings = {"num_beams": 1, **settings}
    elif options.mbr is None and (idle := options.model_fields_set & {*_SAMPLING}):
        name = min(idle)
        raise UserError(f"--{name} is for --do_sample and --mbr, got neither. Leave it out.")
    if options.split_sentences:
        settings["sentence_splitter"] = options.sentence_splitter
        settings["source_language"] = options.source_language
    if "glossary" in settings:
        from vanilla_transformer.text.glossary import as_glossary

        source_language = options.source_language or DEFAULT_LANGUAGE
        codes = (source_language, options.target_language)
        glossary = as_glossary(options.glossary, *codes, options.glossary_casefold)
        settings["glossary"] = glossary
    elif getattr(options, "glossary_casefold", False):
        raise UserError("`glossary_casefold` must be given with `--glossary FILE`, got it without.")
    TranslationOptions.resolve(settings)  # checks them before the model is loaded
    return settings


def open_model(options: TranslationArguments) -> AbstractContextManager["TranslationPipeline"]:
    """Return a context of the pipeline by which a command translates: the flags are the defaults of
    its calls.
    """
    settings, workers = request_settings(options), check_workers(options.workers)
    from vanilla_transformer.decoding.open_pipeline import open_pipeline

    loading = {"device": options.device, "dtype": options.dtype}
    loading |= further_models(options)

    @contextmanager
    def opened() -> Iterator["TranslationPipeline"]:
        opening = open_pipeline(options.model, workers, options.precision, **loading)
        with opening as translate:
            languages = language_settings(translate.tokenizer, options)
            if "memory" in settings:
                from vanilla_transformer.extensions.memory.memory import as_memory
                from vanilla_transformer.text.languages import find_direction

                codes = (options.source_language, options.target_language)
                direction = find_direction(translate.tokenizer, *codes)
                settings["memory"] = as_memory(settings["memory"], direction)
            yield translate.with_options(**(settings | languages))

    return opened()


def enter_for_good(opening: Callable[[], AbstractContextManager[Opened]]) -> Opened:
    """Enter a context that stays open until this process, a worker of a cluster, ends."""
    resources = ExitStack()
    atexit.register(resources.close)
    return resources.enter_context(opening())


# Flags that change no translation. Flags of files and models are not among them: their content
# counts.
_NOT_OF_TRANSLATIONS = {
    *ThreadArguments.model_fields,
    *RayArguments.model_fields,
    *OverwriteArguments.model_fields,
}
_NOT_OF_TRANSLATIONS |= {
    "sentences",
    "resume",
    "fail_on_warnings",
    "quiet",
    "batch_size",
    "device",
    "workers",
    "tag",
    "keep_warnings",
}


def translation_origin(options: TranslationArguments) -> dict[str, Any]:
    """Return all that translations depend on besides their text: an interrupted command continues
    with the same.
    """
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.files.hashes import hash_file

    fields = type(options).model_fields
    chosen: dict[str, Any] = {}
    for name in sorted(fields):
        parts = [*parts_of(fields[name])]
        is_file = INPUT in parts or OUTPUT in parts
        if not is_file and name not in _NOT_OF_TRANSLATIONS:
            chosen[name] = getattr(options, name)
    for name in ("glossary", "memory", "target_prefixes", "draft", "previous"):
        paths = getattr(options, name, None) or []
        paths = [paths] if isinstance(paths, str) else paths
        if paths:
            chosen[name] = [hash_file(Path(path)) for path in paths]
    hashes = [hash_model(name) for name in model_names(options.model, options)]
    return {"model": hashes, "options": chosen}
