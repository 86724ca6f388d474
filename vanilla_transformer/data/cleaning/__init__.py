"""Rules that drop pairs of a corpus, and the report of the dropped pairs."""

from vanilla_transformer.data.cleaning_rules import RULES, CleaningRules

from .find_broken import find_broken
from .language_check import find_language_mistakes
from .lengths import find_dropped_by_length, is_too_long, is_unbalanced
from .pair_rules import PairRules
from .repetitions import find_duplicates, hash_pair, hash_repetition
from .report import EXAMPLES, CleaningReport, abbreviate, nothing_left_error
from .text_rules import clean_text, is_empty, is_identical, is_invalid_unicode

__all__ = ["EXAMPLES", "RULES", "CleaningReport", "CleaningRules", "PairRules", "abbreviate", "clean_text"]
__all__ += ["find_broken", "find_dropped_by_length", "find_duplicates", "find_language_mistakes", "hash_pair"]
__all__ += ["hash_repetition", "is_empty", "is_identical", "is_invalid_unicode", "is_too_long", "is_unbalanced"]
__all__ += ["nothing_left_error"]
