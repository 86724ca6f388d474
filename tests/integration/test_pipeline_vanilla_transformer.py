"""`pipeline("translation")`: construction, inputs, batches, long texts and arguments of
`generate()`.
"""

import copy
import json
import logging
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.pt_utils import KeyDataset

from tests.sweeps import rare
from tests.tiny import tiny_model
from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerForConditionalGeneration,
    paper_generation_config,
    pipeline_vanilla_transformer,
)
from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.decoding.transformers_internals import restore_tasks
from vanilla_transformer.pipeline_vanilla_transformer import (
    Segment,
    join_translations,
    split_lines,
    split_sentences,
)

TEXTS = ["A man is sleeping.", "Two dogs run across the green grass.", "A"]
TEXTS += ["", "grass grass", "Zwei Hunde."]


@pytest.fixture
def build(tiny_model, tiny_tokenizer):
    """Return a function that builds a pipeline with options."""

    def build_with(**options):
        models = {"model": tiny_model, "tokenizer": tiny_tokenizer}
        return pipeline("translation", **models, **options)

    return build_with


@pytest.fixture
def translate(build):
    return build()


@pytest.fixture
def folder(tmp_path, tiny_model, tiny_tokenizer):
    tiny_model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


class Echo:
    """Stand-in for `generate()` that returns each sentence unchanged and records its batches and
    arguments.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.batches, self.kwargs = [], []

    def __call__(self, input_ids, attention_mask, **kwargs):
        sentences = self.tokenizer.batch_decode(input_ids, skip_special_tokens=True)
        self.batches.append(sentences)
        self.kwargs.append(kwargs)
        return input_ids

    @property
    def sentences(self):
        return [sentence for batch in self.batches for sentence in batch]


@pytest.fixture
def echo(translate, tiny_tokenizer, monkeypatch):
    translate.model.generate = Echo(tiny_tokenizer)
    return translate.model.generate


@pytest.fixture
def two_cores():
    """Run torch with two threads, until the next test."""
    torch.set_num_threads(2)


def translation_texts(answers):
    return [answer["translation_text"] for answer in answers]


# --- Construction ---------------------------------------------------------------------------------


def test_pipeline_translates_alike_however_built(folder, tiny_model, tiny_tokenizer):
    pipelines = [
        pipeline("translation", model=folder),
        pipeline("translation_en_to_de", model=folder),
        pipeline("translation_zh-Hans_to_en", model=folder),
        pipeline("translation", model=folder, pipeline_class=TranslationPipeline),
        pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer),
        TranslationPipeline(model=tiny_model, tokenizer=tiny_tokenizer),
    ]
    assert {type(translate) for translate in pipelines} == {TranslationPipeline}
    expected, *others = (translation_texts(translate(TEXTS)) for translate in pipelines)
    assert len(set(expected)) > 3
    assert others == [expected] * 5


def test_saved_pipeline_loads_without_trust_remote_code(translate, tmp_path):
    expected = translate(TEXTS)
    translate.save_pretrained(tmp_path)
    custom = json.loads((tmp_path / "config.json").read_text())["custom_pipelines"]
    module = custom["translation"]["impl"].split(".")[0]
    assert (tmp_path / f"{module}.py").exists(), "the configuration names it"
    loaded = pipeline("translation", model=str(tmp_path))
    assert loaded(TEXTS) == expected
    config = loaded.model.generation_config
    assert config.length_penalty_type == "wu"
    assert config.max_new_tokens_beyond_source == 4
    loaded.save_pretrained(tmp_path / "again")
    assert pipeline("translation", model=str(tmp_path / "again"))(TEXTS) == expected


def test_pipeline_prefers_installed_class_over_remote_code(folder):
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    name = "pipeline_vanilla_transformer.TranslationPipeline"
    config["custom_pipelines"] = {"translation": {"impl": name, "pt": []}}
    path.write_text(json.dumps(config))
    assert type(pipeline("translation", model=folder)) is TranslationPipeline


def bare_tokenizer(tokenizer, **special_tokens):
    """Return a tokenizer of transformers with the same backend."""
    backend = tokenizer.backend_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special_tokens)


def test_pipeline_translates_with_marian_and_bare_tokenizer(tiny_tokenizer, tmp_path):
    sizes = {"vocab_size": 300, "max_position_embeddings": 64, "d_model": 16}
    sizes |= {"init_std": 0.5, "pad_token_id": 0, "decoder_start_token_id": 0}
    sizes |= {"eos_token_id": 2, "forced_eos_token_id": 2}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_ffn_dim": 32}
        sizes[f"{side}_attention_heads"] = 2
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**sizes))
    bare = bare_tokenizer(tiny_tokenizer, pad_token="<pad>")
    # It does not append EOS, and has no `eos_token`.
    bare.backend_tokenizer.post_processor = None
    options = {"max_new_tokens": 5, "num_beams": 2}
    translate = pipeline("translation", model=model, tokenizer=bare, **options)
    for text in ("A man", "grass"):
        ids = bare(text, return_tensors="pt")["input_ids"]
        mask = torch.ones_like(ids)
        (expected,) = model.eval().generate(ids, attention_mask=mask, **options)
        answer = bare.decode(expected, skip_special_tokens=True).strip()
        assert translate(text) == [{"translation_text": answer}]
    assert translation_texts(translate(["A man", "", "grass\n\nA man"]))[1] == ""
    translate.save_pretrained(tmp_path)
    loaded = pipeline("translation", model=str(tmp_path), **options)
    assert loaded("A man") == translate("A man")


def test_pipeline_registration_keeps_other_tasks(tiny_tokenizer):
    sizes = {"vocab_size": 300, "n_positions": 32, "n_embd": 16, "n_layer": 1}
    config = GPT2Config(n_head=2, bos_token_id=1, eos_token_id=2, **sizes)
    model = GPT2LMHeadModel(config)
    # A copy, since some releases of transformers set the padding side of the tokenizer to left.
    tokenizer = copy.deepcopy(tiny_tokenizer)
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer)
    (answer,) = generate("A man", max_new_tokens=2)
    assert answer["generated_text"].startswith("A man")
    task, *_ = PIPELINE_REGISTRY.check_task("sentiment-analysis")
    assert task == "text-classification"
    assert "translation" in PIPELINE_REGISTRY.get_supported_tasks()
    with pytest.raises(KeyError, match="Unknown task nonsense"):
        PIPELINE_REGISTRY.check_task("nonsense")


def test_restore_tasks_is_idempotent_and_silent(folder):
    texts = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    logging.getLogger("transformers").addHandler(handler)
    try:
        restore_tasks()
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert texts == []
    assert type(pipeline("translation_en_to_de", model=folder)) is TranslationPipeline


# --- Input ----------------------------------------------------------------------------------------


def test_pipeline_returns_a_list_or_a_generator_as_its_input(echo, translate):
    rows = datasets.Dataset.from_dict({"en": TEXTS})
    for texts in (TEXTS, tuple(TEXTS), rows["en"], KeyDataset(rows, "en")):
        answers = translate(texts)
        assert isinstance(answers, list) and translation_texts(answers) == TEXTS
    answers = translate(rows.to_iterable_dataset()["en"])
    assert not isinstance(answers, list) and translation_texts(answers) == TEXTS
    assert translate("A man") == [{"translation_text": "A man"}]
    assert translate([]) == []


LONE_SURROGATE = r"must be Unicode, got the lone surrogate '\\udce9' at position 1"
REFUSED = [
    (None, {}, "iterable of strings, got NoneType"),
    (5, {}, "iterable of strings, got int"),
    (b"b", {}, "iterable of strings, got bytes"),
    ({"en": "A"}, {}, "iterable of strings, got dict"),
    (["A", 3], {}, r"got int \(3\) at position 1"),
    ([["A"]], {}, "got list .* at position 0"),
    (["A", "caf\udce9"], {}, LONE_SURROGATE),
    (["A"] * 100 + [None], {"batch_size": 1}, r"got NoneType \(None\) at position 100"),
    ("A", {"batch_size": 0}, "`batch_size` must be .*got 0"),
    ("A", {"batch_size": True}, "`batch_size` must be .*got True"),
    ("A", {"nonsense": 1}, "nonsense"),
]


@pytest.mark.parametrize(("texts", "options", "message"), REFUSED)
def test_pipeline_refuses_texts_and_options(translate, build, texts, options, message):
    """Give the options in the call and in the constructor."""
    with pytest.raises(ValueError, match=message):
        translate(texts, **options)
    with pytest.raises(ValueError, match=message):
        constructed = build(**options)
        list(constructed(iter(texts) if isinstance(texts, list) else texts))


def test_pipeline_gives_generate_its_tokenizer_for_stop_strings(translate):
    options = {"num_beams": 1, "max_new_tokens": 8}
    (plain,) = translate("a b c", **options)
    (stopped,) = translate("a b c", **options, stop_strings=plain["translation_text"][-1])
    assert len(stopped["translation_text"]) < len(plain["translation_text"])


def test_pipeline_reads_generator_one_window_ahead(echo, translate):
    read = []
    numbers = map(str, range(1000))
    answers = translate((read.append(number) or number for number in numbers), batch_size=2)
    assert read == []
    assert next(answers) == {"translation_text": "0"}
    assert len(read) == 128
    assert translation_texts(answers) == [str(number) for number in range(1, 1000)]


# --- Batches --------------------------------------------------------------------------------------


def test_pipeline_batches_by_length_and_keeps_order(echo, translate):
    texts = ["a " * (7 * number % 23 + 1) + "b" for number in range(23)]
    assert translation_texts(translate(texts, batch_size=4)) == texts
    assert [len(batch) for batch in echo.batches] == [4, 4, 4, 4, 4, 3]
    lengths = [len(sentence) for sentence in echo.sentences]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("beams", [rare(1), 3])
def test_pipeline_output_does_not_depend_on_threads(translate, two_cores, beams):
    texts = ["A man " * number + "sleeps." for number in range(40)]
    together = translate(texts, batch_size=4, num_beams=beams)
    torch.set_num_threads(1)
    assert translate(texts, batch_size=4, num_beams=beams) == together


def test_pipeline_raises_batch_error_and_restores_threads(translate, two_cores):
    with pytest.raises(ValueError, match="num_beams"):
        translate(TEXTS, batch_size=1, num_beams=-1)
    assert torch.get_num_threads() == 2


def test_pipeline_batch_size_in_call_overrides_constructor(echo, build):
    translate = build(batch_size=3)
    translate(["a"] * 6)
    translate(["a"] * 6, batch_size=2)
    assert [len(batch) for batch in echo.batches] == [3, 3, 2, 2, 2]


def test_pipeline_takes_numbers_of_numpy(translate):
    options = {"batch_size": np.int64(2), "num_beams": np.int64(2)}
    options |= {"do_sample": np.bool_(False), "num_workers": 0}
    assert translate(TEXTS, **options) == translate(TEXTS, batch_size=2, num_beams=2)


def test_pipeline_shows_progress_bar_on_request(echo, translate, build, capsys):
    translate(["A"] * 3)
    translate(["A"] * 300)  # stderr is not a terminal
    translate(["A"] * 3, progress_bar=False)
    assert "Translating" not in capsys.readouterr().err
    translate(["A"] * 3, progress_bar=True)
    assert "3/3" in capsys.readouterr().err
    talkative = build(progress_bar=True)
    talkative("A")
    assert "1/1" in capsys.readouterr().err
    talkative("A", progress_bar=False)
    assert capsys.readouterr().err == ""


def test_pipeline_shows_progress_bar_for_long_input(echo, translate, monkeypatch):
    """Show it by default, in a terminal alone: for tqdm, True is no bar and None is such a one."""
    disabled = []
    logging_module = pipeline_vanilla_transformer.logging
    plain = logging_module.tqdm

    def record(**options):
        disabled.append(options["disable"])
        return plain(**options)

    monkeypatch.setattr(logging_module, "tqdm", record)
    translate(["A"] * 255)
    translate(["A"] * 256)
    assert disabled == [True, None]


# --- Texts of any length --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n \t\n"])
def test_pipeline_returns_empty_translation_for_blank_text(echo, translate, text):
    assert translation_texts(translate([text, "A"])) == ["", "A"]
    assert echo.sentences == ["A"]


def test_pipeline_returns_num_return_sequences_for_blank_text(translate):
    blank, other = translate(["", "A"], num_return_sequences=2)
    assert blank == [{"translation_text": ""}] * 2
    assert len(other) == 2
    assert translate(" ", num_return_sequences=2) == [blank]
    config = GenerationConfig(num_beams=3, num_return_sequences=3)
    assert translate(" ", generation_config=config) == [blank[:1] * 3]


def test_pipeline_strips_translations(translate, tiny_tokenizer):
    answer = tiny_tokenizer(["  Ein Mann\n"], return_tensors="pt")["input_ids"]
    translate.model.generate = lambda **_: answer
    assert translate("A man") == [{"translation_text": "Ein Mann"}]


def test_pipeline_keeps_line_breaks(echo, translate):
    text = "One line.\n\n  Another, indented. \r\nLast\u2028line"
    assert translation_texts(translate(f"\n {text}\n")) == [text]
    assert sorted(echo.sentences) == ["Another, indented.", "Last", "One line.", "line"]


def test_pipeline_splits_long_text_without_loss(echo, translate, tiny_tokenizer):
    sentences = [f"Sentence number {number} (of many)." for number in range(40)]
    text = " ".join(sentences)
    translate.model.config.max_source_length = 60
    assert len(tiny_tokenizer(text)["input_ids"]) > 60
    assert len(tiny_tokenizer(sentences[0])["input_ids"]) < 60
    assert translation_texts(translate(["A man.", text])) == ["A man.", text]
    assert sorted(echo.sentences) == sorted(["A man.", *sentences])


def test_pipeline_splits_only_beyond_max_source_length(echo, translate, tiny_tokenizer):
    one_per_byte = ("Q. Z.", ["Q.", "Z."])
    for text, sentences in (("A man. A man.", ["A man.", "A man."]), one_per_byte):
        length = len(tiny_tokenizer(text)["input_ids"])
        limits = {None: [text], length: [text], length - 1: sentences}
        for longest, expected in limits.items():
            echo.batches.clear()
            translate.model.config.max_source_length = longest
            translate(text)
            assert sorted(echo.sentences) == expected


def test_pipeline_splits_paragraphs_on_request(echo, translate):
    text = "A man. Two dogs.\nGrass"
    assert translation_texts(translate([text], split_sentences=True)) == [text]
    assert sorted(echo.sentences) == ["A man.", "Grass", "Two dogs."]
    echo.batches.clear()
    translate.default_options["split_sentences"] = True
    translate(text)
    translate(text, split_sentences=False)
    assert sorted(echo.sentences) == ["A man.", "A man. Two dogs.", "Grass", "Grass", "Two dogs."]


def test_pipeline_keeps_long_single_sentence_whole(echo, translate):
    translate.model.config.max_source_length = 5
    text = "one long sentence, with no end in it at all, " * 9 + "ends."
    assert translation_texts(translate(text)) == [text]
    assert echo.sentences == [text]


@pytest.mark.parametrize("longest", [None, rare(20), 700])
@pytest.mark.parametrize(
    "text",
    [
        "word, " * 10_000 + "end",
        "一二三四五六七八九十" * 300,
        "x" * 5_000,
        "x" * 600 + " " * 3_000 + "y  z " * 500,
        "One. Two three! " * 800 + "four " * 900,
    ],
    ids=["words", "no spaces", "one word", "white space", "sentences"],
)
def test_pipeline_cuts_any_line_without_loss(echo, translate, tiny_tokenizer, longest, text):
    translate.model.config.max_source_length = longest
    (translation,) = translation_texts(translate(text))
    assert "".join(translation.split()) == "".join(text.split())
    sizes = [len(ids) for ids in tiny_tokenizer(echo.sentences)["input_ids"]]
    limit = max(512, longest or 0)
    assert max(sizes) <= limit
    for sentence in echo.sentences:
        assert sentence == sentence.strip() != ""
    length = len(tiny_tokenizer(text)["input_ids"])
    assert len(sizes) < 2 + 2.5 * length / limit or "One." in text
    if "One." in text:
        assert "One." in echo.sentences  # sentences end before anything is cut
    if " " in text.strip() and "xx" not in text:
        assert {*" ".join(echo.sentences).split()} == {*text.split()}


PIPELINES = [TranslationPipeline, pipeline_vanilla_transformer.TranslationPipeline]


@pytest.mark.parametrize("pipeline_class", PIPELINES)
def test_pipeline_cuts_sentences_to_learned_positions(pipeline_class, tiny_tokenizer):
    sizes = {"position_embedding_type": "learned", "max_position_embeddings": 32}
    model = tiny_model(**sizes)
    translate = pipeline_class(model, tiny_tokenizer, device="cpu", max_new_tokens=4)
    (answer,) = translate(["word, " * 30 + "x" * 50])
    assert answer["translation_text"]


def test_pipeline_refuses_a_character_beyond_learned_positions(tiny_tokenizer):
    sizes = {"position_embedding_type": "learned", "max_position_embeddings": 2}
    model = tiny_model(**sizes)
    translate = TranslationPipeline(model, tiny_tokenizer, device="cpu", max_new_tokens=1)
    message = "at most 2 tokens, as many as learned positions, got"
    with pytest.raises(OptionError, match=message):
        translate("日")


LINES = [
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    (
        'He said "Yes." Then. (He left.) And …',
        ['He said "Yes."', "Then.", "(He left.)", "And …"],
    ),
    ("Wait… what?! Yes.", ["Wait…", "what?!", "Yes."]),
    ("It costs 3.50 at www.example.org today", ["It costs 3.50 at www.example.org today"]),
    ("你好。你好吗？！好。", ["你好。", "你好吗？！", "好。"]),
    ("他说「好。」走了。。", ["他说「好。」", "走了。。"]),
    ("هل أنت هنا؟ نعم", ["هل أنت هنا؟", "نعم"]),
    ("वह सो रहा है। हाँ।", ["वह सो रहा है।", "हाँ।"]),
    ("one sentence", ["one sentence"]),
]


@pytest.mark.parametrize(("line", "sentences"), LINES)
def test_split_sentences_splits_at_sentence_ends(line, sentences):
    assert [segment.text for segment in split_sentences(Segment(line, ""))] == sentences


SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u2028", "\x85", "\x1c"]
MARKS = [".", "!", "。", "？", "」", '"']
lines_of_marks = st.lists(st.sampled_from([*SPACES, *MARKS, "a", "Mann"])).map("".join)
any_text = st.text() | lines_of_marks


def assert_segments_join_to(text, segments):
    joined = ""
    for segment in segments:
        assert segment.text and segment.text == segment.text.strip()
        joined += segment.text + segment.separator
    assert joined == text


@given(text=any_text)
@example(text=" a  \n \n  b c\r\nd\u2028e ")
def test_split_lines_reconstructs_text(text):
    segments = list(split_lines(text))
    assert_segments_join_to(text.strip(), segments)
    lines = [line.strip() for line in text.splitlines()]
    assert [segment.text for segment in segments] == [line for line in lines if line]


@given(text=any_text, separator=st.sampled_from(["", "\n", " \n\n"]))
def test_split_sentences_reconstructs_line(text, separator):
    line = Segment(" ".join(text.split()), separator)
    segments = list(split_sentences(line))
    assert_segments_join_to(line.text and line.text + separator, segments)


def test_join_translations_adds_spaces_after_script_without_spaces():
    segments = list(split_sentences(Segment("你好。你好吗？", "")))
    translations = ["Hello.", "How are you?"]
    assert join_translations(segments, translations) == "Hello. How are you?"


# --- Arguments of `generate()` --------------------------------------------------------------------


def test_pipeline_returns_n_best_list_per_text(translate, tiny_model, tiny_tokenizer):
    texts = ["A man is sleeping.", "grass grass"]
    answers = translate(texts, num_return_sequences=3)
    for text, answer in zip(texts, answers, strict=True):
        ids = tiny_tokenizer(text, return_tensors="pt")["input_ids"]
        hypotheses = tiny_model.generate(ids, num_return_sequences=3)
        decoded = tiny_tokenizer.batch_decode(hypotheses, skip_special_tokens=True)
        assert translation_texts(answer) == [hypothesis.strip() for hypothesis in decoded]
        assert answer[0] == translate(text)[0]


def test_pipeline_joins_n_best_of_split_text_by_rank(translate):
    lines = translate(["A man", "grass"], num_return_sequences=2)
    both = translate("A man\ngrass", num_return_sequences=2)
    assert translation_texts(both[0]) == [
        "\n".join(texts) for texts in zip(*map(translation_texts, lines), strict=True)
    ]


GENERATE_OPTIONS = [{"max_new_tokens": 2}, {"max_new_tokens_beyond_source": 0}]
GENERATE_OPTIONS += [{"num_beams": 1}]


@pytest.mark.parametrize("options", GENERATE_OPTIONS, ids=str)
def test_pipeline_takes_generate_arguments_anywhere(translate, build, options):
    default = translate("A man")
    at_call = translate("A man", **options)
    assert at_call != default
    constructed = build(**options)
    assert constructed("A man") == at_call and translate("A man") == default
    more = {name: value + 1 for name, value in options.items()}
    assert constructed("A man", **more) != at_call


def test_pipeline_generation_config_overrides_constructor(translate, build):
    config = paper_generation_config(0, 2, 1, max_new_tokens=2)
    expected = translate("A man", max_new_tokens=2)
    assert translate("A man", generation_config=config) == expected
    other = build(max_new_tokens=5, num_beams=3)
    assert other("A man", generation_config=config) == expected
    assert build(generation_config=config)("A man") == expected


def test_pipeline_ignores_return_dict_in_generate(translate):
    assert translate("A man", return_dict_in_generate=True) == translate("A man")
    expected = translate("A man")
    translate.model.generation_config.return_dict_in_generate = True
    assert translate("A man") == expected


def test_pipeline_passes_assistant_model_to_generate(echo, build, tiny_model):
    assistant = VanillaTransformerForConditionalGeneration(tiny_model.config)
    build(assistant_model=assistant)("A")
    assert echo.kwargs[0]["assistant_model"] is assistant


def test_pipeline_disables_dropout_for_a_while(tiny_config, tiny_tokenizer):
    tiny_config.dropout = 0.5
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(tiny_config).train()
    models = {"model": model, "tokenizer": tiny_tokenizer}
    translate = pipeline("translation", max_new_tokens=8, **models)
    first = translate("A man is sleeping.")
    assert all(translate("A man is sleeping.") == first for _ in range(5))
    assert model.training
    assert model.model.decoder.dropout.training


def test_pipeline_masks_padding_where_padding_equals_eos(tiny_model, tiny_tokenizer):
    config = tiny_model.config
    config.pad_token_id = config.eos_token_id
    special_tokens = {"pad_token": "</s>", "eos_token": "</s>", "bos_token": "<s>"}
    tokenizer = bare_tokenizer(tiny_tokenizer, **special_tokens)
    tokenizer.model_input_names = ["input_ids"]
    translate = pipeline("translation", model=tiny_model, tokenizer=tokenizer)
    texts = ["A", "Two dogs run across the green grass."]
    assert translate(texts) == [translate(text)[0] for text in texts]


def test_pipeline_takes_padding_as_library_pipelines_do(translate, build):
    expected = translate(TEXTS, max_new_tokens=4)
    assert translate(TEXTS, padding=True, max_new_tokens=4) == expected
    assert build(padding=True)(TEXTS, max_new_tokens=4) == expected
