"""Text before it becomes tokens: glossaries, and what must survive a translation."""
