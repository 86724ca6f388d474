"""
From raw parallel text to a checkpoint.

Read in this order: corpora, tokenizing, batching, schedule, loss, checkpoint, trainer. What `Trainer` users need of
it is in seq2seq_trainer.
"""
