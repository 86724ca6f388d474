"""The metric for the library `evaluate`, in a folder of its name, as that library wants it."""
