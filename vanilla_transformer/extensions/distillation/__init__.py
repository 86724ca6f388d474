"""Teacher and student: train a small model on the translations of a large one, and synthetic
sources of real text.
"""
