"""
From raw parallel text to a checkpoint.

Read in this order: corpora, tokenizing, bpe_dropout, batching, schedule, loss, checkpoint, trainer.
"""
