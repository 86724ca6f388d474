"""Render the card of a model, check its folder, publish it on the Hub, and write a Space to try it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vanilla_transformer
from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.utils.resources import find_facts, resource_folder

from .flags import (
    MODEL,
    TranslationArguments,
    open_model,
    parse,
    read_keys,
    refuse_file_names,
    require_one_model,
)

if TYPE_CHECKING:
    pass


@dataclass
class CardArguments:
    """Flags of `render-card`."""

    facts: str = field(metadata={"help": "YAML file of facts, or the name of a packaged one, such as multi30k_en_de."})
    template: str | None = field(default=None, metadata={"help": "Jinja template; by default the package's own."})
    repo_id: str | None = field(default=None, metadata={"help": "Hub name to show in the usage examples: user/name."})


def render_card_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        CardArguments, arguments, "render-card FOLDER --facts FILE.yaml [--flags]", {"FOLDER": "Folder of the model."}
    )
    folder = Path(require_one_model(words))
    from vanilla_transformer.publishing.staging import CARD_NAME
    from vanilla_transformer.utils.file_utils import check_outputs, write_text_atomically

    path = folder / CARD_NAME
    check_outputs([path], filter(None, [options.facts, options.template]))
    if path.is_file() and b"\n- vanilla-transformer-" not in path.read_bytes():  # the tag of our release
        rule = "The card must be a new file, or one that this package wrote"
        raise UserFileError(f"{rule}, but {path} is another. Move or delete it.")
    render = _card_renderer(folder, options.repo_id, options.facts, options.template)
    write_text_atomically(path, str(render(folder)))
    print(f"The card is in {path}.")


@dataclass
class _StressArguments:
    """Flags of a stress table, which `check-model` prints for a text, and of its translations."""

    source: str | None = field(
        default=None, metadata={"help": "Source text of a stress test, one sentence per line, with --target."}
    )
    target: str | None = field(default=None, metadata={"help": "Its translations, one per line."})
    max_pairs: int | None = field(default=None, metadata={"help": "Use the first pairs only; by default all."})
    name: str | None = field(
        default=None,
        metadata={"help": "Name of the text. The stress table is saved in the model's folder for its card."},
    )


@dataclass
class StressArguments(TranslationArguments, _StressArguments):
    """Flags of a stress table."""


@dataclass
class CheckArguments(StressArguments):
    """Flags of `check-model`. With a text, it also prints a stress table."""

    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the folder's own code even if it differs from this package's."}
    )


# The flags of `check-model` that `--help` shows.
_CHECK_MAIN = ["trust_remote_code", "source", "target", "max_pairs", "name", "precision", "num_beams"]
_CHECK_MAIN += ["source_language", "target_language"]


def check_model_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        CheckArguments,
        arguments,
        "check-model FOLDER [--source FILE --target FILE] [--flags]",
        {"FOLDER": "Folder of the model."},
        _CHECK_MAIN,
    )
    folder = require_one_model(words)
    _check_stress_flags(options)
    opening = open_model(folder, options)
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.publishing.checks import check_folder, failed_checks, format_results

    pairs = []
    if options.source is not None and options.target is not None:
        pairs = read_text_files(options.source, options.target)[: options.max_pairs]
    results = check_folder(folder, options.trust_remote_code)
    print(format_results(results), flush=True)
    if pairs:
        from vanilla_transformer.extensions.quality.stress import format_header, format_row, measure_stress
        from vanilla_transformer.publishing.run_records import STRESS_TABLES, save_record

        with opening as translate:
            print(f"\n{format_header()}", flush=True)
            table = measure_stress(translate, pairs, lambda row: print(format_row(row), flush=True))
        if options.name is not None:
            record = {"rows": [row._asdict() for row in table.rows], "groups": table.groups}
            save_record(folder, STRESS_TABLES, options.name, record)
    failed = failed_checks(results)
    if failed:
        raise SystemExit(f"{folder} cannot be published: {len(failed)} of {len(results)} checks failed.")  # status 1


def _check_stress_flags(options: CheckArguments) -> None:
    if (options.source is None) != (options.target is None):
        raise UserError("A stress test needs a text and its translations. Give both --source and --target, or none.")
    for flag in fields(StressArguments):
        if options.source is None and getattr(options, flag.name) != flag.default:
            raise UserError(f"--{flag.name} is for a stress test. Give --source and --target, or leave it out.")
    if options.max_pairs is not None and options.max_pairs < 1:
        raise UserError(f"`max_pairs` must be 1 or more, got {options.max_pairs}.")
    if options.name is not None:
        from vanilla_transformer.publishing.run_records import check_record_name

        check_record_name(options.name)


@dataclass
class PushArguments:
    """Flags of `push-to-hub`."""

    facts: str | None = field(
        default=None,
        metadata={
            "help": "YAML file of facts to render the card from, or the name of a packaged one; by default the "
            "folder's own card is used."
        },
    )
    private: bool = field(default=False, metadata={"help": "Create a private repository."})
    revision: str | None = field(
        default=None, metadata={"help": "Branch to push to, created if missing; by default main."}
    )
    message: str | None = field(default=None, metadata={"help": "Commit message."})
    token_file: str | None = field(
        default=None,
        metadata={
            "help": "File with the access token; by default the variable HF_TOKEN or the token of `hf auth login`."
        },
    )
    trust_remote_code: bool = field(
        default=False,
        metadata={"help": "Run and publish the folder's own code even if it differs from this package's."},
    )
    dry_run: bool = field(
        default=False, metadata={"help": "Check the folder and list the files with their sizes, without an upload."}
    )


def push_to_hub_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        PushArguments,
        arguments,
        "push-to-hub FOLDER USER/NAME [--flags]",
        {"FOLDER": "Folder of the model.", "USER/NAME": "Its place on the Hugging Face Hub."},
    )
    if len(words) != 2:
        raise UserError(f"Name a model folder and its place on the Hub (user/name), got {len(words)} names.")
    from vanilla_transformer.publishing.checks import format_results
    from vanilla_transformer.publishing.push import push_folder

    folder, repo_id = words
    token = None
    if options.token_file is not None:
        keys = read_keys(options.token_file)
        if len(keys) != 1:
            raise UserError(f"{options.token_file} must hold one access token, got {len(keys)} lines.")
        (token,) = keys
    url = push_folder(
        folder,
        repo_id,
        card=None if options.facts is None else _card_renderer(folder, repo_id, options.facts),
        private=options.private,
        revision=options.revision,
        message=options.message,
        token=token,
        trust_remote_code=options.trust_remote_code,
        report=lambda results: print(format_results(results)),
        plan=_print_plan if options.dry_run else None,
    )
    print("Nothing has been published." if url is None else f"Published: {url}")


def _print_plan(sizes: Mapping[str, int]) -> None:
    rows = {f"{len(sizes)} files": sum(sizes.values()), **sizes}
    width = max(len(f"{size:,}") for size in rows.values())
    print(*(f"{size:>{width},} bytes  {name}" for name, size in rows.items()), sep="\n")


def _card_renderer(
    run: str | Path, repo_id: str | None, facts_file: str, template: str | None = None
) -> Callable[[Path], Any]:
    """Return a function that renders the card of a folder from the records of the folder `run`."""
    from vanilla_transformer.publishing.card import render_card
    from vanilla_transformer.publishing.facts import read_facts
    from vanilla_transformer.training.run_arguments import default_values

    return partial(
        render_card,
        facts=read_facts(find_facts(facts_file)),
        template=template or resource_folder("model_card") / "template.md",
        version=vanilla_transformer.__version__,
        run=run,
        location=repo_id,
        defaults=default_values(),
    )


@dataclass
class SpaceArguments:
    """Flags of `create-space`."""

    output_dir: str = field(default="space", metadata={"help": "New folder for the files of the Space."})
    title: str | None = field(default=None, metadata={"help": "Title of the page. Default: the name of the model."})
    examples: list[str] | None = field(default=None, metadata={"help": "Sentences to click on."})


def create_space_command(arguments: Sequence[str]) -> None:
    about = "The page runs without this package, and then translates as `translate --no_protect` does."
    words, options = parse(
        SpaceArguments, arguments, "create-space MODEL [--flags]", {"MODEL": f"{MODEL['MODEL']} {about}"}
    )
    name = require_one_model(words)
    refuse_file_names("--examples", options.examples or [], "Write the sentences themselves.")
    from vanilla_transformer.publishing.space import create_space

    folder = create_space(name, options.output_dir, options.title, options.examples)
    print(f"The Space is in {folder}. Upload it with: hf upload USER/NAME {folder} --repo-type space")
