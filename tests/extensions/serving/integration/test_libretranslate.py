"""The service answers requests in the form of LibreTranslate."""

import json
import logging
from functools import partial
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from fastapi.testclient import TestClient

from tests.services import echo, running_service
from vanilla_transformer.extensions.serving import language_detection
from vanilla_transformer.extensions.serving.language_detection import (
    closest_languages,
    detect_languages,
    language_name,
)
from vanilla_transformer.extensions.serving.libretranslate import Question
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import (
    LoadedModel,
    ModelLoader,
    Models,
    ServedModel,
)
from vanilla_transformer.extensions.serving.service import create_service, create_service_of
from vanilla_transformer.text.languages import Direction

FORM = {"content-type": "application/x-www-form-urlencoded"}
MULTIPART = {"content-type": "multipart/form-data; boundary=x"}
ENGLISH = "A young woman is reading a book in the park."
GERMAN = "Der Hund läuft durch das hohe Gras."


def directions(names):
    return [Direction(*name.split("-")) for name in names.split()]


def number_texts(text, count):
    """Return different translations of a text."""
    return [f"{text} {number}" for number in range(count)]


def rank(texts, options, format):
    return [number_texts(text, options.count) for text in texts]


def serving(names, translate=rank, known=(), **options):
    options |= {"known": known, "directions": directions(names)}
    service = create_service(translate, **options)
    return TestClient(service, raise_server_exceptions=False)


# Services that answer with the languages of each text.
echoing = partial(serving, translate=echo, known=["src_lang", "tgt_lang"])


@pytest.fixture
def client():
    with serving("en-de") as client:
        yield client


@pytest.fixture
def detecting():
    """Return a client of a service that translates into French, and from English into German."""
    names = "en-fr deu_Latn-fr en-de"
    with echoing(names, detect=detect_languages, api_keys=["key"]) as client:
        client.headers["authorization"] = "Bearer key"
        yield client


def ask(client, path="/translate", **entries):
    body = {"q": ["one", "two"], "source": "en", "target": "de"} | entries
    return client.post(path, json=body)


def error_of(answer, status=400):
    """Return the reason of a refusal in the form of LibreTranslate."""
    assert answer.status_code == status, answer.text
    assert [*answer.json()] == ["error"], answer.text
    return answer.json()["error"]


@pytest.mark.parametrize(
    ("entries", "answer"),
    [
        ({}, {"translatedText": ["one 0", "two 0"]}),
        ({"source": "en-US", "target": "DE"}, {"translatedText": ["one 0", "two 0"]}),
        ({"source": "auto", "target": "de_AT"}, {"translatedText": ["one 0", "two 0"]}),
        ({"q": "one", "source": "auto", "format": "text"}, {"translatedText": "one 0"}),
        (
            {"q": "one", "alternatives": "2"},
            {"translatedText": "one 0", "alternatives": ["one 1", "one 2"]},
        ),
        (
            {"q": ["one"], "alternatives": 2},
            {"translatedText": ["one 0"], "alternatives": [["one 1", "one 2"]]},
        ),
    ],
)
def test_libretranslate_answers_in_its_form(client, entries, answer):
    assert ask(client, **entries).json() == answer


def test_libretranslate_forms_are_no_json(client):
    """As `curl -d` sends JSON: a text with `&q=` in it is no form."""
    text = "A man & a dog.&q=Grass."
    answer = client.post("/translate", content=json.dumps({"text": text}), headers=FORM)
    assert answer.json() == {"translations": [[f"{text} 0"]]}
    body = json.dumps({"q": text, "source": "en", "target": "de"})
    answer = client.post("/translate", content=body, headers=FORM)
    assert answer.json() == {"translatedText": f"{text} 0"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"source": "fr"}, "`source` and `target` must be a direction of this service: en-de."),
        ({"target": "dex"}, "`source` and `target` must be a direction of this service: en-de."),
        ({"target": None}, "`source` and `target` must be given"),
        (
            {"alternatives": -1},
            "`alternatives` must be a number of 0 or more, of at most 9 digits.",
        ),
        (
            {"alternatives": "9" * 5000},
            "`alternatives` must be a number of 0 or more, of at most 9 digits.",
        ),
        (
            {"alternatives": 99},
            "`alternatives` must give 1 to at most 8 (--max_hypotheses), got 100.",
        ),
        ({"q": [1]}, "text"),
        ({"q": {}}, "`q` must be a string or a list of strings, got an object."),
        ({"q": ["a"] * 300}, "`q` may be a list of at most 256 (--max_texts), got 300."),
        ({"format": "html"}, "translates no documents"),
    ],
)
def test_libretranslate_refuses_in_its_form(client, entries, message):
    assert message in error_of(ask(client, **entries))


