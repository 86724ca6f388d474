"""Benchmarks: `python -m benchmarks.bench_decoding` and so on.

Nothing else imports this package.
"""
