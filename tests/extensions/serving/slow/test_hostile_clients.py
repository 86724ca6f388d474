"""A service in its own process under hostile clients, as the benchmark measures it."""

import pytest

from benchmarks.bench_service import ServiceArguments, measure, rows, save_random_model


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = save_random_model(tmp_path_factory.mktemp("served"))
    return measure(folder, ServiceArguments(requests=3000, seconds=10, connections=300))


def test_service_fails_no_request_beside_bad_ones(found):
    assert found["failed"] == {"requests": 80, "failed": 0}
    assert [found[attack]["failed"] for attack in ("alone", "beside a rival", "memory")] == [
        0,
        0,
        0,
    ]


def test_service_answers_invalid_requests_briefly(found):
    assert found["invalid"]["received"] < 200 and found["emoji"]["status"] == 422


def test_service_is_fair_beside_a_client_with_many_texts(found):
    """Twice the waiting time at most on an idle machine; others may be at work on this one."""
    assert found["beside a rival"]["p50"] < 3 * found["alone"]["p50"]


def test_service_ends_within_its_grace_period_with_held_connections(found):
    assert found["held"]["seconds"] < 11 and found["held"]["status of a request"] == 200


def test_service_keeps_its_memory_flat(found):
    _, _, half, all_requests = found["memory"]["megabytes"].values()
    assert all_requests < 1.05 * half, found["memory"]


def test_table_has_a_row_for_each_attack(found):
    assert len(rows(found)) == 7