def test_libretranslate_asks_for_a_missing_text_in_its_form(client):
    answer = client.post("/translate", json={"source": "en", "target": "de"})
    assert error_of(answer) == "The body must have the entry `q`."


def test_libretranslate_key_may_be_in_the_body():
    with serving("en-de", api_keys=["first"]) as client:
        assert ask(client).status_code == 403
        assert ask(client, api_key="other").status_code == 403
        assert "translatedText" in ask(client, api_key="first").json()
        answer = client.post("/translate", json={"text": "a", "api_key": "first"})
        assert answer.status_code == 401


def test_libretranslate_without_the_classifier_detects_nothing():
    with serving("en-fr de-fr en-de") as client:
        assert client.get("/languages").json() == [
            {"code": "en", "name": "English", "targets": ["fr", "de"]},
            {"code": "de", "name": "German", "targets": ["fr"]},
            {"code": "fr", "name": "French", "targets": []},
        ]
        assert client.post("/detect", json={"q": "a"}).status_code == 404
        reason = error_of(ask(client, source="auto", target="fr"))
        assert "the detection of languages is not installed" in reason
        # The only source, which this model does not know
        assert "`source`" in error_of(ask(client))


# --- Detection of languages -----------------------------------------------------------------------


SAMPLES = [(ENGLISH, "en", "en"), (GERMAN, "de", "deu_Latn")]


@pytest.mark.parametrize(("text", "code", "source"), SAMPLES)
def test_libretranslate_detects_the_language(detecting, text, code, source):
    for sent in ({"json": {"q": text}}, {"data": {"q": text}}):
        best, *others = detecting.post("/detect", **sent).json()
        assert best["language"] == code
        assert 50 < best["confidence"] <= 100
        assert len(others) < 20
        for other in others:
            assert 1 <= other["confidence"] <= best["confidence"]
    answer = ask(detecting, q=text, source="auto", target="fr").json()
    assert answer["translatedText"] == f"{source}-fr {text}"
    assert answer["detectedLanguage"]["language"] == source
    assert answer["detectedLanguage"]["confidence"] > 50


def test_libretranslate_detects_the_language_of_each_text(detecting):
    texts = [GERMAN, ENGLISH, GERMAN.upper(), ENGLISH]
    body = {"q": texts, "source": "AUTO", "target": "fr-FR", "alternatives": 1}
    answer = ask(detecting, **body).json()
    codes = ["deu_Latn", "en"] * 2
    expected = [f"{code}-fr {text}" for code, text in zip(codes, texts, strict=True)]
    assert answer["translatedText"] == expected
    assert answer["alternatives"] == [[text] for text in expected]
    for text, language in zip(texts, answer["detectedLanguage"], strict=True):
        alone = ask(detecting, **body | {"q": text}).json()
        assert alone["detectedLanguage"] == language
    nothing = {"translatedText": [], "detectedLanguage": [], "alternatives": []}
    assert ask(detecting, **body | {"q": []}).json() == nothing
    texts = [ENGLISH, GERMAN, "Ein Hund."]
    answer = ask(detecting, q=texts, source="auto", alternatives=1).json()
    assert answer["translatedText"] == [f"en-de {ENGLISH}", GERMAN, "en-de Ein Hund."]
    assert answer["alternatives"][1] == [GERMAN], "a text in the target language"
    codes = [language["language"] for language in answer["detectedLanguage"]]
    assert codes == ["en", "de", "en"], "the only source of German"
    answer = ask(detecting, q="Ein Hund.", target="fr").json()
    assert answer == {"translatedText": "en-fr Ein Hund."}


