"""Releases of transformers that differ."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def install_release(release, folder):
    """Install a release without this environment's packages but torch, in a folder for
    `PYTHONPATH`, or skip.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv, which installs the release, is missing")
    wanted = [f"transformers=={release}", "--target", folder, "--python", sys.executable]
    installed = subprocess.run([uv, "pip", "install", *wanted], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"transformers {release} cannot be installed: {installed.stderr[-200:]}")
