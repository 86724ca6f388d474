"""The command `serve`: one model or several, and its refusals in one line."""

import copy
import shutil
import socket
import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from tests.sweeps import rare
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline, __version__
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import loading
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.extensions.serving.commands import ServeArguments
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags, store_direction
from vanilla_transformer.text.protection import adds_signs

TEXT = "A man is sleeping."


@pytest.fixture
def served(monkeypatch):
    """Let `serve` build its service and stop before it runs; return the services."""
    services = []

    def run_server(service, listener, limits):
        services.append(service)

    monkeypatch.setattr(server, "run_server", run_server)
    return services


@pytest.fixture
def loaded_on(monkeypatch):
    """Load a pipeline that does nothing, and return the threads on which it was loaded."""
    threads = []

    def load(*arguments, **options):
        threads.append(threading.current_thread())

        def tokenizer(texts):
            return {"input_ids": [list(text) for text in texts]}

        return SimpleNamespace(tokenizer=tokenizer, model=None, uses_engine=False)

    monkeypatch.setattr(loading, "load_pipeline", load)
    return threads


def save(model, tokenizer, folder):
    save_model_folder(model, tokenizer, folder)
    return TranslationPipeline(model, tokenizer)


def serve(*flags):
    return main(["serve", *map(str, flags), "--port", "0", "--hosts", "testserver"])


ADDRESSES = [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("::", True)]
WARNING = "warning: Other machines can use this service without a key"


@pytest.mark.parametrize(("host", "warned"), ADDRESSES)
def test_serve_warns_that_other_machines_need_no_key(
    host, warned, served, loaded_on, capsys, tmp_path
):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("This machine has no IPv6")
    (tmp_path / "keys").write_text("first\nsecond\n")
    assert serve("model", "--host", host) == 0
    output = capsys.readouterr()
    assert (WARNING in output.err) == warned
    assert "Serving model at http://" in output.out
    assert serve("model", "--host", host, "--api_key_file", tmp_path / "keys") == 0
    assert not capsys.readouterr().err
    assert [service.state.api_keys for service in served] == [(), ("first", "second")]


def test_serve_names_and_loads_the_only_model_on_a_thread(served, loaded_on):
    """OpenMP's threads for the main thread would slow down the model's."""
    assert serve("runs/mine") == serve("runs/mine", "--direction", "en-de") == 0
    names = []
    for service in served:
        names += [model.name for model in service.state.models]
    assert names == ["mine", "en-de"]
    for thread in loaded_on:
        assert thread is not threading.main_thread()
        assert not thread.is_alive()


def test_serve_loads_models_for_their_languages(served, tiny_tokenizer, tmp_path, capsys):
    plain = save(tiny_model(), tiny_tokenizer, tmp_path / "first")
    tags = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tags, [Direction("en", "fr"), Direction("de", "en")])
    multilingual = save(tiny_model(vocab_size=len(tags)), tags, tmp_path / "second")
    folders = {"en-de": "first", "de-en": "second", "en-fr": "second"}
    models = [f"--model={name}={tmp_path / folder}" for name, folder in folders.items()]
    assert serve(*models) == 0
    assert "Serving en-de, de-en, en-fr at http://127.0.0.1:" in capsys.readouterr().out
    expected = {
        "en-de": plain(TEXT),
        "de-en": multilingual(TEXT, tgt_lang="en"),
        "en-fr": multilingual(TEXT, tgt_lang="fr"),
    }
    with TestClient(served[0]) as client:
        for name, ((answer,)) in expected.items():
            source, target = name.split("-")
            body = {"q": TEXT, "source": source, "target": target}
            translated = client.post("/translate", json=body).json()
            assert translated == {"translatedText": answer["translation_text"]}
            body = {"text": TEXT, "model": name, "return_scores": True}
            scored = client.post("/translate", json=body).json()
            assert scored["translations"][0][0]["text"] == answer["translation_text"]


