"""The names of the files in a model's folder."""

from pathlib import Path

HASHES_FILE = "sha256.json"
# A model folder has one of them: ours, Marian, FSMT, M2M-100.
TOKENIZER_FILES = (
    "tokenizer.json",
    "source.spm",
    "merges.txt",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
)
# As transformers names them
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
MODEL_FILES = (*WEIGHTS, "config.json", "generation_config.json", "tokenizer_config.json")


def has_weights(folder: Path) -> bool:
    """Return whether `folder` holds a model that transformers can load."""
    return any((folder / name).exists() for name in WEIGHTS)


def delete_weights(folder: Path) -> None:
    """Delete the weights of the model in `folder`."""
    for path in weight_paths(folder):
        path.unlink(missing_ok=True)


def weight_paths(folder: Path) -> list[Path]:
    """Return where a model has weights, the files that make a folder a model first."""
    first_paths = [folder / name for name in WEIGHTS]
    return [*first_paths, *folder.glob("model-*-of-*.safetensors")]
