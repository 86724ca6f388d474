"""Words and their translations: scores of alignments, heads that align, and a page that explains a
translation.
"""
