"""Options of requests: answers are the pipeline's, and wrong options have status 422 with one
line.
"""

import copy
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
    options["max_new_tokens"] = 12
    return TranslationPipeline(model, tokenizer, device="cpu", **options)


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return pipeline(tiny_tokenizer)


@pytest.fixture(scope="module")
def reverse(tiny_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reverse") / "model"
    return save_model_folder(tiny_model(3), tiny_tokenizer, folder)


@pytest.fixture(scope="module")
def inline_terms():
    return TranslationPipeline(*model_with_inline_terms(), device="cpu")


@pytest.fixture
def client(translate):
    documents = DocumentTranslator(translate)
    limits = Limits(max_characters=2000, max_texts=4)
    translated = translate_with(translate, documents)
    service = create_service(translated, limits, known=ENTRIES, documents=documents)
    with TestClient(service, raise_server_exceptions=False) as client:
        yield client


def ask(client, text, **options):
    answer = client.post("/translate", json={"text": text} | options)
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def texts_of(answers):
    """Return the translations that a pipeline returned."""
    return [answer["translation_text"] for answer in answers]


def rows_of(answers):
    """Return what the service answers where a pipeline returned answers."""
    rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
    return {"translations": [*map(texts_of, rows)]}


def refusal_of(answer, status=422):
    """Return the reason of a refusal."""
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


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
        {"draft": ["Ein Mann. Ein Mann", None, ""], "draft_bias": 0.5},
        {"split_sentences": True},
    ],
)
def test_service_translates_like_the_pipeline(translate, options):
    texts = ["Dr. Smith sleeps. A man runs.", *TEXTS[1:]]
    expected = rows_of(translate(texts, **options))
    assert post(translate, text=texts, **options).json() == expected


def test_service_splits_texts_of_clients_of_libretranslate(translate):
    texts = ["Dr. Smith sleeps. A man runs.", "Dogs\n\nA man. Two dogs."]
    service = create_service(
        translate_with(translate), known=ENTRIES, directions=[Direction("en", "de")]
    )
    question = {"q": texts, "source": "en", "target": "de"}
    with TestClient(service) as client:
        answers = client.post("/translate", json=question).json()["translatedText"]
        more = client.post("/translate", json=question | {"alternatives": 1}).json()
    assert answers == texts_of(translate(texts, split_sentences=True))
    assert answers != texts_of(translate(texts))
    rows = translate(texts, split_sentences=True, num_return_sequences=2)
    both = zip(more["translatedText"], more["alternatives"], strict=True)
    assert [[best, *others] for best, others in both] == [texts_of(row) for row in rows]


def test_service_takes_null_and_nothing_as_not_given(translate):
    nothing = dict.fromkeys(ENTRIES) | {"text": TEXTS}
    plain = rows_of(translate(TEXTS))
    for options in (nothing, {"constraints": []}, {"constraints": [[], [], []]}):
        assert post(translate, **options).json() == plain


def test_service_limits_the_default_number_of_samples(translate):
    answers = rows_of(translate(TEXTS, mbr="chrf", mbr_samples=3, seed=3))
    limits = Limits(max_mbr_samples=3)
    assert post(translate, mbr="chrf", seed=3, limits=limits).json() == answers


def test_service_chooses_the_beams_that_options_need(tiny_tokenizer):
    greedy, wide = pipeline(tiny_tokenizer, 1), pipeline(tiny_tokenizer, 16)
    for options in ({"constraints": ["a"]}, {"glossary": {"a": "b"}}):
        expected = rows_of(greedy(TEXTS, num_beams=4, **options))
        assert post(greedy, **options).json() == expected
    answers = wide(TEXTS, num_return_sequences=4)
    assert answers != wide(TEXTS, num_return_sequences=4, num_beams=4)
    assert post(wide, num_return_sequences=4).json() == rows_of(answers)


def test_service_reranks_like_the_pipeline(tiny_tokenizer, reverse, tmp_path):
    by_reverse = pipeline(tiny_tokenizer, rerank_reverse=reverse)
    known = known_options(by_reverse)
    assert "mbr" not in known
    for options in ({}, {"rerank_reverse_weight": 2.0, "rerank_length_weight": 0.1}):
        expected = rows_of(by_reverse(TEXTS, num_beams=4, **options))
        assert post(by_reverse, known, **options).json() == expected
    quality = write_comet(tmp_path / "quality", UNIFIED)
    by_quality = pipeline(tiny_tokenizer, rerank_quality=quality)
    known = known_options(by_quality)
    assert not {"mbr", "rerank_reverse_weight", "rerank_length_weight"} & {*known}
    assert not {"alternatives", "draft"} & {*known}
    expected = rows_of(by_quality(TEXTS, num_beams=4))
    assert post(by_quality, known).json() == expected
    answer = post(by_quality, known, rerank_length_weight=1.0)
    assert "no model or search for `rerank_length_weight`" in refusal_of(answer)


