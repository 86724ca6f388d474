"""Options of requests: answers are the pipeline's, and wrong options have status 422 with one
line.
"""

import copy
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.comet_files import UNIFIED, write_comet
from tests.model_variants import model_with_inline_terms
from tests.services import TEXTS, post, shout
from tests.sweeps import examples
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.options import SOFT, TranslationOptions
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.extensions.documents import (
    DocumentTranslator,
    translate_document,
)
from vanilla_transformer.extensions.serving.commands import serve_command
from vanilla_transformer.extensions.serving.features import SOFT_TERMS, known_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.glossary import Glossary
from vanilla_transformer.text.languages import Direction, add_language_tags

TERMS = {"man": "Mann"}


def pipeline(tokenizer, num_beams=None, **options):
    model = tiny_model()
    model.generation_config.num_beams = num_beams or model.generation_config.num_beams
    return TranslationPipeline(model, tokenizer, device="cpu", max_new_tokens=12, **options)


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return pipeline(tiny_tokenizer)


@pytest.fixture(scope="module")
def reverse(tiny_tokenizer, tmp_path_factory):
    return save_model_folder(
        tiny_model(3), tiny_tokenizer, tmp_path_factory.mktemp("reverse") / "model"
    )


@pytest.fixture(scope="module")
def inline_terms():
    return TranslationPipeline(*model_with_inline_terms(), device="cpu")


@pytest.fixture
def client(translate):
    documents = DocumentTranslator(translate)
    service = create_service(
        translate_with(translate, documents),
        Limits(max_characters=2000, max_texts=4),
        known=ENTRIES,
        documents=documents,
    )
    with TestClient(service, raise_server_exceptions=False) as client:
        yield client


def ask(client, text, **options):
    answer = client.post("/translate", json={"text": text} | options)
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def rows_of(answers):
    rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
    return {
        "translations": [[hypothesis["translation_text"] for hypothesis in row] for row in rows]
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mbr": "chrf", "mbr_samples": 4, "seed": 3},
        {"constraints": ["Hunde", "Mann"]},
        {"constraints": [["Hunde"], [], ["grüne Gras"]]},
        {"target_prefix": "Ein"},
        {"target_prefix": ["Ein", "", "Das Gras"]},
        {"target_prefix": "Ein", "alternatives": 2},
        {"split_sentences": True},
    ],
)
def test_service_translates_like_the_pipeline(translate, options):
    texts = ["Dr. Smith sleeps. A man runs.", *TEXTS[1:]]
    assert post(translate, text=texts, **options).json() == rows_of(translate(texts, **options))


def test_service_takes_null_and_nothing_as_not_given(translate):
    nothing = dict.fromkeys(ENTRIES) | {"text": TEXTS}
    plain = rows_of(translate(TEXTS))
    for options in (nothing, {"constraints": []}, {"constraints": [[], [], []]}):
        assert post(translate, **options).json() == plain


def test_service_limits_the_default_number_of_samples(translate):
    answers = rows_of(translate(TEXTS, mbr="chrf", mbr_samples=3, seed=3))
    assert post(translate, mbr="chrf", seed=3, limits=Limits(max_mbr_samples=3)).json() == answers


def test_service_chooses_the_beams_that_options_need(tiny_tokenizer):
    greedy, wide = (pipeline(tiny_tokenizer, num_beams) for num_beams in (1, 16))
    for options in ({"constraints": ["a"]}, {"glossary": {"a": "b"}}):
        assert post(greedy, **options).json() == rows_of(greedy(TEXTS, num_beams=4, **options))
    answers = wide(TEXTS, num_return_sequences=4)
    assert answers != wide(TEXTS, num_return_sequences=4, num_beams=4)
    assert post(wide, num_return_sequences=4).json() == rows_of(answers)


