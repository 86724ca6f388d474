"""What a model folder needs before others get it."""
