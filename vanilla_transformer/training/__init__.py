"""
From raw parallel text to a checkpoint.

Read in this order: corpora, cleaning, encoding, mixing, streaming, preparation; tokenizing, bpe_dropout; batching,
order; schedule, loss, averaging, sharding, checkpoint, resuming, metrics; processes, building, learner,
sharded_checkpoint, update, validation; trainer, planning. What `Trainer` users need of it is in seq2seq_trainer.
"""
