"""Text apart from tokens: units, glossaries, what must survive a translation, and warnings about
translations.
"""
