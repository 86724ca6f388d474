"""The command `serve`: one model or several, and its refusals in one line."""

import copy
import socket
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

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
    monkeypatch.setattr(
        server, "run_server", lambda service, listener, limits: services.append(service)
    )
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


@pytest.mark.parametrize(
    ("host", "warned"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("::", True)]
)
def test_serve_warns_that_other_machines_need_no_key(
    host, warned, served, loaded_on, capsys, tmp_path
):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("This machine has no IPv6")
    (tmp_path / "keys").write_text("first\nsecond\n")
    assert serve("model", "--host", host) == 0
    output = capsys.readouterr()
    assert ("warning: Other machines can use this service without a key" in output.err) == warned
    assert "Serving model at http://" in output.out
    assert serve("model", "--host", host, "--api_key_file", tmp_path / "keys") == 0
    assert not capsys.readouterr().err
    assert [service.state.api_keys for service in served] == [(), ("first", "second")]


def test_serve_names_the_only_model_and_loads_it_on_a_thread_that_ends(served, loaded_on):
    """OpenMP's threads for the main thread would slow down the model's."""
    assert serve("runs/mine") == serve("runs/mine", "--direction", "en-de") == 0
    assert [[model.name for model in service.state.models] for service in served] == [
        ["mine"],
        ["en-de"],
    ]
    assert not any(thread is threading.main_thread() or thread.is_alive() for thread in loaded_on)


def test_serve_loads_each_model_for_its_languages(served, tiny_tokenizer, tmp_path, capsys):
    plain = save(tiny_model(), tiny_tokenizer, tmp_path / "first")
    tags = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tags, [Direction("en", "fr"), Direction("de", "en")])
    multilingual = save(tiny_model(vocab_size=len(tags)), tags, tmp_path / "second")
    folders = {"en-de": "first", "de-en": "second", "en-fr": "second"}
    assert serve(*(f"--model={name}={tmp_path / folder}" for name, folder in folders.items())) == 0
    assert "Serving en-de, de-en, en-fr at http://127.0.0.1:" in capsys.readouterr().out
    expected = {
        "en-de": plain(TEXT),
        "de-en": multilingual(TEXT, tgt_lang="en"),
        "en-fr": multilingual(TEXT, tgt_lang="fr"),
    }
    with TestClient(served[0]) as client:
        for name, ((answer,)) in expected.items():
            source, target = name.split("-")
            found = client.post(
                "/translate", json={"q": TEXT, "source": source, "target": target}
            ).json()
            assert found == {"translatedText": answer["translation_text"]}
            found = client.post(
                "/translate", json={"text": TEXT, "model": name, "return_scores": True}
            ).json()
            assert found["translations"][0][0]["text"] == answer["translation_text"]


@pytest.mark.parametrize(
    ("flags", "status"), [(["--page"], 200), (["--no_page"], 404), (["--page", "false"], 404)]
)
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
        assert (
            answer.status_code == 500
            and "The model de-en cannot be loaded (" in answer.json()["detail"]
        )
        assert str(tmp_path) not in answer.text and str(tmp_path) in caplog.text
        assert client.get("/health").status_code == 200


def xliff(target):
    unit = "<trans-unit id='1'><source>A man.</source></trans-unit>"
    return (
        "<xliff version='1.2'><file source-language='en' "
        f"target-language='{target}'>{unit}</file></xliff>"
    )


@pytest.mark.parametrize(
    ("trained", "flags", "named"),
    [
        ("", ["{folder}"], "en"),
        ("", ["{folder}", "--direction", "en-de"], "de"),
        ("", ["--model", "en-de={folder}"], "de"),
        ("en-de", ["{folder}"], "de"),
        ("en-de", ["{folder}", "--direction", "en-de_AT"], "de-AT"),
        ("en-de", ["--model", "en-de_AT={folder}"], "de-AT"),
        ("en-de en-fr", ["{folder}", "--target_language", "de"], "de"),
        ("en-de fr-de", ["{folder}"], "de"),
    ],
)
def test_serve_tells_documents_the_languages(
    trained, flags, named, served, tiny_tokenizer, tmp_path
):
    tokenizer, directions = (
        copy.deepcopy(tiny_tokenizer),
        [Direction(*each.split("-")) for each in trained.split()],
    )
    if len(directions) > 1:
        add_language_tags(tokenizer, directions)
    else:
        store_direction(tokenizer, directions)
    save(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "model")
    assert serve(*(flag.format(folder=tmp_path / "model") for flag in flags)) == 0
    with TestClient(served[0], raise_server_exceptions=False) as client:

        def ask(text, form):
            return client.post("/translate", json={"text": text, "format": form})

        page = ask("<html lang=en><p>A man.</p>", "html").json()["translations"][0][0]
        assert page.startswith(f"<html lang={named}><p>")
        other, own = ask(xliff("fr"), "xliff"), ask(xliff("de"), "xliff")
        assert own.status_code == 200
        answered = page.partition("<p>")[2].removesuffix("</p>")
        is_filled = "</source><target " in own.json()["translations"][0][0]
        # A segment stays open if this random model answers with signs of placeholders.
        assert is_filled != adds_signs("A man.", answered)
        if named == "en":
            assert other.status_code == 200
        else:
            said = (
                f"The target language of the file must be {named.replace('-', '_')}, as of the "
                "model, but it is fr."
            )
            assert other.status_code == 422 and said in other.json()["detail"]


