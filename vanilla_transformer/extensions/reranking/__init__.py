"""A translation is chosen among candidates: by a reverse model, by predicted quality, or by minimum
Bayes risk.
"""
