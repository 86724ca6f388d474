"""
From raw parallel text to a checkpoint.

Read in this order: corpora, cleaning, encoding, mixing, streaming, preparation; tokenizing, batching, schedule, loss,
checkpoint, trainer.
"""
