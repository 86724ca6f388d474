"""The cost model of updates on many GPUs, at points where the result is known."""

import pytest

from benchmarks.scaling_model import Assumptions, all_reduce_seconds, count_parameters, predict_update, read_recipe


def test_predict_update_on_one_gpu_is_compute_alone():
    update = predict_update(10**8, 1000, 1, Assumptions(peak=1e12, mfu=0.5))
    assert update.traffic == update.exposed == 0
    assert update.seconds == pytest.approx(6 * 10**8 * 1000 / 0.5e12)


def test_predict_update_waits_for_slow_input():
    assert predict_update(10**6, 1000, 1, Assumptions(tokens_per_second=100)).seconds == 20


def test_predict_update_exposes_traffic_beyond_the_backward_pass():
    given = Assumptions(peak=1e12, mfu=1.0, node_bandwidth=1e9, latency=0.0, overlap=0.5)
    update = predict_update(10**8, 1000, 2, given)
    assert update.exposed == pytest.approx(update.traffic - 0.5 * update.compute * 2 / 3)


def test_all_reduce_seconds_uses_slow_links_between_nodes():
    given = Assumptions(node_bandwidth=1e9, bandwidth=1e8, latency=0.0)
    assert all_reduce_seconds(1e9, 2, given) == pytest.approx(1.0)
    assert all_reduce_seconds(1e9, 16, given) == pytest.approx(18.75)


def test_count_parameters_of_paper_models():
    assert count_parameters(read_recipe("wmt14_en_de_base")) == pytest.approx(63e6, rel=0.01)
    assert count_parameters(read_recipe("wmt14_en_de_big")) == pytest.approx(214e6, rel=0.01)
