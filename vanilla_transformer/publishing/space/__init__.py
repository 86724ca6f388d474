"""Write the folder of a Space: a page on the Hub to try a model."""

import json
import shutil
from pathlib import Path

from huggingface_hub import SpaceCard, SpaceCardData

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.outputs import check_output_dir_is_empty
from vanilla_transformer.loading.model_names import check_local_model, check_repo_id
from vanilla_transformer.publishing.staging import missing_files, stage

_TEMPLATE = Path(__file__).parent


def create_space(
    model: str | Path,
    output_dir: str | Path,
    title: str | None = None,
    examples: list[str] | None = None,
) -> Path:
    """
    Write a Space for a model and return its folder.

    The page needs transformers, torch and Gradio, but not this package: the model carries its code.

    Args:
        model: Its folder, whose files are copied, or its name on the Hub.
        title: Title of the page, by default the name of the model.
        examples: Sentences to click on.
    """
    output_dir = Path(output_dir)
    check_output_dir_is_empty(output_dir)
    is_folder = Path(model).is_dir()
    if not is_folder:
        check_local_model(model)
        check_repo_id(str(model))
    title = title or Path(model).name
    settings = {
        "model": str(title if is_folder else model),
        "title": title,
        "examples": examples or [],
    }
    with atomic_folder(output_dir) as folder:
        for name in ("app.py", "requirements.txt"):
            shutil.copyfile(_TEMPLATE / name, folder / name)
        (folder / "space.json").write_text(
            json.dumps(settings, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
        )
        if is_folder:
            missing = missing_files(stage(model, folder / "model"))
            if missing:
                raise UserError(f"{model} must be a model folder, but it has no {missing[0]}.")
        data = SpaceCardData(
            title=title,
            sdk="gradio",
            app_file="app.py",
            models=None if is_folder else [str(model)],
            tags=["translation", "vanilla-transformer"],
            emoji="🌍",
            colorFrom="indigo",
            colorTo="gray",
        )
        card = f"---\n{data.to_yaml()}\n---\n\nTranslates by {settings['model']}.\n"
        SpaceCard(card).save(folder / "README.md")
    return output_dir
