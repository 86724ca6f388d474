"""Say whether a model folder can be published."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse


@dataclass
class CheckArguments:
    """How far the folder is trusted."""

    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the folder's own code even if it is not that of this package."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CheckArguments, arguments, "check_model FOLDER [--trust_remote_code]")
    if len(words) != 1:
        raise ValueError(f"Name the folder of one model before the flags, got {len(words)} names.")
    from vanilla_transformer.publishing.checks import check_folder, failures, table

    outcomes = check_folder(words[0], options.trust_remote_code)
    print(table(outcomes))
    failed = failures(outcomes)
    if failed:
        raise SystemExit(
            f"{words[0]} cannot be published: {len(failed)} of {len(outcomes)} checks failed."
        )  # status 1
