"""Searches over the vocabulary, and the fast search of `generate()`."""
