"""Experiments of the paper, each by its name: `reproduce("table3", ReproductionOptions(...))`."""

from .experiments import EXPERIMENTS, ReproductionOptions, describe_experiments, plan_experiment, reproduce

__all__ = ["EXPERIMENTS", "ReproductionOptions", "describe_experiments", "plan_experiment", "reproduce"]
