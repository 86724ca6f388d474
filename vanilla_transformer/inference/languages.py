"""The languages of models that translate between many, such as M2M-100 and NLLB."""

from typing import Any

from transformers import M2M100Tokenizer


def has_languages(tokenizer: Any) -> bool:
    """Return whether a tokenizer marks each side with its language."""
    return hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang")


def set_languages(model: Any, tokenizer: Any, source: str, target: str) -> None:
    """Let a model translate from one language to another by default.

    The tokenizer begins each side with its language, and decoding forces the target's.

    Args:
        source, target: Codes of the tokenizer, such as `"eng_Latn"` for NLLB or `"en"` for M2M-100.

    Raises:
        ValueError: the tokenizer does not know a code.
    """
    codes = {language: _language_token(tokenizer, language) for language in (source, target)}
    unknown = [language for language, token in codes.items() if token is None]
    if unknown:
        raise ValueError(f"Languages must be codes that the tokenizer knows, got {unknown[0]!r}.")
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    model.generation_config.forced_bos_token_id = codes[target]


def _language_token(tokenizer: Any, language: str) -> int | None:
    """Return the token of a language code: `deu_Latn` itself in NLLB, `__de__` for `de` in M2M-100."""
    if isinstance(tokenizer, M2M100Tokenizer):
        return tokenizer.lang_code_to_id.get(language)
    token = tokenizer.convert_tokens_to_ids(language)
    return None if token == tokenizer.unk_token_id else token


__all__ = ["has_languages", "set_languages"]
