"""The message for a missing extra."""

import gc
import sys

import pytest

from vanilla_transformer.evaluation.plots import plot_learning_curve
from vanilla_transformer.import_utils import collection_paused, requires_extra


def test_requires_extra_names_the_extra_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = r"^The ONNX export needs .*onnx.* `pip install 'vanilla-transformer\[onnx\]'`\.$"
    with pytest.raises(OSError, match=message), requires_extra("onnx", "The ONNX export"):
        import onnx  # noqa: F401


def test_requires_extra_passes_other_errors_on():
    with pytest.raises(KeyError), requires_extra("onnx", "The ONNX export"):
        raise KeyError("unrelated")


def test_plots_without_matplotlib_name_the_extra(monkeypatch, tmp_path):
    for name in ("matplotlib", "matplotlib.figure"):  # another test may have imported both
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OSError, match=r"^A plot needs .*`pip install 'vanilla-transformer\[plots\]'`\.$"):
        plot_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png")


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_paused_restores_the_setting_after_an_error(enabled):
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        with pytest.raises(ImportError), collection_paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()
