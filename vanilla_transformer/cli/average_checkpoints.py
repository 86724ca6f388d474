"""Average the weights of several model folders."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse


@dataclass
class AverageArguments:
    """Flags of `average-checkpoints`."""

    output_dir: str = field(metadata={"help": "Folder of the averaged model."})
    weights: list[float] | None = field(
        default=None, metadata={"help": "A positive number for each folder (default: all count the same)."}
    )


def main(arguments: Sequence[str]) -> None:
    folders, options = parse(
        AverageArguments,
        arguments,
        "average-checkpoints FOLDER FOLDER [FOLDER ...] --output_dir FOLDER",
        {"FOLDER": "Folders of two models or more, of the same architecture."},
    )
    if len(folders) < 2:
        raise ValueError(f"Name at least two model folders, got {len(folders)}.")
    from vanilla_transformer.training.averaging import average_model_folders

    output = average_model_folders(folders, options.output_dir, options.weights)
    print(f"The average of {len(folders)} models is in {output}.")
