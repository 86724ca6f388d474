"""The script for jobs of the Hub trains and publishes, and refuses to start what would be lost."""

from pathlib import Path

import pytest

from tests.hub_client import run_with_hub
from tests.tiny_runs import flags

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "train_on_hf_jobs.py"


def run_job(hub, corpus, tmp_path, facts, repo_id="user/name"):
    words = flags(corpus, None)
    return run_with_hub(hub, tmp_path, JOB, "small", repo_id, "--facts", facts, *words, timeout=300)


def test_job_trains_and_publishes(hub, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ended = run_job(hub, corpus, tmp_path, "wmt14_en_de")
    assert ended.returncode == 0, ended.stderr
    assert hub.repositories["user/name"].private
    assert "WMT 2014 English-German" in hub.files("user/name")["README.md"].decode()
    assert "model.safetensors" in hub.files("user/name")


@pytest.mark.parametrize(
    ("facts", "repo_id", "message"),
    [("wmt14_de", "user/name", "There is no file of facts"), ("demo", "other/name", "403")],
)
def test_job_does_not_train_what_it_could_not_publish(hub, corpus, tmp_path, monkeypatch, facts, repo_id, message):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ended = run_job(hub, corpus, tmp_path, facts, repo_id)
    assert ended.returncode and message in ended.stderr
    assert not (tmp_path / "runs").exists()
