"""Render the card of a model, check its folder, publish it on the Hub, and write a Space to try
it.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

import vanilla_transformer
from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.resources import find_facts, resource_folder
from vanilla_transformer.user_input.schemas import ARGUMENT, INPUT, REPEATED, Input

from .evaluate import ComparisonArguments, compare_by_flags
from .flags import (
    CommandArguments,
    Count,
    ModelNameArguments,
    ThreadArguments,
    TranslationArguments,
    open_model,
    parse,
    read_keys,
    refuse_file_names,
)

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry

Folder = Annotated[str, ARGUMENT, INPUT]


class RenderCardArguments(CommandArguments):
    """Flags of `render-card`."""

    folder: Folder = Field(description="Folder of the model.")
    facts: Input = Field(
        description="YAML file of facts, or the name of a packaged one, such as multi30k_en_de."
    )
    template: Input | None = Field(
        None, description="Jinja template; by default the package's own."
    )
    repo_id: str | None = Field(
        None, description="Hub name to show in the usage examples: user/name."
    )


def render_card_command(arguments: Sequence[str]) -> None:
    options = parse(RenderCardArguments, arguments)
    folder = Path(options.folder)
    from vanilla_transformer.files.atomic import write_text_atomically
    from vanilla_transformer.files.outputs import check_outputs
    from vanilla_transformer.publishing.staging import CARD_NAME

    path = folder / CARD_NAME
    check_outputs([path], filter(None, [options.facts, options.template]))
    # The tag of our release marks a card of ours.
    if path.is_file() and b"\n- vanilla-transformer-" not in path.read_bytes():
        requirement = "The card must be a new file, or one that this package wrote"
        raise UserFileError(f"{requirement}, but {path} is another. Move or delete it.")
    facts = _load_facts(options.facts)
    render = _card_renderer(folder, options.repo_id, facts, options.template)
    write_text_atomically(path, str(render(folder)))
    print(f"The card is in {path}.")


class CheckModelArguments(TranslationArguments):
    """Flags of `check-model`. With a text, it also prints a stress table."""

    trust_remote_code: bool = Field(
        False, description="Run the folder's own code even if it differs from this package's."
    )
    source: Input | None = Field(
        None, description="Source text of a stress test, one sentence per line, with --target."
    )
    target: Input | None = Field(None, description="Its translations, one per line.")
    max_pairs: Count | None = Field(None, description="Use the first pairs only; by default all.")
    name: str | None = Field(
        None,
        description=(
            "Name of the text. The stress table is saved in the model's folder for its card."
        ),
    )

    @model_validator(mode="after")
    def _check_stress(self) -> "CheckModelArguments":
        if (self.source is None) != (self.target is None):
            raise UserError(
                "A stress test needs a text and its translations. Give both --source and --target, "
                "or none."
            )
        idle = self.model_fields_set - {"model", "trust_remote_code"}
        idle -= ThreadArguments.model_fields.keys()
        if self.source is None and idle:
            hint = "Give --source and --target, or leave it out."
            raise UserError(f"--{min(idle)} is for a stress test. {hint}")
        return self


def check_model_command(arguments: Sequence[str]) -> None:
    options = parse(CheckModelArguments, arguments)
    folder, opening = options.model, open_model(options)
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.publishing.checks import check_staged, failed_checks, format_results
    from vanilla_transformer.publishing.run_records import (
        STRESS_TABLES,
        check_record_name,
        save_record,
    )
    from vanilla_transformer.publishing.staging import stage

    if options.name is not None:
        check_record_name(options.name)
    pairs = []
    if options.source is not None and options.target is not None:
        pairs = read_text_files(options.source, options.target)[: options.max_pairs]
    has_code = any(Path(folder).glob("*.py"))
    with tempfile.TemporaryDirectory() as parent:
        staged = Path(folder) if has_code else stage(folder, Path(parent) / "model")
        results = check_staged(folder, staged, options.trust_remote_code)
    print(format_results(results).replace(str(staged), str(folder)), flush=True)
    if pairs:
        from vanilla_transformer.extensions.quality.stress import (
            StressRow,
            format_header,
            format_row,
            measure_stress,
        )

        def report(row: StressRow) -> None:
            print(format_row(row), flush=True)

        with opening as translate:
            print(f"\n{format_header()}", flush=True)
            table = measure_stress(translate, pairs, report)
        if options.name is not None:
            rows = [row._asdict() for row in table.rows]
            record = {"rows": rows, "groups": table.groups}
            save_record(folder, STRESS_TABLES, options.name, record)
    failed = failed_checks(results)
    if failed:
        counts = f"{len(failed)} of {len(results)}"
        raise SystemExit(f"{folder} cannot be published: {counts} checks failed.")  # status 1


class PushToHubArguments(ComparisonArguments):
    """Flags of `push-to-hub`."""

    model: Folder = Field(title="FOLDER", description="Folder of the model.")
    repo_id: Annotated[str, ARGUMENT] = Field(
        title="USER/NAME", description="Its place on the Hugging Face Hub."
    )
    facts: Input | None = Field(
        None,
        description="YAML file of facts to render the card from, or the name of a packaged one; by "
        "default the folder's own card is used.",
    )
    private: bool = Field(False, description="Create a private repository.")
    revision: str | None = Field(
        None, description="Branch to push to, created if missing; by default main."
    )
    message: str | None = Field(None, description="Commit message.")
    token_file: Input | None = Field(
        None,
        description=(
            "File with the access token; by default the variable HF_TOKEN or the token of "
            "`hf auth login`."
        ),
    )
    trust_remote_code: bool = Field(
        False,
        description="Run and publish the folder's own code even if it differs from this package's.",
    )
    dry_run: bool = Field(
        False,
        description="Check the folder and list the files with their sizes, without an upload.",
    )
    compare_with: Annotated[str | None, INPUT] = Field(
        None,
        description="Publish only if the model is not worse than this one, a folder or a name on "
        "the Hub, by the text of --source and --target, as `compare-models` says. The card shows "
        "the comparison.",
    )
    source: Input | None = Field(
        None, description="With --compare_with: source text, one sentence per line."
    )
    target: Annotated[list[Input], REPEATED] = Field(
        [],
        description="With --compare_with: its translations. Give it again for further references.",
    )

    @model_validator(mode="after")
    def _check_comparison(self) -> "PushToHubArguments":
        flags = {*ComparisonArguments.model_fields, "compare_with", "source", "target"}
        names = self.model_fields_set & flags - {"model", "user_module"}
        if names and not (self.compare_with and self.source and self.target):
            raise UserError(
                f"--{min(names)} is for a comparison. Give --compare_with, --source and --target, "
                "or leave it out."
            )
        return self


def push_to_hub_command(arguments: Sequence[str]) -> None:
    options = parse(PushToHubArguments, arguments)
    from vanilla_transformer.publishing.checks import format_results
    from vanilla_transformer.publishing.push import push_folder

    folder, repo_id, token = options.model, options.repo_id, None
    path = options.token_file
    if path is not None:
        keys = read_keys(path)
        if len(keys) != 1:
            raise UserError(f"{path} must hold one access token, got {len(keys)} lines.")
        (token,) = keys
    card = None
    eval_results: list[EvalResultEntry] = []
    if options.facts is not None:
        from vanilla_transformer.publishing.eval_results import find_eval_results

        facts = _load_facts(options.facts)
        card = _card_renderer(folder, repo_id, facts)
        eval_results = find_eval_results(folder, facts)
    url = push_folder(
        folder,
        repo_id,
        compare=partial(_compare, options),
        card=card,
        eval_results=eval_results,
        private=options.private,
        revision=options.revision,
        message=options.message,
        token=token,
        trust_remote_code=options.trust_remote_code,
        report=lambda results: print(format_results(results)),
        plan=_print_plan if options.dry_run else None,
    )
    print("Nothing has been published." if url is None else f"Published: {url}")


def _compare(options: PushToHubArguments) -> str:
    """Return the comparison of the model with another one, if the flags ask for it; end the command
    if the model is worse.
    """
    if options.compare_with is None or options.source is None:
        return ""
    from vanilla_transformer.evaluation.test_sets import read_test_set

    first, *further = options.target
    texts = read_test_set(options.source, first, further_targets=further)
    old, new = options.compare_with, options.model
    comparison, losses = compare_by_flags(options, old, new, texts)
    print(comparison.markdown(losses, options.changes))
    if losses:
        reasons = "; ".join(losses)
        raise SystemExit(f"{new} is worse than {old}: {reasons}. Nothing has been published.")
    return comparison.markdown(losses, 0)  # the text itself may be private


def _print_plan(sizes: Mapping[str, int]) -> None:
    rows = {f"{len(sizes)} files": sum(sizes.values()), **sizes}
    width = max(len(f"{size:,}") for size in rows.values())
    for name, size in rows.items():
        print(f"{size:>{width},} bytes  {name}")


def _load_facts(name: str) -> dict[str, Any]:
    """Read the facts of a file, or of a packaged one."""
    from vanilla_transformer.publishing.facts import read_facts

    return read_facts(find_facts(name))


def _card_renderer(
    run: str | Path, repo_id: str | None, facts: Mapping[str, Any], template: str | None = None
) -> Callable[[Path], Any]:
    """Return a function that renders the card of a folder from the records of the folder `run`."""
    from vanilla_transformer.publishing.card import render_card
    from vanilla_transformer.training.run_arguments import default_values

    return partial(
        render_card,
        facts=facts,
        template=template or resource_folder("model_card") / "template.md",
        version=vanilla_transformer.__version__,
        run=run,
        location=repo_id,
        defaults=default_values(),
    )


class CreateSpaceArguments(ModelNameArguments):
    """Flags of `create-space`."""

    output_dir: str = Field(
        "space",
        description="New folder for the files of the Space. Its page runs without this package, "
        "and translates as `translate --no_protect` does.",
    )
    title: str | None = Field(
        None, description="Title of the page. Default: the name of the model."
    )
    examples: list[str] | None = Field(None, description="Sentences to click on.")


def create_space_command(arguments: Sequence[str]) -> None:
    options = parse(CreateSpaceArguments, arguments)
    examples = options.examples or []
    refuse_file_names("--examples", examples, "Write the sentences themselves.")
    from vanilla_transformer.publishing.space import create_space

    new_folder = options.output_dir
    folder = create_space(options.model, new_folder, options.title, options.examples)
    command = f"hf upload USER/NAME {folder} --repo-type space"
    print(f"The Space is in {folder}. Upload it with: {command}")