def test_serve_loads_further_models(monkeypatch):
    def load(name, precision, **further):
        raise ValueError(f"{name} with {further}")

    monkeypatch.setattr("vanilla_transformer.decoding.loading.load_pipeline", load)
    flags = ["--ensemble", "b", "--ensemble_weights", "2", "1", "--rerank_reverse", "c"]
    further = {"ensemble": ["b"], "ensemble_weights": [2.0, 1.0], "rerank_reverse": "c"}
    with pytest.raises(ValueError, match=re.escape(f"a with {further}")):
        serve_command(["a", "--port", "0", *flags])


@pytest.mark.parametrize("mode", [None, "soft", "hard", "exact"])
def test_service_uses_a_glossary_like_the_pipeline(inline_terms, mode):
    options = {"glossary": TERMS} | ({"term_mode": mode} if mode else {})
    answer = post(inline_terms, [*ENTRIES, SOFT_TERMS], **options)
    assert answer.json() == rows_of(inline_terms(TEXTS, **options))


def test_service_constrains_models_without_soft_terms(translate):
    answer = post(translate, text=["A man.", "Two dogs."], glossary=TERMS)
    first, second = answer.json()["translations"]
    assert "Mann" in first[0]
    assert "Mann" not in second[0]


def test_service_samples_like_the_pipeline(client, translate):
    options = {"do_sample": True, "seed": 7, "temperature": 1.5, "top_k": 20}
    options["num_return_sequences"] = 3
    (one,) = translate(["A man."], num_beams=1, **options)
    (other,) = translate(["Two dogs."], num_beams=1, **options)
    samples = ask(client, ["A man.", "Two dogs.\nA man."], **options)
    assert samples[0] == texts_of(one)
    assert len(set(samples[0])) > 1
    assert [sample.split("\n")[0] for sample in samples[1]] == texts_of(other)


def test_service_samples_depend_on_the_seed_only(client):
    options = {"do_sample": True, "seed": 7, "num_return_sequences": 2}
    (alone,) = ask(client, "A man.", **options)
    beside = ask(client, ["Two dogs.", "A man.", "A man."], **options)
    assert beside[1:] == [alone, alone]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, client, "A man.", **options) for _ in range(8)]
    assert [request.result() for request in waiting] == [[alone]] * 8
    options = {"do_sample": True, "temperature": 3.0, "top_k": 0}
    unseeded = [str(ask(client, "Two dogs run.", **options)) for _ in range(4)]
    assert len({*unseeded}) > 1


# --- Other clients, and languages -----------------------------------------------------------------

WORDS = ["a", "man", "two", "dogs", "run", "across", "the", "green", "grass"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@pytest.fixture(scope="module")
def busy(tiny_tokenizer):
    model = tiny_model(init_std=0.4)
    translate = TranslationPipeline(model, tiny_tokenizer, compile=False, num_beams=4)
    service = create_service(translate_with(translate))
    with TestClient(service) as client, ThreadPoolExecutor(12) as clients:
        client.clients = clients
        yield client


@examples(20)
@given(texts=st.lists(TEXT, min_size=2, max_size=8))
def test_requests_of_other_clients_change_nothing(busy, texts):
    alone = [ask(busy, text) for text in texts]
    together = busy.clients.map(lambda text: ask(busy, text), texts)
    assert [*together] == alone


@pytest.fixture(scope="module")
def multilingual(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("en", "fr")])
    return TranslationPipeline(tiny_model(vocab_size=len(tokenizer)), tokenizer)


@pytest.mark.parametrize("default", [Direction(), Direction(None, "fr")])
def test_service_translates_into_the_language_of_a_request(multilingual, default):
    translate = translate_with(multilingual, languages=default)
    service = create_service(translate, known=known_options(multilingual))
    with TestClient(service) as client:
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
        answer = service.post("/translate", json={"text": "break", "tgt_lang": "de"})
        assert answer.status_code == 500
        assert calls == [(["break"], "de"), (["1"], "de")]
        assert service.get("/health").json()["status"] == "ok"


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
    assert expected != text
    assert ask(client, text, format=format) == [[expected]]
    both = ask(client, [text, text], format=format)
    assert both == [[expected], [expected]]


