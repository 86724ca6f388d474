"""Models are loaded one at a time."""

import asyncio
import time

from vanilla_transformer.extensions.serving.models import ModelLoader


def test_models_are_loaded_one_at_a_time():
    loader, loading, most = ModelLoader(), [], []

    def load():
        loading.append(1)
        most.append(len(loading))
        time.sleep(0.05)
        loading.pop()

    async def load_three():
        await asyncio.gather(*(loader.load(None, load) for _ in range(3)))

    asyncio.run(load_three())
    assert most == [1, 1, 1]
