"""The device of tests that run on a GPU if there is one."""

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="there is no CUDA device")
