"""Clean text by models: drop pairs that are misaligned, and pairs with low scores."""
