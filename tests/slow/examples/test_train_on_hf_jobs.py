"""The script for jobs of the Hub trains and publishes, to its end."""

from pathlib import Path

from tests.local_hub import run_with_hub
from tests.tiny_runs import flags

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "train_on_hf_jobs.py"


def test_job_trains_and_publishes(hub, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ["small", "user/name", "--facts", "wmt14_en_de", *flags(corpus, None)]
    ended = run_with_hub(hub, tmp_path, JOB, *words, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert hub.repositories["user/name"].private
    assert "WMT 2014 English-German" in hub.files("user/name")["README.md"].decode()
    assert "model.safetensors" in hub.files("user/name")
