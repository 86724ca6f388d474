"""Names of the tasks of text that transformers 5 removed."""

import re

# The tasks, and the first part of the names in their answers.
TASKS = {
    "translation": "translation",
    "summarization": "summary",
    "text2text-generation": "generated",
}
DIRECTED_TASK = re.compile("translation_(.+)_to_(.+)")
