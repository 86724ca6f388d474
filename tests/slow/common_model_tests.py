"""Apply transformers' own common tests of models and configurations to our classes, and to Marian's
for comparison.

`tests/slow/test_common_model_tests.py` runs this file in a separate process, where `tests` is the
library's package. Pytest does not collect it otherwise.
"""

import unittest

from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor
from tests.test_tensor_parallel_mixin import TensorParallelTesterMixin
from transformers import MarianConfig, MarianModel, MarianMTModel

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerDecoderModel,
    VanillaTransformerEncoderConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForMaskedLM,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
    VanillaTransformerLongDecoderModel,
    VanillaTransformerLongForCausalLM,
    VanillaTransformerLongForConditionalGeneration,
    VanillaTransformerLongModel,
    VanillaTransformerModel,
)

VOCABULARY, PAD, START, EOS = 99, 0, 1, 2


class TinySeq2Seq:
    """Configuration of two small layers per stack, and inputs for it; the tests read the
    attributes.
    """

    batch_size = 13
    seq_length = encoder_seq_length = decoder_seq_length = key_length = 7
    is_training = True
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    pad_token_id = PAD

    def __init__(self, config_class, stacks=("encoder", "decoder"), **changes):
        self.config_class = config_class
        self.stacks = stacks
        self.changes = changes

    def get_config(self):
        return self.config_class(
            vocab_size=VOCABULARY,
            d_model=self.hidden_size,
            **self.stack_sizes(),
            max_position_embeddings=50,
            pad_token_id=PAD,
            bos_token_id=START,
            eos_token_id=EOS,
            **({"decoder_start_token_id": START} if len(self.stacks) == 2 else {}),
            **self.changes,
        )

    def stack_sizes(self):
        sizes = {
            "layers": self.num_hidden_layers,
            "attention_heads": self.num_attention_heads,
            "ffn_dim": 32,
        }
        return {f"{stack}_{name}": size for stack in self.stacks for name, size in sizes.items()}

    def prepare_config_and_inputs_for_common(self):
        def random_tokens():
            return ids_tensor([self.batch_size, self.seq_length], VOCABULARY).clamp(3)

        source, target = random_tokens(), random_tokens()
        source[:, -1] = EOS
        inputs = {"input_ids": source, "attention_mask": source.ne(PAD)}
        return self.get_config(), {
            **inputs,
            "decoder_input_ids": target,
            "decoder_attention_mask": target.ne(PAD),
        }


class TinyStack(TinySeq2Seq):
    """Configuration and inputs of a single stack."""

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        return config, {name: inputs[name] for name in ("input_ids", "attention_mask")}


class Seq2SeqTests(ModelTesterMixin, GenerationTesterMixin, TensorParallelTesterMixin):
    """The tests of one family of classes: an encoder-decoder without and with the output
    projection.
    """

    config_class = None
    is_encoder_decoder = True
    model_tester = None

    def setUp(self):
        self.model_tester = TinySeq2Seq(self.config_class, **self.changes)
        self.config_tester = ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_class_with_a_loss_gets_labels(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        base, full = self.all_model_classes
        assert "labels" not in self._prepare_for_class(inputs, base, return_labels=True)
        inputs = self._prepare_for_class(inputs, full, return_labels=True)
        assert full(config)(**inputs).loss.requires_grad


class VanillaTransformerTest(Seq2SeqTests, unittest.TestCase):
    """The paper's architecture."""

    config_class = VanillaTransformerConfig
    all_model_classes = (VanillaTransformerModel, VanillaTransformerForConditionalGeneration)
    changes = {}


class OtherArchitectureTest(VanillaTransformerTest):
    """All options that differ from the paper."""

    changes = {
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": VOCABULARY,
        "normalize_before": True,
        "attention_bias": True,
        "lm_head_bias": True,
        "position_embedding_type": "learned",
        "init_std": 0.02,
        "activation_function": "gelu",
    }

    @unittest.skip(
        "The test embeds both sides with the source embeddings, which are not shared here."
    )
    def test_inputs_embeds_matches_input_ids(self):
        pass

    @unittest.skip(
        "The test expects the target vocabulary to grow with the source vocabulary, which is "
        "separate here."
    )
    def test_resize_embeddings_untied(self):
        pass


class StackTests(ModelTesterMixin, TensorParallelTesterMixin):
    """The tests of decoder-only and encoder-only models."""

    config_class = None
    stack = "decoder"
    changes = {}
    is_encoder_decoder = False

    def setUp(self):
        self.model_tester = TinyStack(self.config_class, (self.stack,), **self.changes)
        self.config_tester = ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_classes_with_a_loss_get_labels(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        for model_class in self.all_model_classes[1:]:
            batch = self._prepare_for_class(inputs, model_class, return_labels=True)
            assert model_class(config)(**batch).loss.requires_grad


class DecoderOnlyTest(StackTests, GenerationTesterMixin, unittest.TestCase):
    """Decoder-only, as GPT."""

    config_class = VanillaTransformerDecoderConfig
    all_model_classes = (VanillaTransformerDecoderModel, VanillaTransformerForCausalLM)


class EncoderOnlyTest(StackTests, unittest.TestCase):
    """Encoder-only, as BERT."""

    stack = "encoder"
    config_class = VanillaTransformerEncoderConfig
    all_model_classes = (
        VanillaTransformerEncoderModel,
        VanillaTransformerForMaskedLM,
        VanillaTransformerForSequenceClassification,
    )


class LongTests:
    """Models that compute no matrix of attention probabilities."""

    has_attentions = False

    @unittest.skip(
        "The test fills a `DynamicCache`; these models need the cache of `create_cache`."
    )
    def test_bc_cache_name_forward(self):
        pass


class LinearTest(LongTests, VanillaTransformerTest):
    """Linear attention in the encoder, in the decoder and as cross-attention."""

    config_class = VanillaTransformerLongConfig
    all_model_classes = (
        VanillaTransformerLongModel,
        VanillaTransformerLongForConditionalGeneration,
    )
    changes = {"layer_types": "linear_attention", "cross_attention_type": "linear_attention"}


class LshTest(LinearTest):
    """LSH attention and chunked feed-forward layers."""

    changes = {"layer_types": "lsh_attention", "chunk_size_feed_forward": 3}


class TransfoXLTest(LinearTest):
    """Transformer-XL attention (relative positions)."""

    has_attentions = True
    changes = {"layer_types": "transfo_xl_attention"}


class LinearDecoderTest(LongTests, DecoderOnlyTest):
    """Linear attention in a decoder-only model."""

    config_class = VanillaTransformerLongDecoderConfig
    all_model_classes = (VanillaTransformerLongDecoderModel, VanillaTransformerLongForCausalLM)
    changes = {"layer_types": "linear_attention"}


class LshDecoderTest(LinearDecoderTest):
    """LSH attention in a decoder-only model."""

    changes = {"layer_types": "lsh_attention"}


class TransfoXLDecoderTest(LinearDecoderTest):
    """Transformer-XL attention in a decoder-only model."""

    has_attentions = True

    changes = {"layer_types": "transfo_xl_attention"}


class MarianTest(Seq2SeqTests, unittest.TestCase):
    """The most similar model of the library, as a reference."""

    config_class = MarianConfig
    all_model_classes = (MarianModel, MarianMTModel)
    changes = {}
