"""A reversible model with LSH attention trains on two processes as on one."""

from tests.tiny_runs import assert_two_processes_match_one

LONG = {"layer_types": "lsh_attention", "num_buckets": 2, "reversible": True, "normalize_before": True}


def test_train_of_reversible_model_on_two_processes_matches_one(corpus, tmp_path):
    assert_two_processes_match_one(corpus, tmp_path, **LONG)
