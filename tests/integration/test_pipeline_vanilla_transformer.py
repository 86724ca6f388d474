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

TEXTS = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "A",
    "",
    "grass grass",
    "Zwei Hunde.",
]


@pytest.fixture
def translate(tiny_model, tiny_tokenizer):
    return pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer)


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
        self.batches.append(self.tokenizer.batch_decode(input_ids, skip_special_tokens=True))
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


def test_pipeline_translates_alike_however_constructed(folder, tiny_model, tiny_tokenizer):
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
    impl = json.loads((tmp_path / "config.json").read_text())["custom_pipelines"]["translation"][
        "impl"
    ]
    assert (tmp_path / f"{impl.split('.')[0]}.py").exists(), (
        "what the configuration names travels along"
    )
    loaded = pipeline("translation", model=str(tmp_path))
    assert loaded(TEXTS) == expected
    config = loaded.model.generation_config
    assert (config.length_penalty_type, config.max_new_tokens_beyond_source) == ("wu", 4)
    loaded.save_pretrained(tmp_path / "again")
    assert pipeline("translation", model=str(tmp_path / "again"))(TEXTS) == expected


def test_pipeline_prefers_installed_class_over_remote_code(folder):
    path = Path(folder) / "config.json"
    custom = {"translation": {"impl": "pipeline_vanilla_transformer.TranslationPipeline", "pt": []}}
    path.write_text(json.dumps({**json.loads(path.read_text()), "custom_pipelines": custom}))
    assert type(pipeline("translation", model=folder)) is TranslationPipeline


def test_pipeline_translates_with_marian_model_and_bare_tokenizer(tiny_tokenizer, tmp_path):
    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
    }
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {
        "pad_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": 2,
    }
    torch.manual_seed(0)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=300, max_position_embeddings=64, init_std=0.5, **sizes, **heads, **ids
        )
    )
    bare = PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer.backend_tokenizer, pad_token="<pad>"
    )
    bare.backend_tokenizer.post_processor = None  # does not append EOS, and has no `eos_token`
    translate = pipeline("translation", model=model, tokenizer=bare, max_new_tokens=5, num_beams=2)
    for text in ("A man", "grass"):
        encoded = bare(text, return_tensors="pt")["input_ids"]
        expected = model.eval().generate(
            encoded, attention_mask=torch.ones_like(encoded), max_new_tokens=5, num_beams=2
        )
        answer = bare.decode(expected[0], skip_special_tokens=True).strip()
        assert translate(text) == [{"translation_text": answer}]
    assert translation_texts(translate(["A man", "", "grass\n\nA man"]))[1] == ""
    translate.save_pretrained(tmp_path)
    assert translation_texts(
        pipeline("translation", model=str(tmp_path), max_new_tokens=5, num_beams=2)("A man")
    ) == translation_texts(translate("A man"))


def test_pipeline_registration_keeps_other_tasks(tiny_tokenizer):
    config = GPT2Config(
        vocab_size=300,
        n_positions=32,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = GPT2LMHeadModel(config)
    # A copy, since some releases of transformers set the padding side of the tokenizer to left.
    generate = pipeline("text-generation", model=model, tokenizer=copy.deepcopy(tiny_tokenizer))
    assert generate("A man", max_new_tokens=2)[0]["generated_text"].startswith("A man")
    assert PIPELINE_REGISTRY.check_task("sentiment-analysis")[0] == "text-classification"
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


def test_pipeline_returns_a_list_for_sequences_and_a_generator_for_iterables(echo, translate):
    rows = datasets.Dataset.from_dict({"en": TEXTS})
    for texts in (TEXTS, tuple(TEXTS), rows["en"], KeyDataset(rows, "en")):
        answers = translate(texts)
        assert isinstance(answers, list) and translation_texts(answers) == TEXTS
    answers = translate(rows.to_iterable_dataset()["en"])
    assert not isinstance(answers, list) and translation_texts(answers) == TEXTS
    assert translate("A man") == [{"translation_text": "A man"}]
    assert translate([]) == []


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        *(
            (wrong, {}, f"iterable of strings, got {type(wrong).__name__}")
            for wrong in (None, 5, b"b", {"en": "A"})
        ),
        (["A", 3], {}, r"got int \(3\) at position 1"),
        ([["A"]], {}, "got list .* at position 0"),
        (
            ["A", "caf\udce9"],
            {},
            r"must be Unicode, got the lone surrogate '\\udce9' at position 1",
        ),
        (["A"] * 100 + [None], {"batch_size": 1}, r"got NoneType \(None\) at position 100"),
        *(("A", {"batch_size": size}, f"`batch_size` must be .*got {size}") for size in (0, True)),
        ("A", {"nonsense": 1}, "nonsense"),
    ],
)
def test_pipeline_refuses_texts_and_options_in_call_and_constructor(
    translate, tiny_model, tiny_tokenizer, texts, options, message
):
    with pytest.raises(ValueError, match=message):
        translate(texts, **options)
    with pytest.raises(ValueError, match=message):
        constructed = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, **options)
        list(constructed(iter(texts) if isinstance(texts, list) else texts))


