"""Files are translated and scored on a Ray cluster of two nodes as in one process, also if one node
is killed.
"""

import threading
from contextlib import contextmanager

import pytest

from tests.closeness import close_to
from tests.processes import wait_until
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.scale_out import ray_shards

pytest.importorskip("ray", reason="needs `pip install 'vanilla-transformer[ray]'`")
LINES = [f"a {'dog ' * (index % 5)}{index}." for index in range(1200)]
RAY = ["--engine", "ray", "--ray_workers", "2"]
NODE = {"num_cpus": 1, "object_store_memory": 10**8}
SECONDS = 300  # until a test gives up


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def node(cluster, monkeypatch):
    """Add a second node, and return the function that kills it."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    node = cluster.add_node(**NODE)
    yield lambda: cluster.remove_node(node, allow_graceful=False)
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


@pytest.fixture
def texts(tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    target.write_text("".join(f"{line.upper()}\n" for line in LINES), encoding="utf-8")
    return source, target


def run_translate(folder, texts, output, *flags):
    """Translate in 19 shards, and return the exit status."""
    source, _ = texts
    words = ["translate", str(folder), "--input", str(source), "--output", str(output)]
    words += ["--max_new_tokens", "12", "--batch_size", "1", "--quiet"]
    return main([*words, *flags])


def translation(*arguments):
    assert run_translate(*arguments) == 0
    return arguments[2].read_text(encoding="utf-8")


def test_translate_by_ray_survives_a_killed_node(folder, texts, node, tmp_path):
    expected = translation(folder, texts, tmp_path / "local")
    output, unfinished = tmp_path / "ray", []

    def kill():
        wait_until(lambda: any(tmp_path.glob("ray.partial/*[0-9].txt")), SECONDS)
        node()
        unfinished.append(not output.exists())

    killing = threading.Thread(target=kill)
    killing.start()
    assert translation(folder, texts, output, *RAY) == expected
    killing.join()
    assert unfinished == [True]


@contextmanager
def interruption(monkeypatch, shards):
    """Interrupt the command when it has the results of some shards."""
    get_results, ended = ray_shards._get_results, []

    def interrupt(task, shard):
        if len(ended) == shards:
            raise KeyboardInterrupt
        ended.append(shard.number)
        return get_results(task, shard)

    with monkeypatch.context() as patch:
        patch.setattr(ray_shards, "_get_results", interrupt)
        yield


def test_translate_by_ray_resumes(folder, texts, node, tmp_path, monkeypatch, capsys):
    expected = translation(folder, texts, tmp_path / "local", "--json")
    with interruption(monkeypatch, 3):
        assert run_translate(folder, texts, tmp_path / "ray", *RAY, "--json") == 130
    assert "Add --resume to continue." in capsys.readouterr().err
    written = [path.name for path in (tmp_path / "ray.partial").glob("*[0-9].txt")]
    assert 3 <= len(written) < 19, "actors have written their shards"
    rest = translation(folder, texts, tmp_path / "ray", *RAY, "--json", "--resume")
    assert rest == expected
    assert not (tmp_path / "ray.partial").exists()


def test_translate_by_ray_resumes_with_a_folder(folder, texts, node, tmp_path, monkeypatch):
    expected = translation(folder, texts, tmp_path / "local")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(3):
        lines = LINES[400 * number : 400 * (number + 1)]
        (parts / f"{number}.en").write_text("".join(f"{line}\n" for line in lines))
    with interruption(monkeypatch, 8):
        assert run_translate(folder, (parts, None), tmp_path / "ray", *RAY) == 130
    assert translation(folder, (parts, None), tmp_path / "ray", *RAY, "--resume") == expected


def test_score_by_ray_scores_as_one_process(folder, texts, node, tmp_path, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.evaluation.pair_scores.WINDOW", 100)
    source, target = map(str, texts)
    command = ["score", str(folder), "--source", source, "--target", target]
    scores = []
    for name, flags in {"local": [], "ray": RAY}.items():
        output = tmp_path / name
        assert main([*command, "--output", str(output), *flags]) == 0
        scores.append([*map(float, output.read_text().split())])
    assert scores[1] == close_to(scores[0])


def test_translate_by_ray_reports_mistakes(folder, texts, node, tmp_path, capsys):
    command = (folder, texts, tmp_path / "ray")
    assert run_translate(*command, *RAY, "--constraint", " ") == 2
    assert "error: A constraint must have a word, got ' '." in capsys.readouterr().err
    assert run_translate(*command, *RAY[:2], "--ray_threads", "64") == 2
    message = "A machine of the cluster must have 64 CPUs, but the largest one has 1."
    assert message in capsys.readouterr().err
    assert not (tmp_path / "ray.partial").exists()
