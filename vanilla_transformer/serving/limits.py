"""What one request may ask of the service, and how many may wait."""

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many may wait."""

    max_batch_size: int = field(default=32, metadata={"help": "Texts translated together."})
    max_waiting: int = field(default=1024, metadata={"help": "Texts that may wait for a batch."})
    max_body_bytes: int = field(default=1_000_000, metadata={"help": "Largest request."})
    max_texts: int = field(default=256, metadata={"help": "Most texts of a request."})
    max_characters: int = field(default=5000, metadata={"help": "Longest text."})
    max_hypotheses: int = field(default=8, metadata={"help": "Most translations of a text."})

    def __post_init__(self) -> None:
        for limit in fields(Limits):
            value = getattr(self, limit.name)
            if value < 1:
                raise ValueError(f"`{limit.name}` must be 1 or more, got {value}.")
