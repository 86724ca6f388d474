"""Parse JSON bodies. Python's lock is held meanwhile, so large ones have a process, which imports
this module.
"""

import json
import re
from typing import Any

from vanilla_transformer.errors import UserError

_NO_JSON = "The body must be valid JSON in UTF-8."
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')


def parse_json(_: Any, body: bytes, most: int) -> Any:
    """Return the content of a body, which may have `most` characters besides its strings.

    Raises:
        UserError: It has more, or is not JSON.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(str(error) if isinstance(error, UserError) else _NO_JSON) from None
    if len(body) > most and len(_STRING.sub('""', text)) > most:
        requirement = f"at most {most} characters (--max_body_bytes) besides its strings"
        raise UserError(f"The body may have {requirement}.")
    return content


def _refuse_constant(name: str) -> None:
    raise UserError(f"The body must be valid JSON, which has no {name}.")
