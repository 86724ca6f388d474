"""Write the suggestions that a service has stored as a translation memory."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from vanilla_transformer.cli.flags import OverwriteArguments, parse
from vanilla_transformer.user_input.schemas import ARGUMENT, Output


class ExportMemoryArguments(OverwriteArguments):
    """Flags of `export-memory`."""

    folder: Annotated[str, ARGUMENT] = Field(
        title="FOLDER", description="Folder of `serve --suggestions`."
    )
    output: Output = Field(description="File to write, in TMX.")


def export_memory_command(arguments: Sequence[str]) -> None:
    options = parse(ExportMemoryArguments, arguments)
    from vanilla_transformer.files.atomic import write_text_atomically

    from .suggestions import read_suggestions, write_tmx

    write_text_atomically(options.output, write_tmx(read_suggestions(options.folder)))
