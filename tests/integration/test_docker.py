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


def command_of(word):
    """Return the words of an instruction of the image."""
    line = re.search(rf"^{word} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return json.loads(line[1])


def test_docker_command_parses():
    assert command_of("ENTRYPOINT") == ["vanilla-transformer", "serve"]
    options = parse(ServeArguments, command_of("CMD"))
    assert options.name == "/model" and options.metrics
    assert (options.host, options.port) == ("0.0.0.0", 8000)


def test_docker_compose_and_prometheus_name_the_same_service():
    folder = ROOT / "docker"
    compose = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    prometheus = yaml.safe_load((folder / "prometheus.yml").read_text())
    scraped = prometheus["scrape_configs"][0]
    (target,) = scraped["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert name in compose and compose[name]["ports"][0].endswith(f":{port}")
    build = compose[name]["build"]
    assert (folder / build["context"] / build["dockerfile"]).is_file()


def test_systemd_unit_starts_a_command_that_parses():
    unit = (ROOT / "examples" / "systemd" / "vanilla-transformer.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1]
    program, command, *words = line.split()
    assert program.endswith("/vanilla-transformer") and command == "serve"
    assert parse(ServeArguments, words).name == "/srv/models/en-de"


def test_inference_endpoint_answers(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    from vanilla_transformer.loading.model_folders import save_model_folder

    monkeypatch.syspath_prepend(str(ROOT / "examples" / "inference_endpoint"))
    import handler

    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    endpoint = handler.EndpointHandler(str(folder))
    parameters = {"num_beams": 1, "max_new_tokens": 3}
    first, second = endpoint({"inputs": ["one", "two"], "parameters": parameters})
    assert [*first] == [*second] == ["translation_text"]


def test_nginx_configuration_is_valid():
    path = ROOT / "docker" / "nginx.conf"
    text = path.read_text()
    options = parse(ServeArguments, ["model"])
    assert f"server 127.0.0.1:{options.port};" in text
    limit = int(re.search(r"client_max_body_size (\d+)m;", text)[1])
    assert limit * 1_000_000 == options.max_document_bytes
    timeout = int(re.search(r"proxy_read_timeout (\d+)s;", text)[1])
    assert timeout > options.request_seconds
    if nginx := shutil.which("nginx"):
        command = [nginx, "-t", "-c", path]
        checked = subprocess.run(command, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
