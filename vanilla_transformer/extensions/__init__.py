"""Capabilities around the core, one folder each."""
