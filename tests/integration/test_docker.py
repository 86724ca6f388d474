"""The commands of the image exist.

`test_packaging.py` installs its files; the image itself is built elsewhere.
"""

import json
import re
import shutil
import subprocess

import yaml

from tests.docs_pages import ROOT
from vanilla_transformer.cli.flags import parse
from vanilla_transformer.extensions.serving.commands import ServeArguments

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()


def test_docker_command_parses():
    entry, command = (
        json.loads(re.search(rf"^{word} (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])
        for word in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["vanilla-transformer", "serve"]
    options = parse(ServeArguments, command)
    assert (
        options.name == "/model"
        and options.host == "0.0.0.0"
        and options.metrics
        and options.port == 8000
    )


def test_docker_compose_and_prometheus_name_the_same_service():
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    scraped = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text())["scrape_configs"][0]
    (target,) = scraped["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert name in compose and compose[name]["ports"][0].endswith(f":{port}")
    assert (
        ROOT / "docker" / compose[name]["build"]["context"] / compose[name]["build"]["dockerfile"]
    ).is_file()


def test_systemd_unit_starts_a_command_that_parses():
    unit = (ROOT / "examples" / "systemd" / "vanilla-transformer.service").read_text()
    program, command, *words = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    assert program.endswith("/vanilla-transformer") and command == "serve"
    assert parse(ServeArguments, words).name == "/srv/models/en-de"


def test_inference_endpoint_handler_answers(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    from vanilla_transformer.loading.model_folders import save_model_folder

    monkeypatch.syspath_prepend(str(ROOT / "examples" / "inference_endpoint"))
    import handler

    endpoint = handler.EndpointHandler(
        str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))
    )
    answer = endpoint(
        {"inputs": ["one", "two"], "parameters": {"num_beams": 1, "max_new_tokens": 3}}
    )
    assert [[*each] for each in answer] == [["translation_text"], ["translation_text"]]


def test_nginx_configuration_is_valid():
    path = ROOT / "docker" / "nginx.conf"
    text = path.read_text()
    options = parse(ServeArguments, ["model"])
    assert f"server 127.0.0.1:{options.port};" in text
    limit = int(re.search(r"client_max_body_size (\d+)m;", text)[1])
    assert limit * 1_000_000 == options.max_document_bytes
    assert int(re.search(r"proxy_read_timeout (\d+)s;", text)[1]) > options.request_seconds
    if nginx := shutil.which("nginx"):
        checked = subprocess.run([nginx, "-t", "-c", path], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
