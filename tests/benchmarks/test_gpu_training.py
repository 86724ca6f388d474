"""`benchmarks.gpu_training` with a tiny model on the CPU."""

from benchmarks.gpu_training import TINY_MODELS, Setting, measure_peer


def test_measure_peer_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    setting = Setting(TINY_MODELS, 60, 1, 1, 0.0, variants=False)
    assert measure_peer(TINY_MODELS["tiny"], 60, setting)["tokens_per_second"] > 0
    assert [*tmp_path.iterdir()] == []
