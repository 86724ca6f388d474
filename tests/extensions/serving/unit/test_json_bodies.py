"""Bodies of JSON whose values besides strings are bounded."""

import json

import pytest

from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.serving.json_bodies import parse_json

QUOTED = {"text": ['A "dog"\\', "\\" * 500, "ä\ud83d"], "format": "html"}
# Name → body, words of the refusal with at most 100 characters besides strings.
REFUSED = {
    "lists": ('{"text": [' + "[]," * 50 + "[]]}", "at most 100 characters (--max_body_bytes)"),
    "keys": (json.dumps({str(key): "" for key in range(50)}), "besides its strings"),
    "UTF-16": (("[" + '"∢", ' * 30 + "0]").encode("utf-16"), "(--max_body_bytes)"),
    "no end": ('{"text": "' + '\\"' * 500, "must be valid JSON in UTF-8"),
    "other bytes": (b'{"text": "\xe4"}', "must be valid JSON in UTF-8"),
    "depth": ("[" * 100_000, "must be valid JSON in UTF-8"),
    "a constant": ('{"seed": NaN}', "must be valid JSON, which has no NaN"),
}


def test_parse_json_takes_long_strings():
    for body in (json.dumps(QUOTED), json.dumps(QUOTED | {"text": "é" * 500}, ensure_ascii=False)):
        assert parse_json(None, body.encode(), 100) == json.loads(body)


@pytest.mark.parametrize("kind", REFUSED)
def test_parse_json_refuses_a_body_in_one_line(kind):
    body, words = REFUSED[kind]
    content = body if isinstance(body, bytes) else body.encode()
    with pytest.raises(UserError) as refusal:
        parse_json(None, content, 100)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
