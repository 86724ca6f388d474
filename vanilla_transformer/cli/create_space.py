"""Write the folder of a Space, a page on the Hub to try a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import MODEL, parse, require_one_model


@dataclass
class SpaceArguments:
    """Flags of `create-space`."""

    output_dir: str = field(default="space", metadata={"help": "New folder for the files of the Space."})
    title: str | None = field(default=None, metadata={"help": "Title of the page. Default: the name of the model."})
    examples: list[str] | None = field(default=None, metadata={"help": "Sentences to click on."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(SpaceArguments, arguments, "create-space MODEL [--flags]", MODEL)
    name = require_one_model(words)
    from vanilla_transformer.publishing.space import create_space

    folder = create_space(name, options.output_dir, options.title, options.examples)
    print(f"The Space is in {folder}. Upload it with: hf upload USER/NAME {folder} --repo-type space")
