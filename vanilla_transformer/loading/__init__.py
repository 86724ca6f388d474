"""Check the files of a model before it is loaded."""
