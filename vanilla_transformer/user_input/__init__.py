"""Check values that users write."""