PAGE_FLAGS = [(["--page"], 200), (["--no_page"], 404), (["--page", "false"], 404)]


@pytest.mark.parametrize(("flags", "status"), PAGE_FLAGS)
def test_serve_has_a_page_unless_a_flag_turns_it_off(flags, status, served, tmp_path):
    assert serve("--model", f"en-de={tmp_path}", f"de-en={tmp_path}", *flags) == 0
    with TestClient(served[0]) as client:
        page = client.get("/")
    assert page.status_code == status
    if status == 200:
        assert "<h1>vanilla-transformer</h1>" in page.text
        assert '"models":{"en-de":"en-de","de-en":"de-en"}' in page.text


def test_serve_survives_a_folder_without_a_model(served, tmp_path, caplog):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    assert serve("--model", f"en-de={tmp_path}/first", f"de-en={tmp_path}/second") == 0
    with TestClient(served[0]) as client:
        answer = client.post("/translate", json={"text": TEXT, "model": "de-en"})
        assert answer.status_code == 500
        assert "The model de-en cannot be loaded (" in answer.json()["detail"]
        assert str(tmp_path) not in answer.text
        assert str(tmp_path) in caplog.text
        assert client.get("/health").status_code == 200


def xliff(target):
    unit = "<trans-unit id='1'><source>A man.</source></trans-unit>"
    languages = f"source-language='en' target-language='{target}'"
    return f"<xliff version='1.2'><file {languages}>{unit}</file></xliff>"


@pytest.mark.parametrize(
    ("trained", "flags", "named"),
    [
        ("", ["{folder}"], "en"),
        rare(("", ["{folder}", "--direction", "en-de"], "de")),
        ("", ["--model", "en-de={folder}"], "de"),
        ("en-de", ["{folder}"], "de"),
        rare(("en-de", ["{folder}", "--direction", "en-de_AT"], "de-AT")),
        ("en-de", ["--model", "en-de_AT={folder}"], "de-AT"),
        rare(("en-de en-fr", ["{folder}", "--target_language", "de"], "de")),
        ("en-de fr-de", ["{folder}"], "de"),
    ],
)
def test_serve_tells_documents_the_languages(
    trained, flags, named, served, tiny_tokenizer, tmp_path
):
    tokenizer, folder = copy.deepcopy(tiny_tokenizer), tmp_path / "model"
    directions = [Direction(*name.split("-")) for name in trained.split()]
    if len(directions) > 1:
        add_language_tags(tokenizer, directions)
    else:
        store_direction(tokenizer, directions)
    save(tiny_model(vocab_size=len(tokenizer)), tokenizer, folder)
    flags = [flag.format(folder=folder) for flag in flags]
    assert serve(*flags) == 0
    with TestClient(served[0], raise_server_exceptions=False) as client:

        def ask(text, form):
            return client.post("/translate", json={"text": text, "format": form})

        page = ask("<html lang=en><p>A man.</p>", "html").json()["translations"][0][0]
        assert page.startswith(f"<html lang={named}><p>")
        other, same = ask(xliff("fr"), "xliff"), ask(xliff("de"), "xliff")
        assert same.status_code == 200
        answered = page.partition("<p>")[2].removesuffix("</p>")
        is_filled = "</source><target " in same.json()["translations"][0][0]
        # A segment stays open if this random model answers with signs of placeholders.
        assert is_filled != adds_signs("A man.", answered)
        if named == "en":
            assert other.status_code == 200
        else:
            code = named.replace("-", "_")
            said = f"of the file must be {code}, as of the model, but it is fr."
            assert other.status_code == 422
            assert f"The target language {said}" in other.json()["detail"]


