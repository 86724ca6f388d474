"""Experiments of the paper, each by its name: `experiments.reproduce("table3", ReproductionOptions(...))`."""
