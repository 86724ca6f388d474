"""Run folders that `vanilla-transformer convert` wrote for CTranslate2."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, GenerationConfig

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import RUNTIME_FILES, limit_threads, refusing_files
from vanilla_transformer.errors import MissingFileError, UserError, UserFileError
from vanilla_transformer.generation_vanilla_transformer import closest_margin, length_penalty
from vanilla_transformer.utils.import_utils import requires_extra

# The file, in a folder for CTranslate2, with the configuration of the converted model.
CONVERTED_CONFIG = RUNTIME_FILES["ctranslate2"]
_MAX_NEW_TOKENS_BEYOND_SOURCE = (
    50  # section 6.1, for a folder whose generation config gives no limit
)
_PARAMETERS = {"num_beams", "num_return_sequences", "length_penalty", "length_penalty_type"}
_PARAMETERS |= {
    "max_new_tokens",
    "max_new_tokens_beyond_source",
    "repetition_penalty",
    "forced_bos_token_id",
}
_PARAMETERS |= {"no_repeat_ngram_size", "do_sample", "temperature", "top_k", "top_p"}
_DEFAULTS = {
    "length_penalty": 1.0,
    "repetition_penalty": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "temperature": 1.0,
}


def load_ctranslate2(
    folder: str | Path, tokenizer: Any, device: Any
) -> tuple["CTranslate2Model", Any]:
    """Load the model and the tokenizer of `TranslationPipeline(folder, backend="ctranslate2")`."""
    if tokenizer is None:
        with refusing_files(folder):
            tokenizer = AutoTokenizer.from_pretrained(folder, config=read_converted_config(folder))
    return CTranslate2Model(folder, tokenizer, device or "cpu"), tokenizer


class CTranslate2Model:
    """
    A converted model with the interface that `TranslationPipeline` needs of a model.

    Args:
        folder: Written by `vanilla-transformer convert`.
        tokenizer: The tokenizer of the same folder.
        device: `"cpu"`, `"cuda"` or `"cuda:1"`.
    """

    training = False
    input_modalities = output_modalities = ("text",)

    def __init__(self, folder: str | Path, tokenizer: Any, device: str | torch.device = "cpu"):
        with requires_extra("ctranslate2", "CTranslate2"):
            import ctranslate2
        self.device = torch.device(device)
        self.config = read_converted_config(folder)
        with refusing_files(folder):
            self.generation_config = GenerationConfig.from_pretrained(folder)
        self._tokenizer, self._names = tokenizer, token_names(tokenizer)
        try:
            index = self.device.index or 0
            limit_threads()
            options = {"device_index": index, "intra_threads": torch.get_num_threads()}
            self._translator = ctranslate2.Translator(
                str(folder), device=self.device.type, **options
            )
        except RuntimeError as error:
            raise UserFileError(f"Cannot load {folder} with CTranslate2: {error}") from error

    def can_generate(self) -> bool:
        return True

    def eval(self) -> "CTranslate2Model":
        return self

    def train(self, mode: bool = True) -> "CTranslate2Model":
        return self

    def generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any
    ) -> torch.Tensor:
        """
        Return token ids `(batch_size * num_return_sequences, target_length)`, best first for each
        sentence.

        Supports `num_beams`, `num_return_sequences`, `length_penalty`, `length_penalty_type`,
        `max_new_tokens`, `max_new_tokens_beyond_source`, `repetition_penalty`,
        `no_repeat_ngram_size`, `forced_bos_token_id` and, with `do_sample`, `temperature`, `top_k`
        and `top_p`. The search compares hypotheses by CTranslate2's length penalty, `"power"`; the
        finished ones are sorted by the requested one. The limit beyond the source applies to the
        longest source of the batch.
        """
        options = self._options(kwargs)
        sources = [
            ids[kept.bool()].tolist() for ids, kept in zip(input_ids, attention_mask, strict=True)
        ]
        margin = closest_margin([kwargs, vars(self.generation_config)])
        if margin is None and options.max_new_tokens is None:
            margin = _MAX_NEW_TOKENS_BEYOND_SOURCE
        limit = options.max_new_tokens if margin is None else max(map(len, sources)) + margin
        beams, first, sampling = (
            options.num_beams or 1,
            options.forced_bos_token_id,
            dict[str, Any](),
        )
        if options.do_sample:
            beams = 1
            sampling = {"sampling_topk": options.top_k, "sampling_topp": options.top_p}
            sampling["sampling_temperature"] = options.temperature
        results = self._translator.translate_batch(
            [[self._names[token] for token in source] for source in sources],
            # The token with which each translation begins, such as its language in NLLB.
            target_prefix=None if first is None else [[self._names[first]]] * len(sources),
            beam_size=beams,
            num_hypotheses=max(beams, options.num_return_sequences or 1),
            length_penalty=options.length_penalty,
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
            max_decoding_length=limit,
            return_scores=True,
            disable_unk=True,
            use_vmap=True,  # where the folder has a shortlist
            **sampling,
        )
        best_first = [self._best_hypotheses(result, options) for result in results]
        rows = [ids for hypotheses in best_first for ids in hypotheses]
        return nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=self._tokenizer.pad_token_id
        )

    def _options(self, kwargs: Mapping[str, Any]) -> GenerationConfig:
        """Return the folder's generation config, updated by the arguments of the call, with
        defaults.
        """
        unknown = kwargs.keys() - _PARAMETERS
        if unknown:
            raise UserError(
                f"Arguments for CTranslate2 must be of {', '.join(sorted(_PARAMETERS))}; got "
                f"{min(unknown)!r}."
            )
        options = copy.deepcopy(self.generation_config)
        options.update(**kwargs)
        for name, default in _DEFAULTS.items():
            if getattr(options, name) is None:
                setattr(options, name, default)
        return options

    def _best_hypotheses(self, result: Any, options: GenerationConfig) -> list[torch.Tensor]:
        """Return the ids of the `num_return_sequences` best hypotheses by the requested length
        penalty.
        """
        alpha = options.length_penalty
        scored = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            length = len(tokens) + 1  # EOS
            if getattr(options, "length_penalty_type", None) == "wu":
                score *= length**alpha / length_penalty(length, alpha, "wu")
            scored.append((score, tokens))
        scored.sort(key=lambda pair: -pair[0])
        kept = [tokens for _, tokens in scored[: options.num_return_sequences or 1]]
        return [
            torch.tensor(self._tokenizer.convert_tokens_to_ids(tokens), dtype=torch.long)
            for tokens in kept
        ]


def token_names(tokenizer: Any) -> dict[int, str]:
    """Return the names of tokens in the vocabulary; `convert_ids_to_tokens` may return others for
    added ones.
    """
    return {index: token for token, index in tokenizer.get_vocab().items()}


def read_converted_config(folder: str | Path) -> VanillaTransformerConfig:
    """Return the configuration of the model that a folder for CTranslate2 was converted from."""
    path = Path(folder) / CONVERTED_CONFIG
    if not path.is_file():
        raise MissingFileError(
            f"{folder} must be a folder that `vanilla-transformer convert` wrote for CTranslate2, "
            f"but it has no {path.name}."
        )
    return VanillaTransformerConfig.from_json_file(path)
