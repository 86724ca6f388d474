"""Clean the training text of a recipe, write it as text files, and report and plot the dropped pairs."""

from collections.abc import Sequence
from pathlib import Path

from vanilla_transformer.training.arguments import parse_recipe

from .resources import find_recipe
from .train import draw_lengths, draw_pictures, show_progress


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if words and not words[0].startswith("-"):
        words[0] = str(find_recipe(words[0]))
    recipe = parse_recipe(words, program="vanilla-transformer clean-corpus")
    from vanilla_transformer.data.corpus_writer import write_corpus_files
    from vanilla_transformer.data.prepare_data import load_texts
    from vanilla_transformer.decoding.dual_cross_entropy import dual_scores

    show_progress()
    texts = load_texts(recipe.data, score=dual_scores)
    files = write_corpus_files(texts, recipe.output.output_dir)
    print(texts.training.report)
    print(f"The text is in {', '.join(map(str, files))}.")
    draw_pictures(draw_lengths, Path(recipe.output.output_dir))
