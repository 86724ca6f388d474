"""Train a model from raw parallel text.

`trainer.train` is the loop. It uses `run_folder` (checkpoints and results on disk), `train_state`
(model, optimizer, schedule, EMA), `train_step`, `validation`, `metrics` and `signals`. `recipe`
parses the keys that `run_arguments` declares, `launcher` adds to them, and `recipe_checks` has
their rules; `seq2seq_trainer` offers the same batches and learning rate to transformers' `Trainer`.
"""
