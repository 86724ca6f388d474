"""Answer a request text by text, by server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from .batcher import ModelFailure
from .limits import Refusal
from .models import Choice
from .schema import Body


async def stream_events(model: Choice, body: Body, client: str) -> AsyncIterator[str]:
    """Yield a server-sent event for each text, as soon as it is translated or refused."""

    async def translate(position: int) -> dict[str, Any]:
        constraints = None if body.constraints is None else [body.constraints[position]]
        prefixes = None if body.prefixes is None else [body.prefixes[position]]
        texts = [body.texts[position]]
        try:
            (row,) = await model.translate(texts, body.num_hypotheses, client, body.options, constraints, prefixes)
        except Refusal as refusal:
            return {"position": position, "status": refusal.status, "detail": str(refusal)}
        except ModelFailure:
            return {"position": position, "status": 500, "detail": "The model failed to translate the text."}
        return {"position": position, "translations": row}

    tasks = [asyncio.ensure_future(translate(position)) for position in range(len(body.texts))]
    try:
        for finished in asyncio.as_completed(tasks):
            yield f"data: {json.dumps(await finished, ensure_ascii=False)}\n\n"
    finally:  # the client may have hung up
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["stream_events"]
