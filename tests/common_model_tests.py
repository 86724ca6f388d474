"""
transformers' own common tests of models and configurations, on our classes and on Marian's for comparison.

`test_common_model_tests.py` runs this file in a process of its own, in which `tests` is the library's package. It is
not collected otherwise.
"""

import unittest

from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor
from tests.test_tensor_parallel_mixin import TensorParallelTesterMixin
from transformers import MarianConfig, MarianModel, MarianMTModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

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

# The tests look up by these names which labels a class takes, and pass over the loss and training of a class that they
# do not find. Registering with the Auto classes does not write them.
MODEL_MAPPING_NAMES["vanilla_transformer"] = "VanillaTransformerModel"
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["vanilla_transformer"] = "VanillaTransformerForConditionalGeneration"
DECODER, ENCODER = "vanilla_transformer_decoder", "vanilla_transformer_encoder"
MODEL_MAPPING_NAMES[DECODER] = "VanillaTransformerDecoderModel"
MODEL_MAPPING_NAMES[ENCODER] = "VanillaTransformerEncoderModel"
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[DECODER] = "VanillaTransformerForCausalLM"
MODEL_FOR_MASKED_LM_MAPPING_NAMES[ENCODER] = "VanillaTransformerForMaskedLM"
MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[ENCODER] = "VanillaTransformerForSequenceClassification"
LONG, LONG_DECODER = "vanilla_transformer_long", "vanilla_transformer_long_decoder"
MODEL_MAPPING_NAMES[LONG] = "VanillaTransformerLongModel"
MODEL_MAPPING_NAMES[LONG_DECODER] = "VanillaTransformerLongDecoderModel"
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[LONG] = "VanillaTransformerLongForConditionalGeneration"
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[LONG_DECODER] = "VanillaTransformerLongForCausalLM"

VOCABULARY, PAD, START, EOS = 99, 0, 1, 2


class TinySeq2Seq:
    """A configuration of two small layers on each side, and inputs for it; the tests read the attributes."""

    batch_size = 13
    seq_length = encoder_seq_length = decoder_seq_length = key_length = 7
    is_training = True
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    pad_token_id = PAD

    def __init__(self, config_class, **changes):
        self.config_class = config_class
        self.changes = changes

    def get_config(self):
        return self.config_class(
            vocab_size=VOCABULARY,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=50,
            pad_token_id=PAD,
            bos_token_id=START,
            eos_token_id=EOS,
            decoder_start_token_id=START,
            **self.changes,
        )

    def prepare_config_and_inputs_for_common(self):
        def some_tokens():
            return ids_tensor([self.batch_size, self.seq_length], VOCABULARY).clamp(3)

        source, target = some_tokens(), some_tokens()
        source[:, -1] = EOS
        inputs = {"input_ids": source, "attention_mask": source.ne(PAD)}
        return self.get_config(), {**inputs, "decoder_input_ids": target, "decoder_attention_mask": target.ne(PAD)}


class TinyStack(TinySeq2Seq):
    """The same of one side alone."""

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        return config, {name: inputs[name] for name in ("input_ids", "attention_mask")}


class Seq2SeqTests(ModelTesterMixin, GenerationTesterMixin, TensorParallelTesterMixin):
    """The tests of one family of classes: an encoder-decoder without and with the output projection."""

    config_class = None
    is_encoder_decoder = True
    model_tester = None

    def setUp(self):
        self.model_tester = TinySeq2Seq(self.config_class, **self.changes)
        self.config_tester = ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_the_class_with_a_loss_is_given_labels(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        base, whole = self.all_model_classes
        assert "labels" not in self._prepare_for_class(inputs, base, return_labels=True)
        inputs = self._prepare_for_class(inputs, whole, return_labels=True)
        assert whole(config)(**inputs).loss.requires_grad


class VanillaTransformerTest(Seq2SeqTests, unittest.TestCase):
    """The paper's architecture."""

    config_class = VanillaTransformerConfig
    all_model_classes = (VanillaTransformerModel, VanillaTransformerForConditionalGeneration)
    changes = {}


class OtherArchitectureTest(VanillaTransformerTest):
    """Every choice that is not in the paper."""

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

    @unittest.skip("It embeds both sides with the source's embeddings, which are not the target's here.")
    def test_inputs_embeds_matches_input_ids(self):
        pass

    @unittest.skip("It expects the target's vocabulary to grow with the source's, which is another one here.")
    def test_resize_embeddings_untied(self):
        pass


class StackTests(ModelTesterMixin, TensorParallelTesterMixin):
    """The tests of the models of one side alone."""

    config_class = None
    changes = {}
    is_encoder_decoder = False

    def setUp(self):
        self.model_tester = TinyStack(self.config_class, **self.changes)
        self.config_tester = ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_the_classes_with_a_loss_are_given_labels(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        for model_class in self.all_model_classes[1:]:
            given = self._prepare_for_class(inputs, model_class, return_labels=True)
            assert model_class(config)(**given).loss.requires_grad


class DecoderAloneTest(StackTests, GenerationTesterMixin, unittest.TestCase):
    """GPT's way."""

    config_class = VanillaTransformerDecoderConfig
    all_model_classes = (VanillaTransformerDecoderModel, VanillaTransformerForCausalLM)


class EncoderAloneTest(StackTests, unittest.TestCase):
    """BERT's way."""

    config_class = VanillaTransformerEncoderConfig
    all_model_classes = (
        VanillaTransformerEncoderModel,
        VanillaTransformerForMaskedLM,
        VanillaTransformerForSequenceClassification,
    )


class LongTests:
    """What has no square of probabilities, and no keys and values at places of their own."""

    has_attentions = False


class LinearTest(LongTests, VanillaTransformerTest):
    """Linear attention, in encoder, decoder and between them."""

    config_class = VanillaTransformerLongConfig
    all_model_classes = (VanillaTransformerLongModel, VanillaTransformerLongForConditionalGeneration)
    changes = {"layer_types": "linear_attention", "cross_attention_type": "linear_attention"}


class HashingTest(LinearTest):
    """LSH attention, and feed-forward in chunks."""

    changes = {"layer_types": "lsh_attention", "chunk_size_feed_forward": 3}


class RelativeTest(LinearTest):
    """Relative positions."""

    has_attentions = True
    changes = {"layer_types": "transfo_xl_attention"}


class LinearDecoderTest(LongTests, DecoderAloneTest):
    """Linear attention in the decoder alone."""

    config_class = VanillaTransformerLongDecoderConfig
    all_model_classes = (VanillaTransformerLongDecoderModel, VanillaTransformerLongForCausalLM)
    changes = {"layer_types": "linear_attention"}


class HashingDecoderTest(LinearDecoderTest):
    """LSH attention in the decoder alone."""

    changes = {"layer_types": "lsh_attention"}


class RelativeDecoderTest(LinearDecoderTest):
    """Relative positions in the decoder alone."""

    has_attentions = True

    changes = {"layer_types": "transfo_xl_attention"}


class MarianTest(Seq2SeqTests, unittest.TestCase):
    """What the library's nearest relative passes."""

    config_class = MarianConfig
    all_model_classes = (MarianModel, MarianMTModel)
    changes = {}
