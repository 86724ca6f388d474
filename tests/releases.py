"""Releases of transformers that differ."""

import pytest
import transformers
from packaging.version import Version


def needs_transformers(release, reason):
    """Skip a test of something that earlier releases of transformers get wrong for all models."""
    return pytest.mark.skipif(
        Version(transformers.__version__) < Version(release), reason=f"before {release}, {reason}"
    )


def checkpoint_activations(model, options=None):
    """Turn activation checkpointing on, which releases before 5.22 call gradient checkpointing."""
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