def test_serve_needs_a_sentence_splitter(served, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert main(["serve", str(tmp_path)]) == 2
    refusal = capsys.readouterr().err
    assert "pip install 'vanilla-transformer[serve]'" in refusal and refusal.count("\n") == 1


def test_serve_refuses_languages_that_its_model_lacks(
    served, tiny_tokenizer, tmp_path, capsys, caplog
):
    tokenizer, folder = copy.deepcopy(tiny_tokenizer), tmp_path / "model"
    store_direction(tokenizer, [Direction("en", "de")])
    save(tiny_model(), tokenizer, folder)
    assert serve(folder, "--direction", "english") == 2
    refusal = capsys.readouterr().err
    assert "`direction` must be the codes of two languages, such as en-de" in refusal
    said = "The target language must be de, as of the model, got fr."
    assert serve(folder, "--direction", "en-fr") == 2
    assert capsys.readouterr().err.endswith(f"\nerror: {said}\n")
    assert not served
    assert serve("--model", f"en-fr={folder}") == 0
    with TestClient(served[0]) as client:
        assert client.post("/translate", json={"text": TEXT}).status_code == 500
    assert f"The model en-fr cannot be loaded: UserError: {said}" in caplog.text


# Flags → names in the header Host that are answered, and that are not.
LOOPBACK = ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000"]
HOSTS = [
    ([], LOOPBACK, ["evil.example", "localhost.evil.example", "translate", "127.0.0.2", ""]),
    (["--host", "127.0.0.2"], [*LOOPBACK, "127.0.0.2:8000"], ["evil.example"]),
    (
        ["--hosts", "translate", "*.example.org"],
        [*LOOPBACK, "translate:80", "a.example.org"],
        ["b"],
    ),
    (["--hosts", "*"], ["evil.example"], []),
    (["--host", "0.0.0.0"], [*LOOPBACK, "translate:8000", "192.0.2.1"], []),
    (["--host", "0.0.0.0", "--hosts", "translate"], [*LOOPBACK, "translate"], ["evil.example"]),
]


@pytest.mark.parametrize(("flags", "answered", "refused"), HOSTS)
def test_serve_answers_to_its_own_names(flags, answered, refused, served, tmp_path):
    """Or a page whose name a stranger's server resolves to this machine reads the answers."""
    assert main(["serve", "--model", f"en-de={tmp_path}", *flags, "--port", "0"]) == 0
    with TestClient(served[0]) as client:
        for path in ("/health", "/", "/translate", "/nothing"):
            for name in answered:
                assert client.get(path, headers={"host": name}).status_code != 400
            for name in refused:
                assert client.get(path, headers={"host": name}).status_code == 400


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_serve_lets_no_page_show_its_pages_in_a_frame(path, served, tmp_path):
    assert serve("--model", f"en-de={tmp_path}") == 0
    with TestClient(served[0]) as client:
        headers = client.get(path).headers
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["x-frame-options"] == "DENY"


# --- Glossaries and models ---


def answer_of(client, text="A man sleeps.", **entries):
    answer = client.post("/translate", json={"text": text} | entries)
    return answer.json()["translations"][0][0]


GLOSSARY_FLAGS = [[], ["--direction", "en-de"], ["--source_language", "en"]]


@pytest.mark.parametrize("flags", GLOSSARY_FLAGS)
def test_serve_gives_all_requests_its_glossary(flags, served, tiny_tokenizer, tmp_path):
    save(tiny_model(), tiny_tokenizer, tmp_path / "model")
    (tmp_path / "terms.tsv").write_text("man\tMann\ndog\tHund\n")
    assert serve(tmp_path / "model", "--glossary", tmp_path / "terms.tsv", *flags) == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client)
        assert "Hund" not in answer_of(client)
        assert "Mann" in answer_of(client, "<p>A man sleeps.</p>", format="html")
        answer = answer_of(client, "A man and a dog.", glossary={"man": "Kerl"})
        assert "Kerl" in answer
        assert "Mann" not in answer
        assert "Hund" in answer
        body = {"text": "A man.", "do_sample": True}
        answer = client.post("/translate", json=body)
        assert answer.status_code == 422
        assert "needs beam search" in answer.json()["detail"]


