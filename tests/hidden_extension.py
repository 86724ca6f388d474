"""Translate, train, evaluate and serve in a process that has all of the package but one extension.

    python -m tests.hidden_extension NAME FOLDER

FOLDER has a model in `model`, and text in `train.a`, `train.b`, `validation.a`, `validation.b`.
"""

import sys
from pathlib import Path

EXTENSIONS = "vanilla_transformer.extensions"


class HiddenExtension:
    """A finder of modules that has none of an extension."""

    def __init__(self, name: str):
        self.package = f"{EXTENSIONS}.{name}"

    def find_spec(self, module: str, path: object = None, target: object = None) -> None:
        """Refuse the modules of the extension, and leave the others to the next finder."""
        if module == self.package or module.startswith(f"{self.package}."):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def work(name: str, folder: Path) -> None:
    """Do with a tiny model what needs no extension."""
    from tests.tiny_runs import flags
    from vanilla_transformer.cli import main

    model, text = str(folder / "model"), folder / "validation.a"
    target = str(folder / "validation.b")
    assert main(["translate", model, "A man {name} is on http://a.example/b.", "--json"]) == 0
    assert main(["evaluate", model, "--source", str(text), "--target", target]) == 0
    assert main(["train", *flags(folder, folder / "run", max_steps=2)]) == 0
    first = {"init_from": str(folder / "run"), "init_vocabulary": "replace"}
    tuned = flags(folder, folder / "tuned", max_steps=2, **first)
    assert main(["train", *tuned]) == 0
    if name != "serving":
        serve(model)


def serve(model: str) -> None:
    """Ask a service of the model for a translation."""
    from fastapi.testclient import TestClient

    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.extensions.serving.service import create_service, translate_with

    service = create_service(translate_with(load_pipeline(model, device="cpu"), None))
    with TestClient(service) as client:
        assert client.post("/translate", json={"text": "A man."}).status_code == 200


if __name__ == "__main__":
    sys.meta_path.insert(0, HiddenExtension(sys.argv[1]))  # type: ignore[arg-type]
    work(sys.argv[1], Path(sys.argv[2]))