def test_pipeline_gives_generate_its_tokenizer_for_stop_strings(translate):
    options = {"num_beams": 1, "max_new_tokens": 8}
    (plain,) = translate("a b c", **options)
    (found,) = translate("a b c", **options, stop_strings=plain["translation_text"][-1])
    assert len(found["translation_text"]) < len(plain["translation_text"])


def test_pipeline_reads_generator_one_window_ahead(echo, translate):
    read = []
    answers = translate(
        (read.append(number) or str(number) for number in range(1000)), batch_size=2
    )
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


def test_pipeline_batch_size_in_call_overrides_constructor(
    echo, translate, tiny_model, tiny_tokenizer
):
    translate = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, batch_size=3)
    translate(["a"] * 6)
    translate(["a"] * 6, batch_size=2)
    assert [len(batch) for batch in echo.batches] == [3, 3, 2, 2, 2]


def test_pipeline_takes_numbers_of_numpy(translate):
    options = {
        "batch_size": np.int64(2),
        "num_beams": np.int64(2),
        "do_sample": np.bool_(False),
        "num_workers": 0,
    }
    assert translate(TEXTS, **options) == translate(TEXTS, batch_size=2, num_beams=2)


def test_pipeline_shows_progress_bar_on_request(
    echo, translate, tiny_model, tiny_tokenizer, capsys
):
    translate(["A"] * 3)
    translate(["A"] * 300)  # stderr is not a terminal
    translate(["A"] * 3, progress_bar=False)
    assert "Translating" not in capsys.readouterr().err
    translate(["A"] * 3, progress_bar=True)
    assert "3/3" in capsys.readouterr().err
    talkative = pipeline(
        "translation", model=tiny_model, tokenizer=tiny_tokenizer, progress_bar=True
    )
    talkative("A")
    assert "1/1" in capsys.readouterr().err
    talkative("A", progress_bar=False)
    assert capsys.readouterr().err == ""


def test_pipeline_shows_progress_bar_by_default_for_long_input_in_terminal(
    echo, translate, monkeypatch
):
    disabled = []
    plain = pipeline_vanilla_transformer.logging.tqdm
    monkeypatch.setattr(
        pipeline_vanilla_transformer.logging,
        "tqdm",
        lambda **kw: disabled.append(kw["disable"]) or plain(**kw),
    )
    translate(["A"] * 255)
    translate(["A"] * 256)
    assert disabled == [True, None]  # tqdm: True is no bar, None a bar in a terminal only


# --- Texts of any length --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n \t\n"])
def test_pipeline_returns_empty_translation_for_blank_text(echo, translate, text):
    assert translate([text, "A"]) == [{"translation_text": ""}, {"translation_text": "A"}]
    assert echo.sentences == ["A"]


def test_pipeline_returns_num_return_sequences_for_blank_text(translate):
    blank, other = translate(["", "A"], num_return_sequences=2)
    assert blank == [{"translation_text": ""}] * 2
    assert len(other) == 2
    assert translate(" ", num_return_sequences=2) == [blank]
    assert translate(
        " ", generation_config=GenerationConfig(num_beams=3, num_return_sequences=3)
    ) == [blank[:1] * 3]


def test_pipeline_strips_translations(translate, tiny_tokenizer):
    translate.model.generate = lambda **kwargs: tiny_tokenizer(
        ["  Ein Mann\n"], return_tensors="pt"
    )["input_ids"]
    assert translate("A man") == [{"translation_text": "Ein Mann"}]


def test_pipeline_keeps_line_breaks(echo, translate):
    text = "One line.\n\n  Another, indented. \r\nLast\u2028line"
    assert translation_texts(translate(f"\n {text}\n")) == [text]
    assert sorted(echo.sentences) == ["Another, indented.", "Last", "One line.", "line"]


