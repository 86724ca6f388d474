"""
`generate()`: the paper's beam search and its length limit per sentence. Caches, batches and other
options of transformers' `generate()` do not change the output.
"""

import copy
import logging

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
)
from transformers.generation import GenerationMixin
from transformers.generation.streamers import BaseStreamer

from tests.generation_models import (
    EOS,
    MARGIN,
    PAD,
    SOURCES,
    START,
    all_hypotheses,
    build,
    padded,
    partly_trained_model,
    penalty,
)
from tests.sweeps import rare, sample
from tests.tiny import tiny_config
from vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    paper_generation_config,
)

GREEDY = {"num_beams": 1}
BEAM = {"num_beams": 4}
SAMPLING = {"num_beams": 1, "do_sample": True}
MODES = {"greedy": GREEDY, "beam": BEAM, "sampling": SAMPLING}
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
search_modes = pytest.mark.parametrize("mode", [GREEDY, BEAM], ids=["greedy", "beam"])
SPECIAL_TOKENS = {"pad_token_id": PAD, "eos_token_id": EOS}
SPECIAL_TOKENS["decoder_start_token_id"] = START
SCORED = {"return_dict_in_generate": True, "output_scores": True}
LEARNED = {"position_embedding_type": "learned"}


class StockGenerationModel(VanillaTransformerForConditionalGeneration):
    """The same network with the unchanged `generate()` of transformers."""

    generate = GenerationMixin.generate
    _update_finished_beams = GenerationMixin._update_finished_beams
    _check_early_stop_heuristic = staticmethod(GenerationMixin._check_early_stop_heuristic)


def without_eos(model):
    """Change the model so that it never generates EOS, and return it."""
    model.lm_head.bias.data[EOS] = -1e4
    return model


def new_tokens(row, prompt=1):
    """Return the generated tokens up to EOS, or up to the padding that follows a hypothesis cut by
    the limit.
    """
    tokens = row.tolist()[prompt:]
    if EOS in tokens:
        return tokens[: tokens.index(EOS) + 1]
    while tokens and tokens[-1] == PAD:
        tokens.pop()
    return tokens


def generate_with_seed(model, *args, **kwargs):
    torch.manual_seed(1)
    return model.generate(*args, **kwargs)


def assert_same_rows(outputs, expected):
    assert [new_tokens(row) for row in outputs] == [new_tokens(row) for row in expected]


def padded_rows(rows, length):
    """Return rows of tokens with the padding that follows them."""
    return [tokens + [PAD] * (length - len(tokens)) for tokens in rows]


def assert_near(scores, expected):
    torch.testing.assert_close(scores, torch.tensor(expected), atol=1e-4, rtol=1e-5)


def assert_as_in_paper(config):
    assert (config.num_beams, config.length_penalty) == (4, 0.6)
    assert (config.length_penalty_type, config.early_stopping) == ("wu", "never")
    assert config.max_new_tokens_beyond_source == 50


@pytest.fixture
def transformers_warnings():
    """Collect the messages that transformers logs, including warnings logged only once."""
    texts = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


# --- The paper's decoding -------------------------------------------------------------------------


def test_paper_generation_config_follows_section_6_1():
    config = paper_generation_config(PAD, EOS, START)
    assert_as_in_paper(config)
    assert {name: getattr(config, name) for name in SPECIAL_TOKENS} == SPECIAL_TOKENS


