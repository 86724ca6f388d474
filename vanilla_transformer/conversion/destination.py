"""What all conversions share: refusing once, with every reason, and where results go."""

from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.file_utils import atomic_folder

# A reason to refuse for every form to which the tokens of a source come from outside.
SOURCES_WITHOUT_EOS = "its sources have no EOS, which its tokenizer appends and the model masks (`source_eos`)"


def refuse(form: str, reasons: Mapping[str, bool]) -> None:
    """
    Raises:
        ValueError: some of `reasons` hold; all of those are listed.
    """
    holding = [reason for reason, holds in reasons.items() if holds]
    if holding:
        raise ValueError(f"{form} cannot represent this model: {'; '.join(holding)}.")


def check_destination(output_dir: str | Path) -> None:
    """
    Raises:
        FileExistsError: `output_dir` is a file, or a folder with something in it.
    """
    output_dir = Path(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise FileExistsError(f"{output_dir} holds something already. Choose another folder, or delete it first.")


def write_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output_dir: str | Path) -> None:
    """Writes model and tokenizer as a folder of transformers."""
    with atomic_folder(Path(output_dir)) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