def test_service_reranks_like_the_pipeline(tiny_tokenizer, reverse, tmp_path):
    by_reverse = pipeline(tiny_tokenizer, rerank_reverse=reverse)
    known = known_options(by_reverse)
    assert "mbr" not in known
    for options in ({}, {"rerank_reverse_weight": 2.0, "rerank_length_weight": 0.1}):
        assert post(by_reverse, known, **options).json() == rows_of(
            by_reverse(TEXTS, num_beams=4, **options)
        )
    by_quality = pipeline(tiny_tokenizer, rerank_quality=write_comet(tmp_path / "quality", UNIFIED))
    known = known_options(by_quality)
    assert not {"mbr", "rerank_reverse_weight", "rerank_length_weight", "alternatives"} & {*known}
    assert post(by_quality, known).json() == rows_of(by_quality(TEXTS, num_beams=4))
    answer = post(by_quality, known, rerank_length_weight=1.0)
    assert (
        answer.status_code == 422 and "no model or search for `rerank_length_weight`" in answer.text
    )


def test_serve_loads_further_models(monkeypatch):
    def load(name, precision, **further):
        raise ValueError(f"{name} with {further}")

    monkeypatch.setattr("vanilla_transformer.decoding.loading.load_pipeline", load)
    flags = [
        "--port",
        "0",
        "--ensemble",
        "b",
        "--ensemble_weights",
        "2",
        "1",
        "--rerank_reverse",
        "c",
    ]
    further = {"ensemble": ["b"], "ensemble_weights": [2.0, 1.0], "rerank_reverse": "c"}
    with pytest.raises(ValueError, match=re.escape(f"a with {further}")):
        serve_command(["a", *flags])


@pytest.mark.parametrize(
    "mode", [{}, {"term_mode": "soft"}, {"term_mode": "hard"}, {"term_mode": "exact"}]
)
def test_service_uses_a_glossary_like_the_pipeline(inline_terms, mode):
    options = {"glossary": TERMS, **mode}
    answer = post(inline_terms, [*ENTRIES, SOFT_TERMS], **options)
    assert answer.json() == rows_of(inline_terms(TEXTS, **options))


def test_service_constrains_models_without_soft_terms(translate):
    answer = post(translate, text=["A man.", "Two dogs."], glossary=TERMS)
    first, second = answer.json()["translations"]
    assert "Mann" in first[0] and "Mann" not in second[0]


def test_service_samples_like_the_pipeline(client, translate):
    options = {"do_sample": True, "seed": 7, "temperature": 1.5, "top_k": 20}
    found = ask(client, ["A man.", "Two dogs.\nA man."], num_return_sequences=3, **options)
    one, other = (
        [
            answer["translation_text"]
            for answer in translate([text], num_return_sequences=3, num_beams=1, **options)[0]
        ]
        for text in ("A man.", "Two dogs.")
    )
    assert found[0] == one and len(set(one)) > 1
    assert [sample.split("\n")[0] for sample in found[1]] == other


def test_service_samples_depend_on_the_seed_only(client):
    options = {"do_sample": True, "seed": 7, "num_return_sequences": 2}
    (alone,) = ask(client, "A man.", **options)
    assert ask(client, ["Two dogs.", "A man.", "A man."], **options)[1:] == [alone, alone]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: ask(client, "A man.", **options), range(8)))
    assert together == [[alone]] * 8
    unseeded = {
        json.dumps(ask(client, "Two dogs run.", do_sample=True, temperature=3.0, top_k=0))
        for _ in range(4)
    }
    assert len(unseeded) > 1


# --- Other clients, and languages -----------------------------------------------------------------

WORDS = ["a", "man", "two", "dogs", "run", "across", "the", "green", "grass"]


@pytest.fixture(scope="module")
def busy(tiny_tokenizer):
    translate = TranslationPipeline(
        tiny_model(init_std=0.4), tiny_tokenizer, compile=False, num_beams=4
    )
    with (
        TestClient(create_service(translate_with(translate))) as client,
        ThreadPoolExecutor(12) as clients,
    ):
        client.clients = clients
        yield client


@examples(20)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=2, max_size=8
    )
)
def test_requests_of_other_clients_change_nothing(busy, texts):
    alone = [ask(busy, text) for text in texts]
    assert [*busy.clients.map(lambda text: ask(busy, text), texts)] == alone


