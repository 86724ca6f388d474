"""The table of a teacher and its student."""

from vanilla_transformer.extensions.distillation.student import SystemResult, as_table


def test_as_table_shows_the_speedup_over_the_teacher():
    teacher = SystemResult("teacher", 4, "float32", 40.0, 62.125, 10.0, 7_000_000, 28.0)
    student = SystemResult("student", 1, "int8", 39.5, 61.0, 35.0, 5_000_000, 20.0)
    assert as_table([teacher, student]).splitlines() == [
        "| system | beams | precision | BLEU | chrF | sentences/s | speedup | parameters | MB |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| teacher | 4 | float32 | 40.00 | 62.12 | 10.0 | 1.00 | 7,000,000 | 28.0 |",
        "| student | 1 | int8 | 39.50 | 61.00 | 35.0 | 3.50 | 5,000,000 | 20.0 |",
    ]