def test_serve_refuses_other_languages_than_the_model_was_trained_with(
    served, tiny_tokenizer, tmp_path, capsys, caplog
):
    tokenizer, folder = copy.deepcopy(tiny_tokenizer), tmp_path / "model"
    store_direction(tokenizer, [Direction("en", "de")])
    save(tiny_model(), tokenizer, folder)
    assert serve(folder, "--direction", "english") == 2
    assert (
        "`direction` must be the codes of two languages, such as en-de" in capsys.readouterr().err
    )
    said = "The target language must be de, as of the model, got fr."
    assert serve(folder, "--direction", "en-fr") == 2
    assert capsys.readouterr().err.endswith(f"\nerror: {said}\n") and not served
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
            statuses = {
                name: client.get(path, headers={"host": name}).status_code
                for name in [*answered, *refused]
            }
            assert {name for name, status in statuses.items() if status == 400} == {*refused}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_serve_lets_no_page_show_its_pages_in_a_frame(path, served, tmp_path):
    assert serve("--model", f"en-de={tmp_path}") == 0
    with TestClient(served[0]) as client:
        headers = client.get(path).headers
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["x-frame-options"] == "DENY"


# --- Glossaries and models ---


def answer_of(client, text="A man sleeps.", **entries):
    return client.post("/translate", json={"text": text} | entries).json()["translations"][0][0]


@pytest.mark.parametrize("flags", [[], ["--direction", "en-de"], ["--source_language", "en"]])
def test_serve_gives_all_requests_the_terms_of_its_glossary(
    flags, served, tiny_tokenizer, tmp_path
):
    save(tiny_model(), tiny_tokenizer, tmp_path / "model")
    (tmp_path / "terms.tsv").write_text("man\tMann\ndog\tHund\n")
    assert serve(tmp_path / "model", "--glossary", tmp_path / "terms.tsv", *flags) == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client) and "Hund" not in answer_of(client)
        assert "Mann" in answer_of(client, "<p>A man sleeps.</p>", format="html")
        own = answer_of(client, "A man and a dog.", glossary={"man": "Kerl"})
        assert "Kerl" in own and "Mann" not in own and "Hund" in own
        answer = client.post("/translate", json={"text": "A man.", "do_sample": True})
        assert answer.status_code == 422 and "needs beam search" in answer.json()["detail"]


def test_serve_gives_each_model_the_glossary_of_its_languages(
    served, tiny_tokenizer, tmp_path, capsys
):
    save(tiny_model(), tiny_tokenizer, tmp_path / "model")
    (tmp_path / "terms.tsv").write_text("de\ten\nMann\tman\n")
    models = [f"--model={name}={tmp_path / 'model'}" for name in ("en-de", "de-en")]
    assert serve(*models, f"--glossary=en-de={tmp_path / 'terms.tsv'}") == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client, model="en-de") and "Mann" not in answer_of(
            client, model="de-en"
        )
    for given in (tmp_path / "terms.tsv", f"en-fr={tmp_path / 'terms.tsv'}"):
        assert serve(*models, f"--glossary={given}") == 2
        assert "`glossary` must be the languages of a --model and a file" in capsys.readouterr().err


def test_serve_gives_requests_in_other_languages_no_terms(served, tiny_tokenizer, tmp_path, capsys):
    tags = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tags, [Direction("en", "fr"), Direction("en", "de")])
    save(tiny_model(vocab_size=len(tags)), tags, tmp_path / "model")
    (tmp_path / "terms.tsv").write_text("man\tMann\n")
    command = tmp_path / "model", "--glossary", tmp_path / "terms.tsv"
    assert serve(*command) == 2
    assert "given with --target_language" in capsys.readouterr().err
    assert serve(*command, "--target_language", "de") == 0
    with TestClient(served[0]) as client:
        assert "Mann" in answer_of(client) and "Mann" not in answer_of(client, tgt_lang="fr")


def test_serve_refuses_a_glossary_for_a_model_without_terms(served, loaded_on, tmp_path, capsys):
    (tmp_path / "terms.tsv").write_text("man\tMann\n")
    assert serve("model", "--glossary", tmp_path / "terms.tsv") == 2
    assert (
        "The model of this service has no beam search with constraints." in capsys.readouterr().err
    )


def test_serve_shows_the_version_and_the_hash_of_the_weights(served, tiny_tokenizer, tmp_path):
    folder = tmp_path / "model"
    save(tiny_model(), tiny_tokenizer, folder)
    assert serve(folder, "--metrics") == 0
    expected = hash_file(folder / "model.safetensors")
    with TestClient(served[0]) as client:
        deadline = time.monotonic() + 10
        while client.get("/health").json()["sha256"] is None and time.monotonic() < deadline:
            time.sleep(0.01)
        about = {"version": __version__, "model": "model", "sha256": expected}
        assert about.items() <= client.get("/health").json().items()
        line = f'model_info{{model="model",sha256="{expected}",version="{__version__}"}} 1.0'
        assert line in client.get("/metrics").text.splitlines()


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
    for name, content in {
        "blank": b" \n",
        "comment": b"key\n\n# of a team\n",
        "latin": b"\xff",
    }.items():
        (tmp_path / name).write_bytes(content)
    with closing(server.bind("127.0.0.1", 0)) as taken:
        taken.listen()
        words = [flag.format(taken=taken.getsockname()[1]) for flag in flags]
        port = [] if "--port" in words else ["--port", "0"]
        assert main(["serve", *words, *port]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not served


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "*",
            "https://reader.example",
            "http://localhost:3000",
            "http://[::1]:8080",
            "moz-extension://0a1b-2c",
        ),
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
    with pytest.raises(
        ValueError, match="`cors` must be origins such as https://example.org: "
    ) as refusal:
        ServeArguments(cors=["https://reader.example", origin])
    assert repr(origin) in str(refusal.value) and "\n" not in str(refusal.value)