def test_libretranslate_names_the_position_of_a_refused_text():
    limits = Limits(max_texts=3, max_tokens=60)
    size = len(ENGLISH) * 2
    with echoing("en-fr de-fr", limits=limits, detect=detect_languages) as client:

        def reason(texts):
            return error_of(ask(client, q=texts, source="auto", target="fr"))

        assert reason([GERMAN, ENGLISH, ENGLISH * 2]) == (
            f"The tokens of a text may be at most 60 (--max_tokens), got {size} at position 2."
        )
        assert "at most 3 (--max_texts), got 4" in reason([GERMAN] * 4)


def test_libretranslate_detects_languages_of_models_in_turn():
    loader = ModelLoader(max_loaded=1)

    def load(direction):
        def translate(texts, options, format):
            return [[f"{direction} {text}"] * options.count for text in texts]

        return LoadedModel(translate)

    models = []
    for direction in directions("en-fr de-fr"):
        load_one = partial(load, direction)
        options = {"directions": [direction], "loader": loader}
        models.append(ServedModel(str(direction), Limits(), load_one, **options))
    service = create_service_of(Models(models), detect=detect_languages)
    with TestClient(service) as client:
        answer = ask(client, q=[ENGLISH, GERMAN] * 2, source="auto", target="fr").json()
        expected = [f"en-fr {ENGLISH}", f"de-fr {GERMAN}"] * 2
        assert answer["translatedText"] == expected


@pytest.mark.parametrize(
    ("path", "entries", "message"),
    [
        ("/detect", {"q": ["a"]}, "`q` must be a text."),
        ("/detect", {"q": None}, "`q` must be a text."),
        ("/detect", {}, "must have the entry `q`."),
        (
            "/translate",
            {"q": ENGLISH, "source": "auto", "target": "it"},
            "a direction of this service",
        ),
        ("/translate", {"q": [3], "source": "auto", "target": "fr"}, "Each text must be a string"),
    ],
)
def test_libretranslate_detects_the_language_of_texts_only(detecting, path, entries, message):
    assert message in error_of(detecting.post(path, json=entries))
    headers = {"authorization": "Bearer x"}
    answer = detecting.post(path, json={"q": "a"}, headers=headers)
    assert answer.status_code == 403


# --- Forms and queries ----------------------------------------------------------------------------


# How clients send the entries of a request.
def split_entries(entries):
    """Return the arguments of a request whose text is in the form, and else in the query."""
    query = dict(entries)
    return {"data": {"q": query.pop("q")}, "params": query}


def as_parts(entries):
    """Return the arguments of a request with entries in parts."""
    return {"files": {name: (None, value) for name, value in entries.items()}}


SENT = {
    "json": lambda entries: {"json": entries},
    "form": lambda entries: {"data": entries},
    "multipart": as_parts,
    "query": lambda entries: {"params": entries},
    "query and form": split_entries,
}


@pytest.mark.parametrize("way", SENT)
def test_libretranslate_reads_entries_of_every_kind(way, detecting):
    text = "Zwei Hunde & größere Ü\nGras=ja"
    del detecting.headers["authorization"]
    sent = {"q": text, "source": "en", "target": "fr", "api_key": "key"}
    answer = detecting.post("/translate", **SENT[way](sent))
    assert answer.json() == {"translatedText": f"en-fr {text}"}
    answer = detecting.post("/detect", **SENT[way](sent))
    assert answer.json()[0]["language"] == "de"
    sent["api_key"] = "x"
    assert error_of(detecting.post("/translate", **SENT[way](sent)), 403)


def test_libretranslate_prefers_the_query_and_reads_texts(detecting):
    entries = {"q": ["a\r\nb", "c"], "source": "en", "target": "fr"}
    answer = detecting.post("/translate?target=de", data=entries)
    # Browsers send other line ends.
    assert answer.json() == {"translatedText": ["en-de a\nb", "en-de c"]}