def test_service_names_the_language_of_a_page(translate):
    page = "<!DOCTYPE html>\r\n<html lang={}><p>{}<br /><!-- A man -->\r\n<p lang='fr'>Un homme"
    documents = DocumentTranslator(translate, direction=Direction("en", "de"))
    (translated,) = documents([page.format("en", "A man")], "html")
    before, after = page.format("de", "\0").split("\0")
    assert translated.startswith(before)
    assert translated.endswith(after)
    assert "A man<br" not in translated


def test_service_translates_documents_with_terms_and_kept_text(translate):
    documents = DocumentTranslator(translate)

    def translated(**options):
        page = {"text": "<p>A man runs at 12:30.</p>", "format": "html"}
        answer = post(translate, documents=documents, **page, **options)
        return answer.json()["translations"][0][0]

    assert "12:30" in translated(protect=None)
    assert "12:30" not in translated(protect=False)
    assert "Mann" in translated(glossary=TERMS, term_mode="exact")


def test_service_translates_a_document_beyond_the_limits_of_texts(translate):
    comments = "<!-- -->" * 2000
    page = {"text": "<p>A man.</p>" + comments, "format": "html"}
    documents = DocumentTranslator(translate)
    answer = post(translate, documents=documents, **page)
    assert answer.status_code == 200
    assert answer.json()["translations"][0][0].endswith(comments)
    refused = post(translate, documents=documents, text=page["text"])
    assert "(--max_characters)" in refusal_of(refused)
    options = {"limits": Limits(max_body_bytes=1000, max_document_bytes=2000)}
    options["documents"] = documents
    refused = post(translate, text="a" * 3000, format="html", **options)
    assert "--max_document_bytes" in refusal_of(refused, 413)
    refused = post(translate, text="a" * 1500, format="text", **options)
    assert "--max_body_bytes" in refusal_of(refused, 413)


def test_service_annotates_terms_for_a_model_that_knows_them(inline_terms):
    """Such a model may sample, since the search need not contain the terms."""
    glossary, options = Glossary([("dog", "Hund")]), {"do_sample": True, "seed": 1}
    terms = {"glossary": glossary, "term_mode": SOFT}
    expected = inline_terms(["A dog."], num_beams=1, **terms, **options)
    translate = translate_with(inline_terms, glossary=glossary)
    answers = translate(["A dog."], TranslationOptions.resolve(options))
    assert answers == [texts_of(expected)]


def test_service_translates_documents_beside_texts(client):
    html = DOCUMENTS["html"]
    requests = [(html, {"format": "html"}), (html, {}), ("A man.", {"format": "text"})]
    expected = [ask(client, text, **options) for text, options in requests]
    requests[2] = ("A man.", {})
    waiting = threading.Barrier(3)

    def ask_together(request):
        text, options = request
        waiting.wait()
        return ask(client, text, **options)

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(ask_together, requests)] == expected


NESTED = {
    "html": "<b>" * 600 + "a",
    "xml": "<b>" * 280 + "a" + "</b>" * 280,
    "markdown": "> " * 900 + "a",
}


@pytest.mark.parametrize("format", NESTED)
def test_service_survives_deep_nesting(format, client):
    body = {"text": NESTED[format], "format": format}
    assert client.post("/translate", json=body).status_code in (200, 422)
    health = client.get("/health").json()
    assert health.items() >= {"status": "ok", "failures": 0, "last_failure": None}.items()


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
            {"draft": "a"},
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
    ({"draft": ["a", 3, "b"]}, "text, or one for each text, None for no draft, got 3."),
    ({"draft": "a", "num_return_sequences": 2}, "A `draft` needs `num_beams=1` and, but for"),
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
    reason = refusal_of(answer)
    assert words in reason, answer.text
    assert "\n" not in reason
    assert len(answer.content) < 400, "an error must not repeat the request"
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
    assert words in refusal_of(answer)


def test_known_options_need_an_engine_and_alignment_heads(translate, tiny_tokenizer):
    of_any_model = ["split_sentences", "protect", "format"]
    heads = {"return_alignments", "return_confidence"}
    known = known_options(translate)
    assert known[-3:] == of_any_model
    assert {"return_scores", "do_sample", "glossary", "mbr"} < {*known}
    assert not heads & {*known}
    model = tiny_model(alignment_heads=[[0, 0]])
    aligned = known_options(TranslationPipeline(model, tiny_tokenizer))
    assert heads & {*aligned} == {"return_alignments"}
    other = SimpleNamespace(model=object(), tokenizer=tiny_tokenizer, uses_engine=False)
    assert known_options(other) == of_any_model