@pytest.mark.parametrize("seed", [0, rare(1), rare(2)])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("kind", ["wu", "power"])
def test_beam_search_with_enough_beams_matches_exhaustive_search(kind, alpha, seed):
    model = build(seed, vocab_size=5)
    sources = [[3, 4, EOS], [EOS]]
    outputs = model.generate(
        padded(sources),
        num_beams=350,  # more than the number of hypotheses and than the vocabulary size
        num_return_sequences=12,
        length_penalty=alpha,
        length_penalty_type=kind,
        max_new_tokens_beyond_source=1,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for index, source in enumerate(sources):
        expected = all_hypotheses(model, source, len(source) + 1, kind, alpha)[:12]
        rows = slice(index * 12, index * 12 + len(expected))
        tokens = [row.tolist()[1:] for row in outputs.sequences[rows]]
        length = outputs.sequences.shape[1] - 1
        scores, hypotheses = zip(*expected, strict=True)
        assert tokens == padded_rows(hypotheses, length)
        assert_near(outputs.sequences_scores[rows], scores)


@torch.no_grad()
def plain_beam_search(model, source, limit, beams, kind, alpha):
    """Run a beam search in plain Python that always continues to `limit` tokens."""
    running, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        candidates = []
        for score, tokens in running:
            ids = torch.tensor([[START, *tokens]])
            logits = model(torch.tensor([source]), decoder_input_ids=ids).logits
            log_probabilities = logits[0, -1].log_softmax(-1).tolist()
            for token, value in enumerate(log_probabilities):
                candidates.append((score + value, [*tokens, token]))
        running = []
        best = sorted(candidates, reverse=True)[: 2 * beams]
        for rank, (score, tokens) in enumerate(best):
            if tokens[-1] != EOS and length < limit:
                running.append((score, tokens))
            elif rank < beams:
                finished.append((score / penalty(kind, alpha, length), tokens))
        running = running[:beams]
    return sorted(finished, reverse=True)[:beams]


@pytest.mark.parametrize("seed", sample(range(4), 0))
@pytest.mark.parametrize(("kind", "alpha"), [("wu", 0.6), ("wu", 2.0), ("power", 0.6)])
def test_beam_search_early_stopping_matches_search_to_limit(kind, alpha, seed):
    model = partly_trained_model(seed)
    outputs = model.generate(
        padded(SOURCES),
        length_penalty=alpha,
        length_penalty_type=kind,
        num_return_sequences=4,
        return_dict_in_generate=True,
        output_scores=True,
    )
    length = outputs.sequences.shape[1] - 1
    for index, source in enumerate(SOURCES):
        limit = len(source) + MARGIN
        expected = plain_beam_search(model, source, limit, 4, kind, alpha)
        scores, hypotheses = zip(*expected, strict=True)
        rows = slice(4 * index, 4 * index + 4)
        tokens = [row.tolist()[1:] for row in outputs.sequences[rows]]
        assert tokens == padded_rows(hypotheses, length)
        assert_near(outputs.sequences_scores[rows], scores)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, -1.0])
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_length_penalty_power_matches_transformers(early_stopping, alpha):
    padding = {"pad_token_id": 3}  # with 0, the library pads with EOS
    paper = partly_trained_model(**padding)
    plain = partly_trained_model(model_class=StockGenerationModel, **padding)
    ids = padded(SOURCES, pad=3)
    results = []
    for model, ours in ((paper, {"length_penalty_type": "power"}), (plain, {})):
        settings = {"length_penalty": alpha, "early_stopping": early_stopping}
        settings |= {"num_beams": 4, "max_new_tokens": 9, "num_return_sequences": 3}
        model.generation_config = GenerationConfig(**settings)
        model.generation_config.update(**SPECIAL_TOKENS | padding)
        mask = ids.ne(3).long()
        results.append(model.generate(ids, attention_mask=mask, **SCORED, **ours))
    ours, theirs = results
    assert torch.equal(ours.sequences, theirs.sequences)
    assert torch.equal(ours.sequences_scores, theirs.sequences_scores)
    assert torch.equal(ours.beam_indices, theirs.beam_indices)


@every_mode
def test_generate_stops_at_source_length_plus_margin(mode):
    model = without_eos(build(lm_head_bias=True, pad_token_id=None))
    model.generation_config.max_new_tokens_beyond_source = 50
    mask = padded(SOURCES).ne(PAD).long()
    options = {"attention_mask": mask, "bad_words_ids": [[PAD]]}
    outputs = generate_with_seed(model, padded(SOURCES), **options, **mode)
    lengths = outputs[:, 1:].ne(PAD).sum(dim=1).tolist()
    assert lengths == [len(source) + 50 for source in SOURCES]


@pytest.mark.parametrize("without_start", [0, 1, len(SOURCES)])
def test_generate_limit_excludes_prompt_for_each_returned_sequence(without_start):
    """transformers prepends the start symbol if all prompts of a batch lack it."""
    model = without_eos(build(lm_head_bias=True))
    ids, prompt = padded(SOURCES), torch.tensor([[START, 5, 6]] * len(SOURCES))
    prompt[:without_start, 0] = 7
    options = {"decoder_input_ids": prompt, "num_return_sequences": 2, **SAMPLING}
    outputs = generate_with_seed(model, ids, bad_words_ids=[[PAD]], **options)
    width = 4 if without_start == len(SOURCES) else 3
    assert torch.equal(outputs[::2, width - 3 : width], prompt)
    lengths = outputs[:, width:].ne(PAD).sum(dim=1).tolist()
    assert lengths == [len(source) + MARGIN for source in SOURCES for _ in range(2)]


