"""A Hub on the loopback address: the requests that the real client needs to create, commit to and
read repositories. Programs and tests talk to it with that client.

Everything is kept in memory.
"""

import base64
import hashlib
import json
import os
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

from tests.processes import run_python
from vanilla_transformer.publishing import checks

USER, TOKEN, READ_ONLY_TOKEN = "user", "hf_writes", "hf_reads"
_LARGE = ".safetensors"


@dataclass
class Commit:
    """A commit: the content of each file by its path."""

    oid: str
    files: dict[str, bytes]
    message: str = ""


@dataclass
class Repository:
    """Commits by hash, and the commit of each branch or tag."""

    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    def add(self, branch: str, files: dict[str, bytes], message: str) -> Commit:
        seed = f"{branch}{message}{sorted(files)}{len(self.commits)}"
        commit = Commit(hashlib.sha1(seed.encode()).hexdigest(), files, message)
        self.commits[commit.oid] = commit
        self.references[branch] = commit.oid
        return commit

    def at(self, revision: str) -> Commit | None:
        return self.commits.get(self.references.get(revision, revision))


class LocalHub:
    """State of the server, for tests to inspect, and faults, for tests to set.

    Attributes:
        broken_uploads: Number of uploads of large files whose connection will break.
        requests: Methods and paths of all requests.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.large_files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.broken_uploads = 0
        self.url = ""

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        return self.repositories[repo_id].at(revision).files


class _Refusal(Exception):
    """An error response with the status and code of the Hub."""

    def __init__(self, status: HTTPStatus, code: str, message: str):
        self.status, self.code, self.message = status, code, message


@contextmanager
def running_hub():
    """Run a Hub until the block ends."""
    hub = LocalHub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Handle one request by the method that matches its path in `_ROUTES`."""

    protocol_version = "HTTP/1.1"
    hub: LocalHub

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        if self.command == "PUT" and self.hub.broken_uploads:
            return self._break_off()
        self.body = self._read()
        try:
            for methods, pattern, action in _ROUTES:
                match = re.fullmatch(pattern, path)
                if match and self.command in methods:
                    return action(self, **match.groupdict())
            raise _Refusal(HTTPStatus.NOT_FOUND, "NotFound", f"no such address: {path}")
        except _Refusal as refusal:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
            body = json.dumps({"error": refusal.message}).encode()
            self._send(body, refusal.status, headers)

    def _break_off(self):
        self.hub.broken_uploads -= 1
        self.rfile.read(1000)
        self.close_connection = True
        self.connection.close()

    def _read(self) -> bytes:
        """Return the body, which may be chunked."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(
        self, body: bytes, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
    ):
        self.send_response(status)
        headers = {"Content-Type": "application/json"} | (headers or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_json(self, value):
        self._send(json.dumps(value).encode())

    def _token(self) -> str | None:
        header = self.headers.get("Authorization", "")
        token = header.removeprefix("Bearer ") or None
        if token not in (None, TOKEN, READ_ONLY_TOKEN):
            message = "Invalid credentials in Authorization header"
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "", message)
        return token

    def _require_writing(self, repo_id: str):
        token = self._token()
        if token is None:
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "RepoNotFound", "Repository not found")
        if token != TOKEN or repo_id.split("/")[0] != USER:
            message = f"You don't have the rights to write to {repo_id}"
            raise _Refusal(HTTPStatus.FORBIDDEN, "", message)

    def _repository(self, repo_id: str) -> Repository:
        repository = self.hub.repositories.get(repo_id)
        if repository is None or (repository.private and self._token() is None):
            raise _Refusal(HTTPStatus.NOT_FOUND, "RepoNotFound", "Repository not found")
        return repository

    def _commit(self, repo_id: str, revision: str | None) -> Commit:
        commit = self._repository(repo_id).at(revision or "main")
        if commit is None:
            message = f"Invalid rev id: {revision}"
            raise _Refusal(HTTPStatus.NOT_FOUND, "RevisionNotFound", message)
        return commit

    def who_am_i(self):
        if self._token() is None:
            raise _Refusal(HTTPStatus.UNAUTHORIZED, "", "Invalid username or password.")
        answer = {"type": "user", "name": USER, "orgs": []}
        self._send_json(answer | {"auth": {"accessToken": {"role": "write"}}})

    def create_repository(self):
        asked = json.loads(self.body)
        repo_id = f"{asked.get('organization') or USER}/{asked['name']}"
        self._require_writing(repo_id)
        url = f"{self.hub.url}/{repo_id}"
        if repo_id in self.hub.repositories:
            answer = {"url": url, "error": "You already created this model repo"}
            return self._send(json.dumps(answer).encode(), HTTPStatus.CONFLICT)
        repository = Repository(private=asked.get("visibility") == "private")
        self.hub.repositories[repo_id] = repository
        files = {".gitattributes": b"*.safetensors filter=lfs\n"}
        repository.add("main", files, "initial commit")
        self._send_json({"url": url, "id": repo_id})

    def validate_yaml(self):
        self._send_json({"errors": [], "warnings": []})

    def describe(self, repo_id, revision=None):
        commit = self._commit(repo_id, revision)
        siblings = [{"rfilename": path} for path in sorted(commit.files)]
        answer = {"id": repo_id, "modelId": repo_id, "sha": commit.oid}
        answer |= {"siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
        answer["private"] = self._repository(repo_id).private
        self._send_json(answer)

    def references(self, repo_id):
        references = self._repository(repo_id).references
        branches = []
        for name, oid in references.items():
            branch = {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
            branches.append(branch)
        self._send_json({"branches": branches, "tags": [], "converts": []})

    def create_branch(self, repo_id, branch):
        self._require_writing(repo_id)
        asked = json.loads(self.body or b"{}")
        repository = self._repository(repo_id)
        if branch in repository.references:
            raise _Refusal(HTTPStatus.CONFLICT, "", f"Reference already exists: {branch}")
        commit = self._commit(repo_id, asked.get("startingPoint"))
        repository.references[branch] = commit.oid
        self._send_json({})

    def create_tag(self, repo_id, revision):
        self._require_writing(repo_id)
        tag = json.loads(self.body)["tag"]
        commit = self._commit(repo_id, revision)
        self._repository(repo_id).references[tag] = commit.oid
        self._send_json({})

    def tree(self, repo_id, revision, folder=None):
        files = self._commit(repo_id, revision).files
        if folder and not any(path.startswith(f"{folder}/") for path in files):
            message = f"{folder} does not exist"
            raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", message)
        paths = [path for path in sorted(files) if path.startswith(folder or "")]
        self._send_json([_entry(path, files[path]) for path in paths])

    def paths_info(self, repo_id, revision):
        asked = json.loads(self.body)["paths"]
        files = self._commit(repo_id, revision).files
        self._send_json([_entry(path, files[path]) for path in asked if path in files])

    def choose_upload(self, repo_id, revision):
        self._require_writing(repo_id)
        self._commit(repo_id, revision)
        files = json.loads(self.body)["files"]
        chosen = []
        for file in files:
            mode = "lfs" if file["path"].endswith(_LARGE) else "regular"
            answer = {"path": file["path"], "uploadMode": mode}
            chosen.append(answer | {"shouldIgnore": False, "oid": None})
        self._send_json({"files": chosen})

    def offer_uploads(self, repo_id):
        self._require_writing(repo_id)
        objects = json.loads(self.body)["objects"]
        answers = []
        for file in objects:
            oid = file["oid"]
            answer = {"oid": oid, "size": file["size"]}
            if oid not in self.hub.large_files:
                answer["actions"] = {"upload": {"href": f"{self.hub.url}/large/{oid}"}}
            answers.append(answer)
        self._send_json({"transfer": "basic", "objects": answers})

    def take_large_file(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "", "The content does not have this hash")
        self.hub.large_files[oid] = self.body
        self._send(b"")

    def commit(self, repo_id, revision):
        self._require_writing(repo_id)
        parent = self._commit(repo_id, revision)
        files, message = dict(parent.files), ""
        for line in self.body.splitlines():
            entry = json.loads(line)
            key, value = entry["key"], entry["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.large_files[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
            else:
                raise _Refusal(HTTPStatus.BAD_REQUEST, "", f"unknown operation {key}")
        added = self.hub.repositories[repo_id].add(revision, files, message)
        url = f"{self.hub.url}/{repo_id}/commit/{added.oid}"
        answer = {"commitUrl": url, "commitOid": added.oid}
        self._send_json(answer | {"success": True, "hookOutput": ""})

    def download(self, repo_id, revision, path):
        commit = self._commit(repo_id, revision)
        if path not in commit.files:
            raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found")
        content = commit.files[path]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"X-Repo-Commit": commit.oid, "ETag": etag}
        headers["Content-Type"] = "application/octet-stream"
        self._send(content, headers=headers)


def _entry(path: str, content: bytes) -> dict:
    digest = hashlib.sha256(content).hexdigest()
    entry = {"type": "file", "path": path, "size": len(content), "oid": digest[:40]}
    if path.endswith(_LARGE):
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return entry


_REPO = r"(?P<repo_id>[^/]+/[^/]+)"
_REVISION = r"(?P<revision>[^/]+)"
_ROUTES = [
    (("GET",), r"/api/whoami-v2", _Handler.who_am_i),
    (("POST",), r"/api/repos/create", _Handler.create_repository),
    (("POST",), r"/api/validate-yaml", _Handler.validate_yaml),
    (("GET", "HEAD"), rf"/api/models/{_REPO}", _Handler.describe),
    (("GET", "HEAD"), rf"/api/models/{_REPO}/revision/{_REVISION}", _Handler.describe),
    (("GET",), rf"/api/models/{_REPO}/refs", _Handler.references),
    (("POST",), rf"/api/models/{_REPO}/branch/(?P<branch>[^/]+)", _Handler.create_branch),
    (("POST",), rf"/api/models/{_REPO}/tag/{_REVISION}", _Handler.create_tag),
    (("GET",), rf"/api/models/{_REPO}/tree/{_REVISION}(/(?P<folder>.+))?", _Handler.tree),
    (("POST",), rf"/api/models/{_REPO}/paths-info/{_REVISION}", _Handler.paths_info),
    (("POST",), rf"/api/models/{_REPO}/preupload/{_REVISION}", _Handler.choose_upload),
    (("POST",), rf"/api/models/{_REPO}/commit/{_REVISION}", _Handler.commit),
    (("POST",), rf"/{_REPO}\.git/info/lfs/objects/batch", _Handler.offer_uploads),
    (("PUT",), r"/large/(?P<oid>[0-9a-f]{64})", _Handler.take_large_file),
    (("GET", "HEAD"), rf"/{_REPO}/resolve/{_REVISION}/(?P<path>.+)", _Handler.download),
]


def run_with_hub(hub, folder, *command, offline=False, **options):
    """Run a Python program whose Hub is `hub`.

    Caches are below `folder`, which is the working directory.
    """
    home = folder / "home"
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_MODULES_CACHE": str(home / "modules"),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": str(int(offline)),
    }
    return run_python(*command, env=environment, cwd=folder, **options)


def fork_checks(monkeypatch):
    """Let the checks before publishing fork the process that loads a folder without this
    package.
    """

    def fork(command, input, env, cwd, **_):
        return run_python(*command[1:], input=input, env=env, cwd=cwd)

    monkeypatch.setattr(checks.subprocess, "run", fork)


def read_answer(process):
    """Return the JSON in the last line that a program printed."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])  # Trainer prints as well


def use_hub_in_this_process(hub, monkeypatch):
    """Point the client of this process to the local Hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    keeper = "transformers.utils.hub._hf_api"  # of the address of another
    monkeypatch.setattr(keeper, None, raising=False)
    _, *path = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("{repo_id}")
    template = f"{hub.url}/{''.join(path)}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub
