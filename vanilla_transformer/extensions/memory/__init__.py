"""Translations are taken from a memory, or follow the translation of a similar sentence."""