def test_generate_pads_hypothesis_cut_by_limit():
    model = without_eos(build(lm_head_bias=True))
    options = {"num_return_sequences": 2, "bad_words_ids": [[PAD]]}
    outputs = model.generate(padded(SOURCES), **options)
    assert EOS not in outputs
    assert PAD in outputs
    in_dict = model.generate(padded(SOURCES), return_dict_in_generate=True, **options)
    assert torch.equal(in_dict.sequences, outputs)


def test_generate_limit_stays_within_learned_positions():
    model = build(lm_head_bias=True, max_position_embeddings=9, **LEARNED)
    model = without_eos(model)
    outputs = model.generate(padded(SOURCES), bad_words_ids=[[PAD]])
    assert outputs.shape[1] == 9
    assert outputs[3].ne(PAD).sum() == 1 + len(SOURCES[3]) + MARGIN


# --- Equal output with caches, batches and prompts ------------------------------------------------


@every_mode
def test_generate_with_static_cache_matches_dynamic_cache(mode):
    model = partly_trained_model()
    inputs = padded(SOURCES)
    expected = generate_with_seed(model, inputs, **mode)
    static = {"cache_implementation": "static", **mode}
    for _ in range(2):  # the second call reuses the cache of the first
        assert torch.equal(generate_with_seed(model, inputs, **static), expected)


@search_modes
@pytest.mark.parametrize("seed", [rare(0), rare(1), 2])
def test_generate_batch_matches_single_sentences(mode, seed):
    model = partly_trained_model(seed)
    together = model.generate(padded(SOURCES), **mode)
    alone = [model.generate(torch.tensor([source]), **mode)[0] for source in SOURCES]
    assert_same_rows(together, alone)


def test_generate_returns_n_best_in_order_of_scores():
    model = partly_trained_model()
    best = model.generate(padded(SOURCES), **SCORED)
    four = model.generate(padded(SOURCES), num_return_sequences=4, **SCORED)
    scores = four.sequences_scores.view(len(SOURCES), 4)
    assert torch.equal(scores, scores.sort(dim=1, descending=True).values)
    assert torch.equal(scores[:, 0], best.sequences_scores)
    assert_same_rows(four.sequences[::4], best.sequences)
    assert len({tuple(row) for row in four.sequences[:4].tolist()}) == 4


def test_compute_transition_scores_add_up_to_sequences_scores():
    model = partly_trained_model()
    outputs = model.generate(padded(SOURCES), **SCORED)
    transitions = model.compute_transition_scores(
        outputs.sequences, outputs.scores, outputs.beam_indices
    )
    lengths = (outputs.beam_indices >= 0).sum(dim=1)
    scores = transitions.sum(dim=1) / ((5 + lengths) / 6) ** 0.6
    torch.testing.assert_close(scores, outputs.sequences_scores)


@every_mode
def test_generate_continues_decoder_prompt(mode):
    model = partly_trained_model()
    prompt = torch.tensor([[START, 9, 9, 4]] * len(SOURCES))

    def continuation(prompt, **options):
        ids = padded(SOURCES)
        return generate_with_seed(model, ids, decoder_input_ids=prompt, **options, **mode)

    outputs = continuation(prompt)
    assert torch.equal(outputs[:, :4], prompt)
    assert torch.equal(outputs, continuation(prompt, use_cache=False))
    assert torch.equal(outputs, continuation(prompt[:, 1:]))


CACHES = [{}, {"use_cache": False}, {"cache_implementation": "static"}]


