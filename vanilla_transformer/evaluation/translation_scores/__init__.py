"""The metric for the `evaluate` library, which requires a folder of the same name."""
