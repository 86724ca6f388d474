"""Check whether a model folder can be published."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse, require_one_model


@dataclass
class CheckArguments:
    """Flags of `check-model`."""

    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the folder's own code even if it differs from this package's."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CheckArguments, arguments, "check-model FOLDER [--trust_remote_code]")
    folder = require_one_model(words)
    from vanilla_transformer.publishing.checks import check_folder, failed_checks, format_results

    results = check_folder(folder, options.trust_remote_code)
    print(format_results(results))
    failed = failed_checks(results)
    if failed:
        raise SystemExit(f"{folder} cannot be published: {len(failed)} of {len(results)} checks failed.")  # status 1
