"""Run folders that `vanilla-transformer convert` wrote for ONNX Runtime."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.decoding.pretrained import RUNTIME_FILES, limit_threads, refusing_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin
from vanilla_transformer.utils.import_utils import requires_extra

# Names of the graphs
ENCODER = RUNTIME_FILES["onnx"].removesuffix(".onnx")
DECODER, DECODER_WITH_PAST = "decoder_model", "decoder_with_past_model"


def load_onnx(folder: str | Path, tokenizer: Any, device: Any) -> tuple["OnnxModel", Any]:
    """Load the model and the tokenizer of `TranslationPipeline(folder, backend="onnx")`, for the
    CPU.
    """
    if str(device or "cpu") != "cpu":
        raise UserError(f"`device` must be 'cpu' with the backend 'onnx', got {str(device)!r}.")
    with refusing_files(folder):
        return OnnxModel(folder), tokenizer or AutoTokenizer.from_pretrained(folder)


class OnnxModel(PaperGenerationMixin, PreTrainedModel):
    """
    A translation model whose encoder and decoder are graphs of ONNX Runtime, for `generate()`.

    Args:
        folder: Written by `vanilla-transformer convert --target_format onnx`.
    """

    config_class = VanillaTransformerConfig
    main_input_name = "input_ids"

    def __init__(self, folder: str | Path):
        with requires_extra("onnx", "ONNX Runtime"):
            import onnxruntime
            from transformers.exporters import ExportedModel
        super().__init__(VanillaTransformerConfig.from_pretrained(folder))
        self.generation_config = GenerationConfig.from_pretrained(folder)
        limit_threads()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._graphs = ExportedModel.from_pretrained(
            folder, device="cpu", session_options=options
        ).runners
        self.eval()

    @property
    def device(self) -> torch.device:
        """The CPU: a model without weights of its own has no other place."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the logits."""
        return torch.float32

    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Generate token ids as [`PaperGenerationMixin`] does, given `input_ids` and perhaps
        `attention_mask`.
        """
        ids = kwargs.pop("input_ids") if inputs is None else inputs
        mask = kwargs.pop("attention_mask", None)
        mask = ids.ne(self.config.pad_token_id).long() if mask is None else mask
        encoded = self._graphs[ENCODER](input_ids=ids, attention_mask=mask)
        return super().generate(
            None, *args, input_ids=ids, attention_mask=mask, encoder_outputs=encoded, **kwargs
        )

    def forward(
        self,
        decoder_input_ids: torch.Tensor,
        encoder_outputs: Any,
        attention_mask: torch.Tensor,
        cache: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the logits of the next tokens, and the cache."""
        inputs = {"encoder_outputs": encoder_outputs, "attention_mask": attention_mask}
        if cache is None or cache.get_seq_length() == 0:
            return self._graphs[DECODER](**inputs, decoder_input_ids=decoder_input_ids)
        return self._graphs[DECODER_WITH_PAST](
            **inputs, decoder_input_ids=decoder_input_ids, cache=cache
        )