def test_pipeline_splits_long_text_into_sentences_without_loss(echo, translate, tiny_tokenizer):
    sentences = [f"Sentence number {number} (of many)." for number in range(40)]
    translate.model.config.max_source_length = 60
    assert (
        len(tiny_tokenizer(" ".join(sentences))["input_ids"])
        > 60
        > len(tiny_tokenizer(sentences[0])["input_ids"])
    )
    assert translation_texts(translate(["A man.", " ".join(sentences)])) == [
        "A man.",
        " ".join(sentences),
    ]
    assert sorted(echo.sentences) == sorted(["A man.", *sentences])


def test_pipeline_splits_only_beyond_max_source_length(echo, translate, tiny_tokenizer):
    for text, sentences in (
        ("A man. A man.", ["A man.", "A man."]),
        ("Q. Z.", ["Q.", "Z."]),
    ):  # Q. Z.: one per byte
        length = len(tiny_tokenizer(text)["input_ids"])
        for longest, expected in ((None, [text]), (length, [text]), (length - 1, sentences)):
            echo.batches.clear()
            translate.model.config.max_source_length = longest
            translate(text)
            assert sorted(echo.sentences) == expected


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
def test_pipeline_cuts_lines_of_any_length_without_loss(
    echo, translate, tiny_tokenizer, longest, text
):
    translate.model.config.max_source_length = longest
    (translation,) = translation_texts(translate(text))
    assert "".join(translation.split()) == "".join(text.split())
    sizes = [len(ids) for ids in tiny_tokenizer(echo.sentences)["input_ids"]]
    limit = max(512, longest or 0)
    assert max(sizes) <= limit and all(each == each.strip() != "" for each in echo.sentences)
    assert len(sizes) < 2 + 2.5 * len(tiny_tokenizer(text)["input_ids"]) / limit or "One." in text
    if "One." in text:
        assert "One." in echo.sentences  # sentences end before anything is cut
    if " " in text.strip() and "xx" not in text:
        assert {word for each in echo.sentences for word in each.split()} == {*text.split()}


@pytest.mark.parametrize(
    "pipeline_class", [TranslationPipeline, pipeline_vanilla_transformer.TranslationPipeline]
)
def test_pipeline_cuts_sentences_to_learned_positions(pipeline_class, tiny_tokenizer):
    sizes = {"position_embedding_type": "learned", "max_position_embeddings": 32}
    translate = pipeline_class(tiny_model(**sizes), tiny_tokenizer, device="cpu", max_new_tokens=4)
    (answer,) = translate(["word, " * 30 + "x" * 50])
    assert answer["translation_text"]


def test_pipeline_refuses_a_character_with_more_tokens_than_learned_positions(tiny_tokenizer):
    sizes = {"position_embedding_type": "learned", "max_position_embeddings": 2}
    translate = TranslationPipeline(
        tiny_model(**sizes), tiny_tokenizer, device="cpu", max_new_tokens=1
    )
    with pytest.raises(OptionError, match="at most 2 tokens, as many as learned positions, got"):
        translate("日")


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
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
    ],
)
def test_split_sentences_splits_at_sentence_ends(line, sentences):
    assert [segment.text for segment in split_sentences(Segment(line, ""))] == sentences


lines_of_marks = st.lists(
    st.sampled_from(
        [
            " ",
            "  ",
            "\t",
            "\n",
            "\r\n",
            "\u2028",
            "\x85",
            "\x1c",
            "a",
            "Mann",
            ".",
            "!",
            "。",
            "？",
            "」",
            '"',
        ]
    )
).map("".join)
any_text = st.text() | lines_of_marks


@given(text=any_text)
@example(text=" a  \n \n  b c\r\nd\u2028e ")
def test_split_lines_reconstructs_text(text):
    segments = list(split_lines(text))
    assert "".join(segment.text + segment.separator for segment in segments) == text.strip()
    assert all(segment.text and segment.text == segment.text.strip() for segment in segments)
    assert [segment.text for segment in segments] == [
        line.strip() for line in text.splitlines() if line.strip()
    ]


@given(text=any_text, separator=st.sampled_from(["", "\n", " \n\n"]))
def test_split_sentences_reconstructs_line(text, separator):
    line = Segment(" ".join(text.split()), separator)
    segments = list(split_sentences(line))
    assert "".join(segment.text + segment.separator for segment in segments) == (
        line.text and line.text + separator
    )
    assert all(segment.text and segment.text == segment.text.strip() for segment in segments)