@pytest.fixture(scope="module")
def multilingual(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("en", "fr")])
    return TranslationPipeline(tiny_model(vocab_size=len(tokenizer)), tokenizer)


@pytest.mark.parametrize("default", [Direction(), Direction(None, "fr")])
def test_service_translates_into_the_language_of_a_request(multilingual, default):
    translate = translate_with(multilingual, languages=default)
    with TestClient(create_service(translate, known=known_options(multilingual))) as client:
        for code in ("de", "fr"):
            expected = multilingual("A man.", tgt_lang=code)[0]["translation_text"]
            assert ask(client, "A man.", tgt_lang=code, src_lang="en") == [[expected]]
        if default.target:
            assert ask(client, "A man.") == [[expected]]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "The target language must be one of de, fr; got none."),
        ({"tgt_lang": "it"}, "The target language must be one of de, fr; got 'it'."),
        ({"tgt_lang": "de", "src_lang": "fr"}, "The source language must be one of en; got 'fr'."),
        ({"tgt_lang": "d" * 41}, f"`tgt_lang` must be the code of a language, got '{'d' * 41}'."),
    ],
)
def test_service_lists_the_languages_and_stays_healthy(multilingual, entries, message):
    answer = post(multilingual, known_options(multilingual), **entries)
    assert (answer.status_code, answer.json()) == (422, {"detail": message})


def test_service_checks_a_failed_model_in_the_language_of_the_request():
    calls = []

    def translate(texts, options, format):
        calls.append((texts, options.tgt_lang))
        if "break" in texts:
            raise RuntimeError
        return shout(texts, options, format)

    with TestClient(create_service(translate, known=["tgt_lang"])) as service:
        assert (
            service.post("/translate", json={"text": "break", "tgt_lang": "de"}).status_code == 500
        )
        assert (
            calls == [(["break"], "de"), (["1"], "de")]
            and service.get("/health").json()["status"] == "ok"
        )


# --- Documents ------------------------------------------------------------------------------------

DOCUMENTS = {
    "html": "<p>Two <b>dogs</b> run. A man is <a href='x'>sleeping</a>.</p>",
    "xml": "<?xml version='1.0'?><doc><p>Two dogs.</p><p>A <i>man</i>.</p></doc>",
    "markdown": "# Two dogs\n\nA *man* is sleeping, `code`.\n",
    "srt": (
        "1\n00:00:01,000 --> 00:00:02,000\nTwo dogs.\n\n2\n00:00:03,000 --> 00:00:04,000\nA man.\n"
    ),
    "xliff": '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file '
    'original="a" datatype="x" source-language="en" target-language="de"><body><trans-unit '
    'id="1"><source>Two dogs.</source></trans-unit>'
    "</body></file></xliff>",
}


@pytest.mark.parametrize("format", DOCUMENTS)
def test_service_translates_documents_like_the_command(format, client, translate):
    text, splitter = DOCUMENTS[format], find_splitter("abbreviations")
    expected = translate_document(text, format, translate.translate_sentences, splitter)
    assert ask(client, text, format=format) == [[expected]] and expected != text
    assert ask(client, [text, text], format=format) == [[expected], [expected]]


def test_service_names_the_language_of_a_page(translate):
    page = "<!DOCTYPE html>\r\n<html lang={}><p>{}<br /><!-- A man -->\r\n<p lang='fr'>Un homme"
    documents = DocumentTranslator(translate, direction=Direction("en", "de"))
    (found,) = documents([page.format("en", "A man")], "html")
    before, after = page.format("de", "\0").split("\0")
    assert found.startswith(before) and found.endswith(after) and "A man<br" not in found


def test_service_translates_documents_with_terms_and_protected_text(translate):
    documents, page = (
        DocumentTranslator(translate),
        {"text": "<p>A man runs at 12:30.</p>", "format": "html"},
    )
    answers = [
        post(translate, documents=documents, **page, protect=protect) for protect in (None, False)
    ]
    assert ["12:30" in answer.json()["translations"][0][0] for answer in answers] == [True, False]
    answer = post(translate, documents=documents, **page, glossary=TERMS, term_mode="exact")
    assert "Mann" in answer.json()["translations"][0][0]