def test_serve_gives_a_glossary_to_its_languages(served, tiny_tokenizer, tmp_path, capsys):
    folder, terms = tmp_path / "model", tmp_path / "terms.tsv"
    save(tiny_model(), tiny_tokenizer, folder)
    terms.write_text("de\ten\nMann\tman\n")
    models = [f"--model={name}={folder}" for name in ("en-de", "de-en")]
    assert serve(*models, f"--glossary=en-de={terms}") == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client, model="en-de")
        assert "Mann" not in answer_of(client, model="de-en")
    for flag in (terms, f"en-fr={terms}"):
        assert serve(*models, f"--glossary={flag}") == 2
        refusal = capsys.readouterr().err
        assert "`glossary` must be the languages of a --model and a file" in refusal


def test_serve_gives_other_languages_no_terms(served, tiny_tokenizer, tmp_path, capsys):
    tags = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tags, [Direction("en", "fr"), Direction("en", "de")])
    save(tiny_model(vocab_size=len(tags)), tags, tmp_path / "model")
    (tmp_path / "terms.tsv").write_text("man\tMann\n")
    command = tmp_path / "model", "--glossary", tmp_path / "terms.tsv"
    assert serve(*command) == 2
    assert "given with --target_language" in capsys.readouterr().err
    assert serve(*command, "--target_language", "de") == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client)
        assert "Mann" not in answer_of(client, tgt_lang="fr")


def test_serve_refuses_a_glossary_without_a_search(served, loaded_on, tmp_path, capsys):
    (tmp_path / "terms.tsv").write_text("man\tMann\n")
    assert serve("model", "--glossary", tmp_path / "terms.tsv") == 2
    refusal = capsys.readouterr().err
    assert "The model of this service has no beam search with constraints." in refusal


def test_serve_shows_version_and_hash_of_weights(served, tiny_tokenizer, tmp_path):
    folder = tmp_path / "model"
    save(tiny_model(), tiny_tokenizer, folder)
    assert serve(folder, "--metrics") == 0
    expected = hash_file(folder / "model.safetensors")
    with TestClient(served[0]) as client:
        deadline = time.monotonic() + 10
        while client.get("/health").json()["sha256"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        about = {"version": __version__, "model": "model", "sha256": expected}
        assert about.items() <= client.get("/health").json().items()
        labels = f'model="model",sha256="{expected}",version="{__version__}"'
        line = f"model_info{{{labels}}} 1.0"
        assert line in client.get("/metrics").text.splitlines()


@pytest.mark.parametrize("kind", ["MODEL", "--model"])
def test_serve_loads_a_new_model_of_its_folder(kind, served, tiny_tokenizer, tmp_path):
    folder, tokenizer = tmp_path / "model", copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, [Direction("en", "de")])
    save(tiny_model(), tokenizer, folder)
    assert serve(*([folder] if kind == "MODEL" else ["--model", f"en-de={folder}"])) == 0
    with TestClient(served[0]) as client:
        (model,) = client.app.state.models
        client.portal.call(model.load)
        old = model.loaded
        shutil.rmtree(folder)
        client.portal.call(model.reload)
        store_direction(tokenizer, [Direction("en", "fr")])
        save(tiny_model(), tokenizer, folder)
        client.portal.call(model.reload)
        assert model.loaded is old, "there was no model, and then one of other languages"
        store_direction(tokenizer, [Direction("en", "de")])
        new = save(tiny_model(seed=1), tokenizer, folder)
        client.portal.call(model.reload)
        (expected,) = new("A man sleeps.")
        assert answer_of(client) == expected["translation_text"]
        assert client.get("/health").json()["sha256"] == hash_file(folder / "model.safetensors")


# --- Refusals -------------------------------------------------------------------------------------