def test_join_translations_adds_spaces_after_script_without_spaces():
    segments = list(split_sentences(Segment("你好。你好吗？", "")))
    assert join_translations(segments, ["Hello.", "How are you?"]) == "Hello. How are you?"


# --- Arguments of `generate()` --------------------------------------------------------------------


def test_pipeline_returns_n_best_list_per_text(translate, tiny_model, tiny_tokenizer):
    texts = ["A man is sleeping.", "grass grass"]
    answers = translate(texts, num_return_sequences=3)
    for text, answer in zip(texts, answers, strict=True):
        ids = tiny_tokenizer(text, return_tensors="pt")["input_ids"]
        decoded = tiny_tokenizer.batch_decode(
            tiny_model.generate(ids, num_return_sequences=3), skip_special_tokens=True
        )
        assert translation_texts(answer) == [hypothesis.strip() for hypothesis in decoded]
        assert answer[0] == translate(text)[0]


def test_pipeline_joins_n_best_of_split_text_by_rank(translate):
    lines = translate(["A man", "grass"], num_return_sequences=2)
    both = translate("A man\ngrass", num_return_sequences=2)
    assert translation_texts(both[0]) == [
        "\n".join(texts) for texts in zip(*map(translation_texts, lines), strict=True)
    ]


@pytest.mark.parametrize(
    "kwargs",
    [{"max_new_tokens": 2}, {"max_new_tokens_beyond_source": 0}, {"num_beams": 1}],
    ids=str,
)
def test_pipeline_takes_generate_arguments_in_constructor_and_call(
    translate, tiny_model, tiny_tokenizer, kwargs
):
    default = translate("A man")
    at_call = translate("A man", **kwargs)
    assert at_call != default
    constructed = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, **kwargs)
    assert constructed("A man") == at_call and translate("A man") == default
    assert constructed("A man", **{name: value + 1 for name, value in kwargs.items()}) != at_call


def test_pipeline_generation_config_overrides_constructor_arguments(
    translate, tiny_model, tiny_tokenizer
):
    config = paper_generation_config(0, 2, 1, max_new_tokens=2)
    expected = translate("A man", max_new_tokens=2)
    assert translate("A man", generation_config=config) == expected
    kwargs = {"max_new_tokens": 5, "num_beams": 3}
    other = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, **kwargs)
    assert other("A man", generation_config=config) == expected
    at_construction = pipeline(
        "translation", model=tiny_model, tokenizer=tiny_tokenizer, generation_config=config
    )
    assert at_construction("A man") == expected


def test_pipeline_ignores_return_dict_in_generate(translate):
    assert translate("A man", return_dict_in_generate=True) == translate("A man")
    expected = translate("A man")
    translate.model.generation_config.return_dict_in_generate = True
    assert translate("A man") == expected


def test_pipeline_passes_assistant_model_to_generate(echo, tiny_model, tiny_tokenizer):
    assistant = VanillaTransformerForConditionalGeneration(tiny_model.config)
    pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, assistant_model=assistant)(
        "A"
    )
    assert echo.kwargs[0]["assistant_model"] is assistant


def test_pipeline_disables_dropout_and_restores_training_mode(tiny_config, tiny_tokenizer):
    tiny_config.dropout = 0.5
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(tiny_config).train()
    translate = pipeline("translation", model=model, tokenizer=tiny_tokenizer, max_new_tokens=8)
    first = translate("A man is sleeping.")
    assert all(translate("A man is sleeping.") == first for _ in range(5))
    assert model.training
    assert model.model.decoder.dropout.training


def test_pipeline_masks_padding_where_padding_equals_eos(tiny_model, tiny_tokenizer):
    config = tiny_model.config
    config.pad_token_id = config.eos_token_id
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer.backend_tokenizer,
        pad_token="</s>",
        eos_token="</s>",
        bos_token="<s>",
    )
    tokenizer.model_input_names = ["input_ids"]
    translate = pipeline("translation", model=tiny_model, tokenizer=tokenizer)
    texts = ["A", "Two dogs run across the green grass."]
    assert translate(texts) == [translate(text)[0] for text in texts]


def test_pipeline_takes_padding_as_library_pipelines_do(translate, tiny_model, tiny_tokenizer):
    expected = translate(TEXTS, max_new_tokens=4)
    assert translate(TEXTS, padding=True, max_new_tokens=4) == expected
    padded = pipeline("translation", model=tiny_model, tokenizer=tiny_tokenizer, padding=True)
    assert padded(TEXTS, max_new_tokens=4) == expected