def test_service_translates_a_document_beyond_the_limits_of_texts(translate):
    text = "<p>A man.</p>" + "<!-- -->" * 2000
    answer = post(translate, documents=DocumentTranslator(translate), text=text, format="html")
    assert answer.status_code == 200 and answer.json()["translations"][0][0].endswith(
        "<!-- -->" * 2000
    )
    refused = post(translate, documents=DocumentTranslator(translate), text=text)
    assert refused.status_code == 422 and "(--max_characters)" in refused.json()["detail"]
    limits = Limits(max_body_bytes=1000, max_document_bytes=2000)
    for format, flag, size in (
        ("html", "--max_document_bytes", 3000),
        ("text", "--max_body_bytes", 1500),
    ):
        refused = post(
            translate,
            documents=DocumentTranslator(translate),
            text="a" * size,
            format=format,
            limits=limits,
        )
        assert refused.status_code == 413 and flag in refused.json()["detail"]


def test_service_annotates_the_terms_of_its_glossary_for_a_model_that_knows_them(inline_terms):
    """Such a model may sample, since the search need not contain the terms."""
    glossary, options = Glossary([("dog", "Hund")]), {"do_sample": True, "seed": 1}
    expected = inline_terms(["A dog."], num_beams=1, glossary=glossary, term_mode=SOFT, **options)
    translate = translate_with(inline_terms, glossary=glossary)
    found = translate(["A dog."], TranslationOptions.resolve(options))
    assert found == [[answer["translation_text"] for answer in expected]]


def test_service_translates_documents_beside_texts(client):
    html = DOCUMENTS["html"]
    expected = (
        ask(client, html, format="html"),
        ask(client, html),
        ask(client, "A man.", format="text"),
    )
    with ThreadPoolExecutor(3) as pool:
        waiting = threading.Barrier(3)
        requests = [(html, {"format": "html"}), (html, {}), ("A man.", {})]
        found = pool.map(
            lambda request: waiting.wait() and None or ask(client, request[0], **request[1]),
            requests,
        )
    assert tuple(found) == expected


@pytest.mark.parametrize("format", ["html", "xml", "markdown"])
def test_service_survives_deep_nesting(format, client):
    text = {
        "html": "<b>" * 600 + "a",
        "xml": "<b>" * 280 + "a" + "</b>" * 280,
        "markdown": "> " * 900 + "a",
    }[format]
    assert client.post("/translate", json={"text": text, "format": format}).status_code in (
        200,
        422,
    )
    assert {"status": "ok", "failures": 0, "last_failure": None}.items() <= client.get(
        "/health"
    ).json().items()


# --- Refusals -------------------------------------------------------------------------------------

