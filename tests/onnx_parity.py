"""Parity of exported ONNX graphs in ONNX Runtime with the model in PyTorch."""

import pytest
import torch
from transformers import GenerationMixin
from transformers.exporters import ExportedModel

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.onnx import DECODER, DECODER_WITH_PAST, ENCODER
from vanilla_transformer.loading.model_folders import save_model_folder

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Zwei Hunde", "1", ""]


def run_graphs(folder):
    """Return a `forward` that runs the graphs instead of the PyTorch decoder, for
    `GenerationMixin.generate`.
    """
    graphs = ExportedModel.from_pretrained(folder, device="cpu").runners

    def forward(encoder_outputs, decoder_input_ids, attention_mask, cache=None, **kwargs):
        inputs = {"encoder_outputs": encoder_outputs, "attention_mask": attention_mask}
        if cache is None or cache.get_seq_length() == 0:
            return graphs[DECODER](**inputs, decoder_input_ids=decoder_input_ids)
        return graphs[DECODER_WITH_PAST](**inputs, decoder_input_ids=decoder_input_ids, cache=cache)

    return graphs[ENCODER], forward


def assert_decoder_takes_prefixes(model, inputs, folder):
    """Compare the logits of a translation that starts with three tokens."""
    graphs = ExportedModel.from_pretrained(folder, device="cpu").runners
    prefix = {"decoder_input_ids": torch.tensor([[1, 40, 50]] * len(inputs["input_ids"]))}
    encoder_outputs = graphs[ENCODER](**inputs)
    encoded = {"encoder_outputs": encoder_outputs, "attention_mask": inputs["attention_mask"]}
    logits = graphs[DECODER](**encoded, **prefix).logits
    expected = model(**inputs, **prefix).logits
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def assert_onnx_parity(config, tokenizer, folder):
    """Export a random model into `folder` and compare greedy and beam search, tokens and scores."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    ours = save_model_folder(model, tokenizer, folder / "ours")
    comparison = WRITERS["onnx"](ours, folder / "onnx", SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (5, 5)
    assert_graphs_translate_alike(model, tokenizer, folder / "onnx")


def assert_graphs_translate_alike(model, tokenizer, folder):
    """Compare beam search of the model and of the graphs in `folder`, tokens and scores."""
    encoder, forward = run_graphs(folder)
    for sentences in (SENTENCES[:1], SENTENCES):  # a batch of one as well
        inputs = tokenizer(sentences, padding=True, return_tensors="pt")
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12}
        options |= {"early_stopping": True}
        options |= {"output_scores": True, "return_dict_in_generate": True}
        expected = GenerationMixin.generate(model, **inputs, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "forward", forward)
            encoded = {"encoder_outputs": encoder(**inputs)}
            outputs = GenerationMixin.generate(model, **encoded, **inputs, **options)
        assert_decoder_takes_prefixes(model, inputs, folder)
        assert outputs.sequences.tolist() == expected.sequences.tolist()
        scores = expected.sequences_scores
        torch.testing.assert_close(outputs.sequences_scores, scores, atol=1e-4, rtol=1e-4)
