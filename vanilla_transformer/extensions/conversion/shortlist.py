"""
Lexical shortlists: for each source token, the target tokens among which a search chooses.

A search that knows its source computes the logits of its tokens' lists only, of all sentences of a
batch together. EOS, which every source has, has the most frequent tokens of the target text.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.readers import SentencePair, stream_text_files
from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

_BEST = 100  # target tokens for each source token
_FREQUENT = 500  # target tokens for all sources
_MOST_PAIRS = 200_000  # that are read
_MAGIC = 0xF11A48D5013417F5
_SEPARATORS = {*" \t\r\n"}

# Target tokens by source token, in ascending order.
Shortlist = Mapping[int, Sequence[int]]


def read_shortlist_text(files: Sequence[str | Path]) -> list[SentencePair]:
    """Return the first pairs of two parallel files whose sides are not blank."""
    filled = (pair for pair in stream_text_files(*files) if all(pair))
    pairs = [*islice(filled, _MOST_PAIRS)]
    if not pairs:
        raise UserError(
            f"A shortlist needs pairs of sentences, got none in {files[0]} and {files[1]}."
        )
    return pairs


def count_shortlist(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[SentencePair]) -> Shortlist:
    """Return the target tokens with the highest p(target token | source token) in aligned text.

    [`align_lexically`] aligns tokens, whose numbers are its words. Languages that write no spaces
    are as good.
    """
    from vanilla_transformer.extensions.alignments.word_alignments import align_lexically

    sources = encode_sentences(tokenizer, [pair.source for pair in pairs], False)
    targets = encode_sentences(tokenizer, [pair.target for pair in pairs], True)
    token_pairs = []
    for source, target in zip(sources, targets, strict=True):
        token_pairs.append(SentencePair(_write_ids(source[:-1]), _write_ids(target[:-1])))
    counts = Counter[tuple[int, int]]()
    alignments = align_lexically(token_pairs)
    for source, target, links in zip(sources, targets, alignments, strict=True):
        counts.update((source[here], target[there]) for here, there in links)
    best = defaultdict[int, list[int]](list)
    most_frequent = sorted(counts, key=lambda link: (-counts[link], link))
    for source_token, target_token in most_frequent:
        if len(best[source_token]) < _BEST:
            best[source_token].append(target_token)
    shortlist = {source_token: sorted(tokens) for source_token, tokens in best.items()}
    frequent = Counter(chain.from_iterable(targets)).most_common(_FREQUENT)
    shortlist[tokenizer.eos_token_id] = sorted(token for token, _ in frequent)
    return shortlist


def _write_ids(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def write_vocabulary_map(shortlist: Shortlist, names: Mapping[int, str], path: Path) -> None:
    """Write `vmap.txt` of CTranslate2: lines of a source token, a tab, and target tokens, here with
    the token itself.

    Args:
        names: The names of all tokens. Those with white space are left out, because it separates
            names.
    """
    spelled = {token: name for token, name in names.items() if not _SEPARATORS & {*name}}
    rows = {}
    for token in spelled:
        rows[token] = {token, *shortlist.get(token, ())} & spelled.keys()
    lines = []
    for source, tokens in rows.items():
        targets = " ".join(spelled[token] for token in sorted(tokens))
        lines.append(f"{spelled[source]}\t{targets}\n")
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def write_bergamot_shortlist(shortlist: Shortlist, vocab_size: int, path: Path) -> None:
    """Write `lex.bin` of Bergamot, whose engine adds the tokens of the source and the first ones of
    the vocabulary.

    Args:
        vocab_size: Tokens of the vocabulary there, which has no padding.
    """
    rows = []
    for source in range(vocab_size):
        targets = shortlist.get(source, ())
        rows.append([token for token in targets if token < vocab_size])
    offsets = [0, *accumulate(map(len, rows))]
    form = f"<4Q{len(offsets)}Q"
    content = struct.pack(form, _FREQUENT, _BEST, len(offsets), offsets[-1], *offsets)
    content += struct.pack(f"<{offsets[-1]}I", *chain.from_iterable(rows))
    path.write_bytes(struct.pack("<2Q", _MAGIC, _checksum(content)) + content)


def _checksum(content: bytes) -> int:
    value, words = 0, struct.iter_unpack("<Q", content[: len(content) // 8 * 8])
    for (word,) in words:
        value ^= (word + 0x9E3779B9 + (value << 6) + (value >> 2)) & 0xFFFF_FFFF_FFFF_FFFF
    return value
