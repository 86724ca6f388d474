"""Names that differ between releases of transformers."""


def checkpoint_activations(model, options=None):
    """Turn activation checkpointing on, which releases before 5.22 call gradient checkpointing."""
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