# Bodies with a text in Latin-1, which is not UTF-8.
PAIRS = b"source=en&target=fr&api_key=key&q="
PARTS = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
ENTRIES = {b"source": b"en", b"target": b"fr", b"api_key": b"key", b"q": b"gr\xfcn"}
DECLARED = {"content-type": FORM["content-type"] + "; charset=ISO-8859-1"}
IN_PARTS = b"".join(PARTS % pair for pair in ENTRIES.items()) + b"--x--\r\n"
LATIN = {
    "form": (PAIRS + b"gr\xfcn", FORM),
    "escaped": (PAIRS + b"gr%FCn", FORM),
    "declared": (PAIRS + b"gr%FCn", DECLARED),
    "multipart": (IN_PARTS, MULTIPART),
}


@pytest.mark.parametrize("path", ["/translate", "/detect"])
@pytest.mark.parametrize("way", LATIN)
def test_libretranslate_refuses_forms_that_are_not_utf_8(way, path, detecting):
    del detecting.headers["authorization"]
    content, headers = LATIN[way]
    query = f"{path}?source=en&target=fr&api_key=key&q=gr%FCn"
    answer = detecting.post(path, content=content, headers=headers)
    assert error_of(answer) == "`q` must be UTF-8, got other bytes."
    answer = detecting.post(query)
    assert error_of(answer) == "`q` must be UTF-8, got other bytes."


def test_libretranslate_refuses_other_forms_in_its_form(detecting):
    for path in ("/translate", "/detect"):
        for way in ("form", "multipart", "query"):
            answer = detecting.post(path, **SENT[way]({"source": "en", "target": "fr"}))
            assert error_of(answer) == "The form must have the entry `q`."
    file = {"q": ("a.txt", b"a"), "source": (None, "en"), "target": (None, "fr")}
    answer = detecting.post("/translate", files=file)
    assert error_of(answer) == "`q` must be a text, not a file."
    assert error_of(detecting.post("/translate", content=b"--y", headers=MULTIPART))
    for answer in (detecting.get("/detect"), detecting.post("/languages")):
        assert error_of(answer, 405) == "Method Not Allowed"


@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_libretranslate_refuses_a_lone_surrogate_in_each_entry(path, detecting):
    for name in Question.model_fields:
        body = {"q": "a", "source": "auto", "target": "fr", name: "\ud800"}
        reason = error_of(detecting.post(path, content=json.dumps(body)))
        assert reason == f"`{name}` must be valid Unicode, got a lone surrogate."


JSON = "application/json"
OTHER_PARTS = MULTIPART["content-type"] + "; charset=unicode_escape"
SURROGATES = [
    ("/translate", rb'{"q": "a", "api_key": "\ud800"}', JSON),
    ("/detect", rb'{"q": "a", "api_key": "\ud800"}', JSON),
    ("/detect", rb'{"api_key": "\ud800"}', JSON),
    ("/translate_file", PARTS % (b"api_key", rb"\ud800") + b"--x--\r\n", OTHER_PARTS),
]


@pytest.mark.parametrize(("path", "content", "content_type"), SURROGATES)
def test_libretranslate_refuses_a_key_with_a_surrogate(path, content, content_type):
    with echoing("", api_keys=["key"], detect=detect_languages) as client:
        headers = {"content-type": content_type}
        answer = client.post(path, content=content, headers=headers)
        assert answer.status_code == 403


# --- Codes of languages ---------------------------------------------------------------------------

CODES = "en-zho_Hans en-zho_Hant deu_Latn-pt_BR en-fr"


