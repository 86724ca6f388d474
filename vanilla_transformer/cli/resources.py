"""Files of the repository that the wheel carries along."""

from pathlib import Path

import vanilla_transformer


def resource(folder: str, name: str) -> Path:
    """
    A file of the folders `recipes` and `model_card`: at the top of the repository, or inside an installed wheel.

    Raises:
        OSError: there is no such file.
    """
    package = Path(vanilla_transformer.__file__).parent
    places = [package.parent / folder / name, package / folder / name]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"There is no {folder}/{name}, neither in the repository nor in the installed package.")
