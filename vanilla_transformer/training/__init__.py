"""
From raw parallel text to a checkpoint.

Read in this order: corpora, tokenizing, batching, schedule, loss, checkpoint, trainer.
"""