@pytest.mark.parametrize("cache", CACHES, ids=str)
@search_modes
def test_generate_continues_left_padded_prompts_as_alone(mode, cache):
    model = partly_trained_model()
    prompts = [[START, 9, 4], [START], [START, 3, 3, 8], [START, 5]]
    rows = [[PAD] * (4 - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (4 - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    # With start tokens in the first column, transformers does not prepend another one.
    ids = torch.tensor(rows)
    ids[:, 0] = START
    targets = {"decoder_input_ids": ids, "decoder_attention_mask": torch.tensor(mask)}
    together = model.generate(padded(SOURCES), **targets, **mode, **cache)
    for row, source, prompt in zip(together, SOURCES, prompts, strict=True):
        target = {"decoder_input_ids": torch.tensor([prompt])}
        (alone,) = model.generate(torch.tensor([source]), **target, **mode)
        assert new_tokens(row, prompt=4) == new_tokens(alone, prompt=len(prompt))


@every_mode
def test_generate_accepts_encoder_outputs(mode):
    model, ids = partly_trained_model(), padded(SOURCES)
    mask = ids.ne(PAD).long()
    encoder_outputs = model.get_encoder()(ids)
    states = encoder_outputs.last_hidden_state.clone()
    expected = generate_with_seed(model, ids, **mode)
    # Twice, since transformers repeats rows in place.
    for encoded in (encoder_outputs, encoder_outputs, (states,)):
        inputs = {"encoder_outputs": encoded, "attention_mask": mask}
        assert torch.equal(generate_with_seed(model, **inputs, **mode), expected)
    assert torch.equal(encoder_outputs.last_hidden_state, states)
    inputs = {"input_ids": ids, "encoder_outputs": encoder_outputs}
    assert torch.equal(generate_with_seed(model, **inputs, **mode), expected)


def test_generate_returns_attentions_of_given_encoder_outputs():
    model, ids = partly_trained_model(attn_implementation="eager"), padded(SOURCES)
    encoder_outputs = model.get_encoder()(ids, output_attentions=True)
    assert encoder_outputs.hidden_states is None
    asked = {"output_attentions": True, "return_dict_in_generate": True, "num_beams": 1}
    outputs = model.generate(encoder_outputs=encoder_outputs, **asked)
    assert torch.equal(outputs.encoder_attentions[0], encoder_outputs.attentions[0])


def test_generate_treats_encoder_outputs_without_mask_as_tokens():
    model = without_eos(build(lm_head_bias=True))
    ids = padded([[5, 6, 7, EOS], [8, 9, 3, EOS]])
    outputs = model.generate(encoder_outputs=model.get_encoder()(ids))
    assert torch.equal(outputs, model.generate(ids))
    assert outputs.shape == (2, 1 + 4 + MARGIN)


@every_mode
def test_generate_accepts_inputs_embeds(mode):
    model, ids = partly_trained_model(), padded(SOURCES)
    inputs = {"inputs_embeds": model.get_input_embeddings()(ids)}
    inputs["attention_mask"] = ids.ne(PAD).long()
    outputs = generate_with_seed(model, **inputs, **mode)
    assert torch.equal(outputs, generate_with_seed(model, ids, **mode))


# --- Parameters -----------------------------------------------------------------------------------


def count_new_tokens(model, *args, **kwargs):
    """Return the number of new tokens for a source of 3 tokens."""
    outputs = model.generate(torch.tensor([[5, 6, EOS]]), *args, num_beams=1, **kwargs)
    return outputs.shape[1] - 1


BEYOND = "max_new_tokens_beyond_source"
LIMITS = [
    ({}, None, {}, 3 + MARGIN),
    ({}, None, {"max_new_tokens": 2}, 2),
    ({}, None, {"max_length": 6}, 5),
    ({}, None, {"max_length": 20}, 19),
    ({}, {"max_new_tokens": 2}, {}, 2),
    ({}, {"max_length": 20}, {}, 19),
    ({}, {BEYOND: 1}, {}, 4),
    ({}, {"num_beams": 1}, {}, 3 + MARGIN),
    ({"max_new_tokens": 2}, None, {}, 2),
    ({"max_length": 6}, None, {}, 3 + MARGIN),  # `Seq2SeqTrainer` sets this
    ({"max_length": 6, BEYOND: None}, None, {}, 5),
    ({}, {"max_length": 6, BEYOND: 1}, {}, 4),
    ({"max_new_tokens": 2, "max_length": 6}, {BEYOND: 3}, {}, 6),
    ({"max_new_tokens": 2}, None, {BEYOND: 3}, 6),
    ({"max_length": 6}, {BEYOND: 3}, {}, 6),
    ({}, {"max_new_tokens": 2}, {BEYOND: 3}, 6),
    ({}, None, {"max_new_tokens": 2, BEYOND: 3}, 2),
    ({}, None, {"max_new_tokens": None, BEYOND: None, "length_penalty_type": None}, 7),
]


@pytest.mark.parametrize(("stored", "passed", "keywords", "expected"), LIMITS)
@pytest.mark.filterwarnings("ignore:Passing `generation_config` together")
def test_limit_nearest_to_call_takes_precedence(stored, passed, keywords, expected):
    model = without_eos(build(lm_head_bias=True))
    model.generation_config.update(**stored)
    passed = None if passed is None else GenerationConfig(**passed)
    assert count_new_tokens(model, generation_config=passed, **keywords) == expected


@pytest.mark.parametrize("limits", [{}, {"max_length": 6}, {"max_new_tokens": 2}], ids=str)
def test_generate_logs_no_warning_about_two_limits(transformers_warnings, limits):
    model = without_eos(build(lm_head_bias=True))
    model.generation_config.update(**limits)
    count_new_tokens(model)
    assert not transformers_warnings


def test_generate_accepts_own_parameters_without_paper_config():
    model = without_eos(build(lm_head_bias=True))
    model.generation_config = GenerationConfig(**SPECIAL_TOKENS)
    assert count_new_tokens(model, max_new_tokens_beyond_source=2) == 5
    model, ids = partly_trained_model(), padded(SOURCES)
    scored = {"max_new_tokens": 6, "num_beams": 4, **SCORED}
    power = model.generate(ids, length_penalty_type="power", **scored)
    wu = model.generate(ids, length_penalty_type="wu", **scored)
    model.generation_config = GenerationConfig(**SPECIAL_TOKENS)
    scored |= {"length_penalty": 0.6, "early_stopping": "never"}
    library = model.generate(ids, **scored)
    assert torch.equal(library.sequences_scores, power.sequences_scores)
    assert not torch.equal(power.sequences_scores, wu.sequences_scores)


def test_generate_leaves_generation_configs_unchanged():
    model = build()
    passed = paper_generation_config(PAD, EOS, START, num_beams=2)
    before = copy.deepcopy((model.generation_config.to_dict(), passed.to_dict()))
    model.generate(padded(SOURCES))
    model.generate(padded(SOURCES), generation_config=passed)
    assert (model.generation_config.to_dict(), passed.to_dict()) == before


def test_generation_config_round_trips_own_parameters(tmp_path):
    model = partly_trained_model()
    model.generation_config = paper_generation_config(
        PAD, EOS, START, max_new_tokens_beyond_source=7, length_penalty=0.9
    )
    model.save_pretrained(tmp_path / "model")
    model.generation_config.save_pretrained(tmp_path / "config")
    for config in (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").generation_config,
        GenerationConfig.from_pretrained(tmp_path / "config"),
    ):
        assert config.max_new_tokens_beyond_source == 7
        assert config.length_penalty_type == "wu"
        assert (config.length_penalty, config.num_beams) == (0.9, 4)
        assert config.early_stopping == "never"
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    translations = loaded.generate(padded(SOURCES))
    assert torch.equal(translations, model.generate(padded(SOURCES)))


def test_generate_accepts_generation_config():
    model, paper = partly_trained_model(1), partly_trained_model(1)
    options = {"num_beams": 1, "max_new_tokens_beyond_source": 1}
    model.generation_config = paper_generation_config(PAD, EOS, START, **options)
    options = {"max_new_tokens_beyond_source": MARGIN}
    passed = paper_generation_config(PAD, EOS, START, **options)
    outputs = model.generate(padded(SOURCES), generation_config=passed)
    assert torch.equal(outputs, paper.generate(padded(SOURCES)))
    assert not torch.equal(outputs, model.generate(padded(SOURCES)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length_penalty_type", "gnmt"),
        ("length_penalty_type", 0.6),
        ("num_beams", 0),
        ("num_beams", 2.0),
        ("max_new_tokens_beyond_source", -1),
        ("max_new_tokens_beyond_source", True),
    ],
)
def test_generate_rejects_invalid_value_by_name(name, value):
    model = build()
    with pytest.raises(ValueError, match=f"`{name}` must .*got {value!r}"):
        model.generate(padded(SOURCES), **{name: value})
    setattr(model.generation_config, name, value)
    with pytest.raises(ValueError, match=f"`{name}` must .*got {value!r}"):
        model.generate(padded(SOURCES))


def test_generate_rejects_misspelled_parameter():
    with pytest.raises(ValueError, match="max_new_tokens_beyond_sauce"):
        build().generate(padded(SOURCES), max_new_tokens_beyond_sauce=3)


# --- Other arguments of `generate()` --------------------------------------------------------------


class RecordingStreamer(BaseStreamer):
    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended = True


def test_generate_streams_each_token_of_greedy_decoding():
    model, streamer = partly_trained_model(), RecordingStreamer()
    outputs = model.generate(torch.tensor(SOURCES[:1]), num_beams=1, streamer=streamer)
    assert streamer.tokens == outputs[0].tolist()
    assert streamer.ended


@pytest.mark.parametrize("seed", [0, rare(1), rare(2)])
def test_assisted_generation_matches_greedy_decoding(seed):
    model = partly_trained_model(seed)
    assistant = partly_trained_model(seed + 10, decoder_layers=1, d_model=8)
    for source in SOURCES:
        ids = torch.tensor([source])
        expected = model.generate(ids, num_beams=1)
        # The first is mostly wrong, the second always right.
        for helper in (assistant, model):
            outputs = model.generate(ids, num_beams=1, assistant_model=helper)
            assert torch.equal(outputs, expected)


def test_assisted_generation_stops_at_source_length_plus_margin():
    model = without_eos(build(lm_head_bias=True))
    ids = torch.tensor([[5, 6, EOS] + [PAD] * 9])
    outputs = model.generate(ids, num_beams=1, assistant_model=copy.deepcopy(model))
    assert outputs.shape[1] - 1 == 3 + MARGIN


def test_generate_returns_the_result_of_a_custom_function():
    def decode(model, input_ids, generation_config, **_):
        assert not generation_config.return_dict_in_generate
        return input_ids + EOS

    model, ids = partly_trained_model(), torch.tensor(SOURCES[:1])
    outputs = model.generate(ids, num_beams=2, custom_generate=decode)
    assert outputs.tolist() == [[START + EOS]] * 2


def test_generate_beyond_learned_positions_warns(transformers_warnings):
    model = build(lm_head_bias=True, max_position_embeddings=5, **LEARNED)
    model = without_eos(model)
    with pytest.raises(ValueError, match="position"):
        model.generate(torch.tensor([[5, EOS]]), max_new_tokens=9, num_beams=1)
    assert "predefined maximum length (5)" in "\n".join(transformers_warnings)


def test_generate_does_not_warn_by_default(transformers_warnings, recwarn):
    model = partly_trained_model()
    model.generate(padded(SOURCES))
    model.generate(padded(SOURCES), num_beams=1)
    assert (transformers_warnings, list(recwarn)) == ([], [])


def test_generate_accepts_source_beyond_max_position_embeddings():
    model = without_eos(build(lm_head_bias=True))
    ids = torch.randint(3, 12, (1, 1200))
    outputs = model.generate(ids, num_beams=1, max_new_tokens=3)
    assert outputs.shape == (1, 4)
    longer = torch.cat([ids, torch.zeros_like(ids)], dim=1)
    kept = model.generate(longer, num_beams=1, max_new_tokens=3)
    assert torch.equal(kept, outputs)


def test_generate_returns_attentions_and_scores_of_each_step():
    model = build(attn_implementation="eager")
    outputs = model.generate(padded(SOURCES), output_attentions=True, **SCORED)
    rows, width = 4 * len(SOURCES), padded(SOURCES).shape[1]
    steps = len(outputs.scores)
    assert len(outputs.cross_attentions) == len(outputs.decoder_attentions) == steps
    assert outputs.scores[0].shape == (rows, 12)
    assert outputs.cross_attentions[0][1].shape == (rows, 2, 1, width)
    assert outputs.decoder_attentions[-1][0].shape == (rows, 2, 1, steps)
    padding = padded(SOURCES).eq(PAD).repeat_interleave(4, dim=0)
    assert outputs.cross_attentions[0][1].sum(dim=(1, 2))[padding].abs().max() == 0


@search_modes
def test_generate_stops_at_any_of_several_eos_tokens(mode):
    model, ids = partly_trained_model(), torch.tensor(SOURCES[:1])
    free = model.generate(ids, eos_token_id=[EOS], **mode)[0, 1:].tolist()
    second = next(token for token in free[:-1] if token not in (EOS, PAD))
    ends = {"eos_token_id": [EOS, second]}
    outputs = model.generate(padded(SOURCES), **ends, **mode)
    for row in outputs[:, 1:].tolist():
        while row and row.pop(0) not in (EOS, second):
            pass
        assert set(row) <= {PAD}
    assert second in outputs[:, 1:]
    alone = model.generate(ids, **ends, **mode)
    assert new_tokens(outputs[0]) == new_tokens(alone[0])


def test_generate_uses_mask_where_padding_equals_eos():
    model = partly_trained_model()
    alike = partly_trained_model(pad_token_id=EOS)
    alike.load_state_dict(model.state_dict())
    alike.generation_config.pad_token_id = EOS
    ids, mask = padded(SOURCES, pad=EOS), padded(SOURCES).ne(PAD).long()
    expected = model.generate(padded(SOURCES))
    outputs = alike.generate(ids, attention_mask=mask)
    assert torch.equal(outputs, expected.masked_fill(expected == PAD, EOS))


def test_seq2seq_trainer_generates_with_limit_by_source(tmp_path):
    model = without_eos(build(lm_head_bias=True))
    sources = []
    for length in (30, 25, 22, 19):
        sources.append(torch.randint(3, 12, (length,)).tolist() + [EOS])
    rows = []
    for source in sources:
        row = {"input_ids": source, "attention_mask": [1] * len(source)}
        rows.append({**row, "labels": [5, EOS]})

    def column(batch, name):
        return padded([row[name] for row in batch])

    def collate(batch):
        return {name: column(batch, name) for name in batch[0]}

    options = {"predict_with_generate": True, "per_device_eval_batch_size": 1}
    options |= {"report_to": [], "use_cpu": True}
    arguments = Seq2SeqTrainingArguments(str(tmp_path), **options)
    trainer = Seq2SeqTrainer(model=model, args=arguments, data_collator=collate)
    predictions = trainer.predict(rows, max_length=None, num_beams=None).predictions
    for row, source in zip(predictions, sources, strict=True):
        (tokens,) = model.generate(torch.tensor([source]), num_beams=4).tolist()
        assert len(tokens) == 1 + len(source) + MARGIN
        assert row[: len(tokens)].tolist() == tokens


def test_new_model_generates_as_in_paper():
    new_model = VanillaTransformerForConditionalGeneration
    assert_as_in_paper(new_model(build().config).generation_config)
    endless = without_eos(new_model(build(lm_head_bias=True).config).eval())
    assert endless.generate(torch.tensor([[5, 6, EOS]])).shape == (1, 1 + 3 + 50)


@pytest.mark.parametrize("trainer_class", [Trainer, Seq2SeqTrainer])
def test_model_saved_by_stock_trainer_generates_as_in_paper(trainer_class, tmp_path):
    model = VanillaTransformerForConditionalGeneration(build(lm_head_bias=True).config)
    rows = [{"input_ids": [5, 6, EOS], "labels": [7, EOS]}] * 2
    options = {"max_steps": 1, "predict_with_generate": True}
    options |= {"report_to": [], "use_cpu": True}
    arguments = Seq2SeqTrainingArguments(str(tmp_path), **options)
    data = {"train_dataset": rows, "eval_dataset": rows}
    trainer = trainer_class(model=model, args=arguments, **data)
    trainer.train()
    if trainer_class is Seq2SeqTrainer:
        trainer.evaluate()  # writes `max_length` into the generation config
    trainer.save_model(str(tmp_path / "saved"))
    loaded = without_eos(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved"))
    config = loaded.generation_config
    assert (config.num_beams, config.length_penalty_type) == (4, "wu")
    assert loaded.generate(torch.tensor([[5, 6, EOS]])).shape == (1, 1 + 3 + 50)


def test_save_pretrained_keeps_one_beam(tiny_model, tmp_path):
    tiny_model.generation_config.num_beams = 1
    tiny_model.save_pretrained(tmp_path)
    assert tiny_model.generation_config.length_penalty == 0.6
    saved = GenerationConfig.from_pretrained(tmp_path)
    assert (saved.num_beams, saved.length_penalty_type) == (1, "wu")
    assert saved.max_new_tokens_beyond_source == 4
    loaded = type(tiny_model).from_pretrained(tmp_path)
    assert loaded.generation_config.num_beams == 1


def test_fresh_model_has_the_special_tokens_of_its_configuration():
    config = tiny_config(bos_token_id=3)
    ours = VanillaTransformerForConditionalGeneration(config).generation_config
    for name in ("bos_token_id", *SPECIAL_TOKENS):
        assert getattr(ours, name) == getattr(config, name)
