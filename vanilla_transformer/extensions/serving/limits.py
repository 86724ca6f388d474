"""The limits of the service, and the refusal of a request beyond them."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.user_input.schemas import Schema

Limit = Annotated[int, Field(ge=1, le=10**12)]
LONGEST_REASON = 150  # characters of a message that may quote the request


class Refusal(Exception):
    """Raised for a request that is not answered.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Limits(Schema):
    """Limits of requests, batches, the queue and connections."""

    max_batch_size: Limit = Field(32, description="Maximum number of texts per batch.")
    max_batch_tokens: Limit = Field(
        8192, description="Maximum number of tokens per batch, padding included."
    )
    max_waiting: Limit = Field(
        1024, description="Maximum number of texts that wait, of small and of large requests each."
    )
    max_waiting_per_client: Limit = Field(
        512, description="The same per API key or, without keys, per address."
    )
    max_body_bytes: Limit = Field(1_000_000, description="Maximum size of a request in bytes.")
    max_document_bytes: Limit = Field(
        10_000_000,
        description=(
            "The same of a request with documents, or with a file, instead of --max_characters."
        ),
    )
    max_document_memory: Limit = Field(
        1_000_000_000,
        description=(
            "Maximum memory in bytes to read and write the documents of a request, on Linux."
        ),
    )
    max_texts: Limit = Field(256, description="Maximum number of texts per request.")
    max_characters: Limit = Field(5000, description="Maximum length of a text in characters.")
    max_tokens: Limit = Field(1024, description="Maximum length of a text in tokens.")
    max_hypotheses: Limit = Field(8, description="Maximum number of translations per text.")
    max_mbr_samples: Limit = Field(
        64, description="Maximum number of samples per text from which `mbr` chooses."
    )
    max_suggestions: Limit = Field(
        10_000, description="Maximum number of suggestions that are stored per API key."
    )
    max_file_bytes: Limit = Field(
        50_000_000, description="Maximum size of all translated files that wait to be downloaded."
    )
    file_seconds: Limit = Field(600, description="Time after which a translated file is deleted.")
    max_connections: Limit = Field(512, description="Maximum number of open connections.")
    request_seconds: Limit = Field(60, description="Maximum time to answer a request.")
    client_seconds: Limit = Field(
        10,
        description="Maximum time that a client may take to send a request or to read its answer.",
    )
    grace_seconds: Limit = Field(
        10, description="Maximum time to answer the accepted requests after SIGTERM."
    )

    def late(self) -> Refusal:
        return Refusal(
            503, f"The request took longer than {self.request_seconds} seconds (--request_seconds)."
        )

    def check_request(self, texts: Any, num_hypotheses: int, format: str = "text") -> None:
        """Check the texts of a request in constant time each; the first mistake ends the check."""
        if not isinstance(texts, list):
            raise Refusal(422, f"`text` must be a string or a list of strings, got {_type(texts)}.")
        if len(texts) > self.max_texts:
            raise Refusal(
                422,
                f"`text` may be a list of at most {self.max_texts} (--max_texts), got "
                f"{len(texts)}.",
            )
        if not 1 <= num_hypotheses <= self.max_hypotheses:
            reason = (
                f"must give 1 to at most {self.max_hypotheses} (--max_hypotheses), got "
                f"{num_hypotheses}."
            )
            raise Refusal(422, f"`num_return_sequences` {reason}"[:LONGEST_REASON])
        for position, text in enumerate(texts):
            if not isinstance(text, str | Sentence):  # which no request has
                raise Refusal(
                    422, f"Each text must be a string, got {_type(text)} at position {position}."
                )
            if format == "text" and len(text) > self.max_characters:
                reason = (
                    f"The characters of a text may be at most {self.max_characters} "
                    "(--max_characters)"
                )
                raise Refusal(422, f"{reason}, got {len(text)} at position {position}.")

    def check_sentences(self, lengths: Sequence[int]) -> None:
        """Check the characters of sentences of documents: one that takes more than a batch would
        keep others out.
        """
        most = max(self.max_batch_tokens, self.max_characters)
        longest = max(lengths, default=0)
        if longest > most:
            requirement = f"at most {most} characters (--max_batch_tokens)"
            raise Refusal(
                422, f"A sentence of a document may have {requirement}, got {longest}. Split it."
            )

    def check_tokens(self, counts: Sequence[int]) -> None:
        """Check the numbers of tokens of texts."""
        for position, count in enumerate(counts):
            if count > self.max_tokens:
                reason = f"The tokens of a text may be at most {self.max_tokens} (--max_tokens)"
                raise Refusal(422, f"{reason}, got {count} at position {position}.")


def _type(value: Any) -> str:
    names = {
        type(None): "null",
        dict: "an object",
        list: "a list",
        bool: "a boolean",
        str: "a string",
    }
    return names.get(type(value), "a number")
