"""Parallel text: readers, cleaning, tokenizer training, tokenized corpus and batch sampler."""
