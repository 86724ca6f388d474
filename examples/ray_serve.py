"""
Serve a model on a Ray cluster: `vanilla-transformer serve`, with several replicas at one address.

    pip install 'vanilla-transformer[serve,documents]' 'ray[serve]'
    MODEL=runs/mine serve run examples.ray_serve:application

Each replica has its own model, queue and limits; Ray Serve balances requests among them. The
environment variable `REPLICAS` has their number.
"""

import os
from typing import Any

from ray import serve


def build_service() -> Any:
    """Return the application of `vanilla-transformer serve` with the model that `MODEL` names."""
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.extensions.documents import DocumentTranslator
    from vanilla_transformer.extensions.serving.features import known_options
    from vanilla_transformer.extensions.serving.service import (
        count_tokens_with,
        create_service,
        translate_with,
    )

    translate = load_pipeline(os.environ["MODEL"])
    documents = DocumentTranslator(translate)
    return create_service(
        translate_with(translate, documents),
        count_tokens=count_tokens_with(translate.tokenizer),
        known=known_options(translate),
        documents=documents,
    )


def build_application(replicas: int) -> Any:
    """Return the deployment, to which `serve.run` gives an address."""
    environment = {"env_vars": {"MODEL": os.environ["MODEL"]}}

    @serve.deployment(num_replicas=replicas, ray_actor_options={"runtime_env": environment})
    @serve.ingress(build_service)
    class Translation:
        """A replica."""

    deployment: Any = Translation
    return deployment.bind()


if "MODEL" in os.environ:
    application = build_application(int(os.environ.get("REPLICAS", "1")))
