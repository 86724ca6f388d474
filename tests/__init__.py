"""The tests: a package, so that the `tests` folder that opustools installs does not take its
place.
"""
