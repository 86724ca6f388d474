"""Train an LSTM encoder-decoder with attention by a recipe of `vanilla-transformer train`.

    python examples/recurrent_baseline.py --train_source train.en --train_target train.de \
        --validation_source val.en --validation_target val.de --d_model 320 --encoder_layers 3 \
        --decoder_layers 3 --max_minutes 30 --output_dir runs/lstm

The Transformer's tokenizer, batches, loss, optimizer and search train it; sizes of attention have no effect.
`vanilla-transformer reproduce recurrent-baseline` compares both.
"""

import sys
from collections.abc import Sequence

from vanilla_transformer.cli import run
from vanilla_transformer.evaluation.scores import evaluator_for
from vanilla_transformer.extensions.reproduction.recurrent_model import RecurrentForConditionalGeneration
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


def main(words: Sequence[str]) -> None:
    recipe = parse_recipe(list(words))
    evaluate = evaluator_for(recipe.output.best_metric)
    folder = train(recipe, evaluate=evaluate, model_class=RecurrentForConditionalGeneration)
    print(f"The model is in {folder}.")


if __name__ == "__main__":
    sys.exit(run(main))
