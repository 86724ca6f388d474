"""
The tasks that transformers 5 removed, and what the input of a model needs besides its tokenizer in
them.

Models of other families than ours answer as the pipelines of transformers 4: each text is one
source, with a prefix.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformers import GenerationConfig
from transformers.utils import logging

from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import encode_sources
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

from .options import OptionError, TranslationOptions
from .segments import begin_with_languages, forced_language
from .task_names import DIRECTED_TASK, TASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from vanilla_transformer.decoding.ensemble import DecodedModel

logger = logging.get_logger(__name__)


class TaskInputs:
    """
    The needs of a model's input besides its tokenizer: a prefix, tokens of languages, a forced
    first token.

    Args:
        task: Such as `"summarization"`, or `"translation_en_to_de"`, whose languages are defaults.
        options: Options of the constructor.

    Attributes:
        task: The task, with the direction that `"translation"` means for a model of several tasks.
        prefix: Text that begins each source.
        is_of_library: Whether the model is of another family than ours, whose texts are not split.
        answer: The first part of the names in answers, see [`TASKS`].
        defaults: Options for calls and constructors that give no others.
    """

    def __init__(
        self,
        model: "DecodedModel",
        tokenizer: "PreTrainedTokenizerBase",
        task: str,
        options: Mapping[str, Any],
    ):
        self._model = model
        self._tokenizer = tokenizer
        self.task = task
        self.prefix = ""
        # Not its class: PEFT and `torch.compile` wrap a model, and forward its configuration.
        self.is_of_library = not hasattr(model.config, "source_eos")
        self.answer = TASKS.get(task, "translation")
        self.defaults = dict[str, Any]()
        if not self.is_of_library:
            return
        if not model.config.is_encoder_decoder:
            kind = type(model).__name__
            raise UserError(f"`{task}` must have a sequence-to-sequence model, got {kind}.")
        tasks = getattr(model.config, "task_specific_params", None) or {}
        directed = [name for name in tasks if name.startswith(task)]
        if task == "translation" and directed:
            self.task = directed[0]
            message = "`translation` means %s, the first direction of the model."
            logger.warning(message, self.task)
        of_task = dict(tasks.get(self.task) or {})
        prefix_of_model = getattr(model.config, "prefix", None) or ""
        self.prefix = of_task.pop("prefix", None) or prefix_of_model
        self.defaults["protect"] = False
        if options.get("generation_config") is None:
            self.defaults["num_beams"] = 4
            # These are the library's own limits.
            limits = {options.get("max_length"), model.generation_config.max_length}
            if limits <= {None, 20}:
                self.defaults["max_new_tokens"] = 256
            known = GenerationConfig()
            for name, value in of_task.items():
                if hasattr(known, name):
                    self.defaults[name] = value

    def direct(self, options: TranslationOptions) -> Direction:
        """Return the direction of a request, by default of the task's name, or refuse to guess
        one.
        """
        direction = Direction(options.src_lang, options.tgt_lang)
        named = DIRECTED_TASK.fullmatch(self.task)
        is_of_library = self.is_of_library and self.task == "translation"
        if direction != NO_DIRECTION or not (named or is_of_library):
            return direction
        languages = find_languages(self._tokenizer, at_end=self.is_of_library)
        if languages is None:
            return direction
        if named:
            return Direction(*named.groups())
        if languages.is_forced and options.forced_bos_token_id is None:
            requirement = "A model of many languages must have `src_lang` and `tgt_lang`"
            raise OptionError(f"{requirement}, got none. Give both.")
        return direction

    def encode(
        self, texts: Sequence[str], options: TranslationOptions, prefix: str
    ) -> list[list[int]]:
        """Return the token ids of sources, with a prefix of the task and the tokens of the
        languages.
        """
        ids: list[list[int]] = []
        if not self.is_of_library:
            ids = encode_sources(self._model, self._tokenizer, list(texts))
        elif texts:
            sources = [prefix + text for text in texts]
            truncation = options.truncation or False
            ids = self._tokenizer(sources, truncation=truncation)["input_ids"]
        direction = self.direct(options)
        return begin_with_languages(self._tokenizer, ids, direction, self.is_of_library)

    def forced(self, options: TranslationOptions) -> dict[str, Any]:
        """Return the options of decoding that make a translation begin with its language, and end
        before a text.
        """
        direction = self.direct(options)
        forced = forced_language(self._tokenizer, direction, self.is_of_library)
        if options.stop_sequence:
            stop = self._tokenizer.encode(options.stop_sequence, add_special_tokens=False)
            forced["eos_token_id"] = stop[0]
        return forced
