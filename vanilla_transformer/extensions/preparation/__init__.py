"""A corpus of any size is cleaned and tokenized in shards, by several tasks or on a cluster."""