ONE = ("--model", "en-de=first")
REFUSED = [
    ((), "Name one MODEL (its folder or Hub name), or several by --model, got none."),
    (("first",), "error: "),  # a folder without a model
    (
        ("--model", "first"),
        "`model` must be languages and a folder, such as en-de=runs/en-de, got 'first'.",
    ),
    (("--model", "de=first"), "`model` must be languages and a folder"),
    (("--model", "en-de="), "`model` must be languages and a folder"),
    (
        ("--model", "en-de=missing"),
        "There is no folder missing. `model` must be the folder of a model",
    ),
    (("--model",), "--model must have a value."),
    ((*ONE, *ONE), "must have other languages, got en-de twice."),
    ((*ONE, "--direction", "en-de"), "`direction` is for one MODEL. Leave it out"),
    ((*ONE, "--ensemble", "first"), "`ensemble` is for one MODEL"),
    (
        (*ONE, "--max_loaded", "0"),
        "`max_loaded` must be an integer from 1 to 1,000,000,000,000, got 0.",
    ),
    (("--max_loaded", "1"), "`max_loaded` is for several models."),
    (("mine", *ONE), "Name one MODEL or several by --model, got 'mine' and --model en-de=first."),
    ((*ONE, "--port", "65536"), "`port` must be from 0 to 65535, got 65536"),
    ((*ONE, "--port", "-1"), "`port` must be from 0 to 65535, got -1"),
    ((*ONE, "--host", "not a host"), "Cannot listen on not a host:0"),
    ((*ONE, "--host", "8.8.8.8"), "listen on 8.8.8.8"),
    ((*ONE, "--port", "{taken}"), "Address already in use. Choose another --host or --port."),
    ((*ONE, "--api_key_file", "blank"), "must hold a key"),
    ((*ONE, "--api_key_file", "comment"), "key 2 contains some"),
    ((*ONE, "--api_key_file", "latin"), "not UTF-8"),
    ((*ONE, "--api_key_file", "missing"), "No such"),
    (
        (*ONE, "--hosts", "http://example.org"),
        "`hosts` must be names such as translate.example.org or *.example.org, or addresses, "
        "without a port; or '*'. Got 'http://example.org'.",
    ),
    ((*ONE, "--hosts", "a.example:80"), "`hosts` must be names such as translate.example.org"),
    ((*ONE, "--hosts", "a*"), "`hosts` must be names such as translate.example.org"),
    ((*ONE, "--cors", "example.org"), "`cors` must be origins such as https://example.org: "),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED)
def test_serve_refuses_in_one_line(flags, said, served, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first").mkdir()
    files = {"blank": b" \n", "comment": b"key\n\n# of a team\n", "latin": b"\xff"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with closing(server.bind("127.0.0.1", 0)) as taken:
        taken.listen()
        words = [flag.format(taken=taken.getsockname()[1]) for flag in flags]
        port = [] if "--port" in words else ["--port", "0"]
        assert main(["serve", *words, *port]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not served


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "https://reader.example",
        "http://localhost:3000",
        "http://[::1]:8080",
        "moz-extension://0a1b-2c",
        "https://a.example:80",
    ],
)
def test_check_origins_accepts_what_browsers_send(origin):
    assert ServeArguments(cors=[origin]).cors == [origin]


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.org/",
        "https://example.org/page",
        "https://Example.org",
        "https://example.org:443",
        "http://example.org:80",
        "https://user@example.org",
        "https://*.example.org",
        "https://bücher.example",
        "null",
        "",
    ],
)
def test_check_origins_refuses_what_no_browser_sends(origin):
    message = "`cors` must be origins such as https://example.org: "
    with pytest.raises(ValueError, match=message) as refusal:
        ServeArguments(cors=["https://reader.example", origin])
    assert repr(origin) in str(refusal.value)
    assert "\n" not in str(refusal.value)
