"""
The tasks that transformers 5 removed, and what the input of a model needs besides its tokenizer in them.

Models of other families than ours answer as the pipelines of transformers 4: each text is one source, with a prefix.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import logging

from vanilla_transformer.pipeline_vanilla_transformer import encode_sources
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, Languages, find_languages

from .options import OptionError, TranslationOptions
from .segments import begin_with_languages, forced_language
from .transformers_internals import DIRECTED_TASK, TASKS

logger = logging.get_logger(__name__)


class TaskInputs:
    """
    The needs of a model's input besides its tokenizer: a prefix, tokens of languages, a forced first token.

    Args:
        task: Such as `"summarization"`, or `"translation_en_to_de"`, whose languages are defaults.
        options: Options of the constructor.

    Attributes:
        is_of_library: Whether the model is of another family than ours, whose texts are not split.
        answer: The first part of the names in answers, see [`TASKS`].
        defaults: Options for calls and constructors that give no others.
    """

    def __init__(self, model: Any, tokenizer: Any, task: str, options: Mapping[str, Any]):
        self._model, self._tokenizer, self._task, self._prefix = model, tokenizer, task, ""
        self.is_of_library = isinstance(model, PreTrainedModel) and not hasattr(model.config, "source_eos")
        self.answer, self.defaults = TASKS.get(task, "translation"), dict[str, Any]()
        if self.is_of_library:
            tasks = getattr(model.config, "task_specific_params", None) or {}
            if task == "translation" and (directed := [name for name in tasks if name.startswith(task)]):
                task = self._task = directed[0]
                logger.warning("`translation` means %s, the first direction of the model.", task)
            of_task = dict(tasks.get(task) or {})
            self._prefix = of_task.pop("prefix", None) or getattr(model.config, "prefix", None) or ""
            self.defaults = {"num_beams": 4, "protect": False}
            if {options.get("max_length"), model.generation_config.max_length} <= {None, 20}:  # the library's own
                self.defaults["max_new_tokens"] = 256
            self.defaults |= {name: value for name, value in of_task.items() if hasattr(GenerationConfig(), name)}

    def direct(self, options: TranslationOptions) -> Direction:
        """Return the direction of a request, by default of the task's name, or refuse to guess one."""
        direction, named = Direction(options.src_lang, options.tgt_lang), DIRECTED_TASK.fullmatch(self._task)
        if direction != NO_DIRECTION or not (named or (self.is_of_library and self._task == "translation")):
            return direction
        languages = find_languages(self._tokenizer, at_end=self.is_of_library)
        if languages is not None and not named and languages.is_forced and options.forced_bos_token_id is None:
            raise OptionError("A model of many languages must have `src_lang` and `tgt_lang`, got none. Give both.")
        return Direction(*named.groups()) if languages is not None and named else direction

    def encode(self, texts: Sequence[str], options: TranslationOptions) -> list[list[int]]:
        """Return the token ids of sources, with the prefix of the task and the tokens of the languages."""
        direction, tokenizer = self.direct(options), self._tokenizer
        if not self.is_of_library:
            return begin_with_languages(tokenizer, encode_sources(self._model, tokenizer, list(texts)), direction)
        if (at_end := self._languages_at_end(direction)) is None:
            sources = [self._prefix + text for text in texts]
            ids = tokenizer(sources, truncation=options.truncation or False)["input_ids"] if sources else []
            return begin_with_languages(tokenizer, ids, direction)
        language = tokenizer.src_lang
        try:
            tokenizer.src_lang = at_end.resolve(*direction).source
            return tokenizer(list(texts), truncation=options.truncation or False)["input_ids"] if texts else []
        finally:
            tokenizer.src_lang = language

    def forced(self, options: TranslationOptions) -> dict[str, Any]:
        """Return the options of decoding that make a translation begin with its language, and end before a text."""
        direction, tokenizer = self.direct(options), self._tokenizer
        at_end = self._languages_at_end(direction)
        forced = {"forced_bos_token_id": at_end.tokens(direction).target[0]} if at_end else {}
        forced = forced or forced_language(tokenizer, direction)
        if options.stop_sequence:
            forced["eos_token_id"] = tokenizer.encode(options.stop_sequence, add_special_tokens=False)[0]
        return forced

    def _languages_at_end(self, direction: Direction) -> Languages | None:
        """Return the languages of a tokenizer that ends sources with one, as mBART's does."""
        if not self.is_of_library or direction == NO_DIRECTION or find_languages(self._tokenizer) is not None:
            return None
        return find_languages(self._tokenizer, at_end=True)
