"""How far translations and text can be trusted: calibration, stress tables, and a check of a language pair."""
