"""Clean the training text of a recipe, write it as text files, and report and plot the dropped pairs."""

from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.training.recipe import parse_recipe

from .arguments import register_models
from .train import draw_lengths, draw_pictures, show_progress

# The keys that `--help` shows.
_MAIN = ["train_source", "train_target", "dataset", "corpora", "source_language", "target_language", "drop_duplicates"]
_MAIN += ["drop_near_duplicates", "drop_other_numbers", "drop_other_languages", "min_letter_ratio", "max_length"]
_MAIN += ["max_length_ratio", "score", "output_dir"]


def main(arguments: Sequence[str]) -> None:
    recipe = parse_recipe(arguments, "vanilla-transformer clean-corpus", _MAIN)
    register_models()
    from vanilla_transformer.data.prepare_data import load_texts, write_corpus_files
    from vanilla_transformer.decoding.forced_decoding import dual_scores

    show_progress()
    texts = load_texts(recipe.data, score=dual_scores)
    files = write_corpus_files(texts, recipe.output.output_dir)
    print(texts.training.report)
    print(f"The text is in {', '.join(map(str, files))}.")
    draw_pictures(draw_lengths, Path(recipe.output.output_dir))
