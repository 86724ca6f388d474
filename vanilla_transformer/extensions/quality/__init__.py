"""How far translations and text can be trusted: COMET, calibration, stress tables, and a check of a
language pair.
"""
