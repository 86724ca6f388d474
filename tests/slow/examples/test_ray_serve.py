"""The example of Ray Serve answers as the pipeline does, with two replicas."""

import runpy
import socket
from pathlib import Path

import httpx
import pytest

from tests.services import TEXTS
from vanilla_transformer.decoding.loading import load_pipeline

pytest.importorskip("ray.serve", reason="needs `pip install 'ray[serve]'`")
EXAMPLE = Path(__file__).parents[3] / "examples" / "ray_serve.py"


def test_ray_serve_answers_like_the_pipeline(folder, monkeypatch):
    import ray
    from ray import serve

    monkeypatch.setenv("MODEL", str(folder))
    monkeypatch.setenv("REPLICAS", "2")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.init(address="local", num_cpus=3, log_to_driver=False)
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        serve.start(http_options={"port": port})
        serve.run(runpy.run_path(str(EXAMPLE))["application"])
        address = f"http://127.0.0.1:{port}/translate"
        answer = httpx.post(address, json={"text": TEXTS}, timeout=60)
    finally:
        serve.shutdown()
        ray.shutdown()
    expected = [[row["translation_text"]] for row in load_pipeline(folder)(TEXTS)]
    assert answer.json() == {"translations": expected}
