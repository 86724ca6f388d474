"""A service in its own process under hostile clients, as the benchmark measures it."""

import pytest

from benchmarks.bench_service import ServiceArguments, measure, rows, save_random_model


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = save_random_model(tmp_path_factory.mktemp("served"))
    return measure(folder, ServiceArguments(requests=3000, seconds=10, connections=300))


def test_service_fails_no_request_beside_bad_ones(measured):
    assert measured["failed"] == {"requests": 80, "failed": 0}
    for attack in ("alone", "beside a rival", "memory"):
        assert measured[attack]["failed"] == 0


def test_service_answers_invalid_requests_briefly(measured):
    assert measured["invalid"]["received"] < 200
    assert measured["emoji"]["status"] == 422


def test_service_is_fair_beside_a_client_with_many_texts(measured):
    """Twice the waiting time at most on an idle machine; others may be at work on this one."""
    assert measured["beside a rival"]["p50"] < 3 * measured["alone"]["p50"]


def test_service_ends_within_its_grace_period_with_held_connections(measured):
    assert measured["held"]["seconds"] < 11
    assert measured["held"]["status of a request"] == 200


def test_service_keeps_its_memory_flat(measured):
    _, _, half, all_requests = measured["memory"]["megabytes"].values()
    assert all_requests < 1.05 * half, measured["memory"]


def test_table_has_a_row_for_each_attack(measured):
    assert len(rows(measured)) == 7
