"""Import the libraries that most programs of this package import.

`tests/processes.py` forks processes that have them.
"""

import gc
import sys

import accelerate  # noqa: F401
import datasets  # noqa: F401
import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401
import sacrebleu  # noqa: F401
import torch
import transformers.data.data_collator
import transformers.generation.utils
import transformers.modeling_utils
import transformers.pipelines
import transformers.trainer_seq2seq  # noqa: F401

PATHS = [*sys.path]  # a fork gets the paths of the process that asks for it
torch.set_num_threads(1)
gc.collect()
gc.freeze()
gc.set_threshold(50_000)