HTML, SAMPLE = {"text": "a", "format": "html"}, {"do_sample": True}
# Body → words of the answer with status 422.
REFUSED = [
    (
        {"text": "a", "format": "xlsx"},
        "`format` must be one of html, xml, markdown, srt, vtt, xliff",
    ),
    ({"text": "a", "format": 1}, "`format` must be text, got 1."),
    ({"text": "a", "format": "docx"}, "The file must be DOCX, a zip, but it cannot be read"),
    ({"text": ["<a/>", "<a>"], "format": "xml"}, "(at position 1)"),
    ({"text": "<a/>", "format": "xliff"}, "(at position 0)"),
    ({"text": "1\nText", "format": "srt"}, "(at position 0)"),
    ({"text": f"<{'a' * 1900}>", "format": "xml"}, "(at position 0)"),
    ({"text": [1], "format": "html"}, "Each text must be a string"),
    *(
        (HTML | option, "With `format` there is one translation.")
        for option in (
            {"return_scores": True},
            {"num_return_sequences": 2},
            {"constraints": ["a"]},
            {"target_prefix": "a"},
        )
    ),
    ({"temperature": 0.5}, "`temperature` is an option of sampling"),
    ({"seed": 1}, "`seed` is an option of sampling"),
    (SAMPLE | {"seed": 10**400}, "`seed` must be"),
    (SAMPLE | {"top_k": 0.5}, "top_k"),
    (SAMPLE | {"constraints": ["a"]}, "`constraints` need beam search. Leave `do_sample` out."),
    (SAMPLE | {"glossary": TERMS}, "in the mode exact needs beam search"),
    (
        {"mbr": "chrf", "mbr_samples": 1000},
        "`mbr_samples` may be at most 64 (--max_mbr_samples), got 1000.",
    ),
    ({"mbr": "chrf", "constraints": ["a"]}, "Constraints need beam search"),
    ({"rerank_reverse_weight": 1}, "`rerank_reverse_weight` needs `rerank_reverse`"),
    ({"constraints": [["a"], 3, []]}, "or a list of phrases for each text, got 3 for a text."),
    (
        {"constraints": ["Hunde " * 10]},
        "A translation may have 12 tokens, but its constraints have",
    ),
    (
        {"text": "a\nb", "constraints": ["a"]},
        "A text with constraints must be one line or sentence",
    ),
    (
        {"target_prefix": ["a", 3, "b"]},
        "`target_prefix` must be a string, or one for each text, got 3.",
    ),
    (
        {"target_prefix": "Hunde " * 20},
        "A target prefix must be shorter than the 12 tokens of the limit",
    ),
    ({"glossary": TERMS, "term_mode": "soft"}, "was not trained with inline terms. Give"),
    ({"glossary": {"": "x"}}, "The glossary must have a word in each source, got ''"),
    ({"glossary": {}}, "The glossary must have a term with its translation, but it is empty"),
    ({"glossary": {"a": 1}}, "must have pairs of a term and its translation"),
    ({"glossary": "terms.tsv"}, "`glossary` must be an object of terms with their translations"),
    ({"glossary": {"man": "Hunde " * 8}}, "A translation may have 12 tokens, but its constraints"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_service_explains_options_that_it_refuses(body, words, client):
    answer = client.post("/translate", json={"text": TEXTS} | body)
    assert answer.status_code == 422 and words in answer.json()["detail"], answer.text
    assert len(answer.content) < 400 and "\n" not in answer.json()["detail"], (
        "an error must not repeat the request"
    )
    assert client.get("/health").json()["failures"] == 0


@pytest.mark.parametrize(
    ("body", "known", "words"),
    [
        (SAMPLE, [], "no sampling"),
        (HTML, [], "no documents"),
        ({"tgt_lang": "de"}, [], "has only one direction. Leave `tgt_lang` out"),
        (
            {"mbr": "chrf"},
            ["do_sample"],
            "This service has no model or search for `mbr`. Leave it out.",
        ),
        (
            {"split_sentences": True},
            ["mbr"],
            "has no sentence splitter. Leave `split_sentences` out.",
        ),
        (
            {"constraints": ["a"]},
            ["do_sample"],
            "has no beam search with constraints. Leave `constraints` out.",
        ),
        ({"target_prefix": "a"}, ["do_sample"], "has no such search. Leave `target_prefix` out."),
        ({"glossary": TERMS}, ["do_sample"], "has no beam search with constraints"),
    ],
)
def test_service_names_an_option_that_its_model_lacks(body, known, words, translate):
    answer = post(translate, known, **body)
    assert answer.status_code == 422 and words in answer.json()["detail"]


def test_known_options_need_an_engine_and_alignment_heads(translate, tiny_tokenizer):
    of_any_model, heads = (
        ["split_sentences", "protect", "format"],
        {"return_alignments", "return_confidence"},
    )
    known = known_options(translate)
    assert known[-3:] == of_any_model and {"return_scores", "do_sample", "glossary", "mbr"} < {
        *known
    }
    assert not heads & {*known}
    aligned = known_options(
        TranslationPipeline(tiny_model(alignment_heads=[[0, 0]]), tiny_tokenizer)
    )
    assert heads & {*aligned} == {"return_alignments"}
    assert (
        known_options(SimpleNamespace(model=object(), tokenizer=tiny_tokenizer, uses_engine=False))
        == of_any_model
    )
