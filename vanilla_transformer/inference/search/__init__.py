"""Parts of searches: the most likely tokens, samples and constraints."""
