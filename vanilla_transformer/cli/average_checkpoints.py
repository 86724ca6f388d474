"""Write the mean of several model folders as one more."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse


@dataclass
class AverageArguments:
    """Where the mean goes."""

    output_dir: str = field(metadata={"help": "Folder for the averaged model."})


def main(arguments: Sequence[str]) -> None:
    folders, options = parse(
        AverageArguments, arguments, "average_checkpoints FOLDER FOLDER [FOLDER ...] --output_dir FOLDER"
    )
    if len(folders) < 2:
        raise ValueError(f"Name at least two folders of models before the flags, got {len(folders)}.")
    from vanilla_transformer.training.averaging import average_model_folders

    print(f"The mean of {len(folders)} models is in {average_model_folders(folders, options.output_dir)}.")