@pytest.mark.parametrize(
    ("source", "target", "direction"),
    [
        ("en-US", "fr_CA", "en-fr"),
        ("eng", "zh", "en-zho_Hans"),
        ("de-AT", "pt-br", "deu_Latn-pt_BR"),
        ("de", "pt-PT", None),
        ("de", "fr", None),
        ("xx", "fr", None),
        ("", "fr", None),
        ("en", "f", None),
    ],
)
def test_libretranslate_understands_codes_as_browsers_spell_them(source, target, direction):
    with echoing(CODES) as client:
        answer = ask(client, q="a", source=source, target=target)
    if direction is None:
        assert "a direction of this service: en-zho_Hans" in error_of(answer)
    else:
        assert answer.json() == {"translatedText": f"{direction} a"}


@pytest.mark.parametrize(
    ("code", "known", "fitting"),
    [
        ("EN", ["en", "fr"], ["en"]),
        ("zh", ["zh_Hant", "zh-Hans", "zh"], ["zh", "zh-Hans", "zh_Hant"]),
        ("ZH", ["zh-Hans", "zh"], ["zh", "zh-Hans"]),
        ("zh-CN", ["zh", "zh_Hant", "zh_Hans"], ["zh_Hans", "zh"]),
        ("zh-TW", ["zho_Hans", "zh-CN"], []),
        ("ZH-tw", ["zho_Hans", "zho_Hant"], ["zho_Hant"]),
        ("zh_Hant_HK", ["zho_Hans", "zho_Hant"], ["zho_Hant"]),
        ("pt", ["pt_PT", "pt-BR"], ["pt-BR", "pt_PT"]),
        ("en-GB", ["en-US", "en"], ["en"]),
        ("sr", ["srp_Latn", "srp_Cyrl"], ["srp_Cyrl", "srp_Latn"]),
        ("he", ["iw"], ["iw"]),
        ("ACE-arab", ["ace_Latn", "ace_Arab"], ["ace_Arab"]),
        ("not a code", ["en"], []),
    ],
)
def test_closest_languages(code, known, fitting):
    assert closest_languages(code, known) == fitting


def test_closest_languages_keeps_no_long_codes_in_memory():
    before = language_detection._parse.cache_info().currsize
    assert closest_languages("en" + "-" * 10**6, ["en"]) == []
    assert language_detection._parse.cache_info().currsize == before


NAMES = [
    ("pt-BR", "Portuguese (Brazil)"),
    ("deu_Latn", "German"),
    ("xx", "xx"),
    ("!", "!"),
    ("", ""),
]


@pytest.mark.parametrize(("code", "name"), NAMES)
def test_language_name_is_english_or_the_code(code, name):
    assert language_name(code) == name


def test_libretranslate_describes_itself_for_pages():
    with echoing(CODES, limits=Limits(max_characters=7), api_keys=["key"]) as client:
        settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 7
    assert settings["keyRequired"]
    assert not settings["filesTranslation"]
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["language"]["target"]["code"] == "zho_Hans"
    with echoing("", documents=object()) as client:
        settings = client.get("/frontend/settings").json()
    assert ".html" in settings["supportedFilesFormat"]
    assert settings["language"]["source"]["code"] == "auto"


# --- A public client runs unchanged against a service with its real server ------------------------


@pytest.fixture(scope="module")
def address():
    service = echoing("en-fr de-fr", detect=detect_languages, api_keys=["key"]).app
    with running_service(service, Limits()) as server:
        host, port = server.address
        yield f"http://{host}:{port}"


def test_libretranslatepy_translates(address):
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(address, "key")
    assert client.translate(GERMAN, "de", "fr") == f"de-fr {GERMAN}"
    assert client.translate(ENGLISH, "auto", "FR") == f"en-fr {ENGLISH}"
    assert client.detect(GERMAN)[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["en", "de", "fr"]
    client.api_key = "other"
    with pytest.raises(HTTPError, match="403"):
        client.translate(GERMAN, "de", "fr")


def test_the_log_has_no_queries(address):
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("uvicorn.access").addHandler(handler)
    try:
        urlopen(f"{address}/languages?api_key=key&q=secret").close()
    finally:
        logging.getLogger("uvicorn.access").removeHandler(handler)
    (line,) = lines
    assert line.endswith('"GET /languages HTTP/1.1" 200')
