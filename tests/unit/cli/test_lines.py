"""Lines of a pipe arrive in order, in blocks that wait no longer than a pause."""

import os
import random
import threading

import pytest

from vanilla_transformer.cli import lines as cli_lines
from vanilla_transformer.cli.lines import read_blocks, stdin_source


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as target:
        yield source, target


@pytest.mark.parametrize("end", [b"\n", b""])
def test_read_blocks_loses_nothing(pipe, end):
    source, target = pipe
    draw = random.Random(1)
    sent = [bytes(draw.choices(b"ab c\r", k=draw.choice([0, 1, 30, 5000]))) for _ in range(500)] + [
        b"last"
    ]
    content = b"\n".join(sent) + end

    def write():
        for start in range(0, len(content), 999):
            target.write(content[start : start + 999])
        target.close()

    thread = threading.Thread(target=write)
    thread.start()
    blocks = [*read_blocks(source.fileno(), 4, 64)]
    thread.join()
    assert [line for block in blocks for line in block] == sent
    assert max(map(len, blocks)) <= 64


def test_read_blocks_ends_a_block_at_a_pause(pipe):
    source, target = pipe
    blocks = read_blocks(source.fileno(), 4, 64)
    target.write(b"one\ntwo\nthr")
    assert next(blocks) == [b"one", b"two"]
    target.write(b"ee\n")
    assert next(blocks) == [b"three"]
    target.close()
    assert [*blocks] == []


def test_read_blocks_does_not_wait_once_a_batch_is_there(pipe, monkeypatch):
    source, target = pipe
    monkeypatch.setattr(cli_lines, "PAUSE", 1e6)
    target.write(b"1\n2\n3\n4\n5\n")
    assert next(read_blocks(source.fileno(), 4, 64)) == [b"1", b"2", b"3", b"4", b"5"]


def test_read_blocks_limits_lines(pipe, monkeypatch):
    source, target = pipe
    monkeypatch.setattr(cli_lines, "LONGEST_LINE", 9)
    target.write(b"a" * 9 + b"\n" + b"b" * 10)
    target.close()
    with pytest.raises(ValueError, match="Line 2 of standard input must have at most"):
        [*read_blocks(source.fileno(), 4, 64)]


def test_stdin_source_counts_the_lines_of_a_file(tmp_path, monkeypatch):
    (tmp_path / "text").write_bytes(b"one\r\n\ntwo")
    with open(tmp_path / "text") as file:
        monkeypatch.setattr("sys.stdin", file)
        source = stdin_source(32)
        assert source.total == 3 and [*source.blocks] == [["one", "", "two"]]


def test_stdin_source_leaves_out_a_byte_order_mark(pipe, monkeypatch):
    source, target = pipe
    target.write(b"\xef\xbb\xbfHello.\n\xef\xbb\xbfWorld.\n")
    target.close()
    monkeypatch.setattr("sys.stdin", source)
    assert [*stdin_source(1).blocks] == [["Hello.", "\ufeffWorld."]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n" * 70 + b"\xe4\n", "must be UTF-8, but line 71 has the byte 0xe4"),
        (
            "A sentence.\n".encode("utf-16-le"),
            "Standard input must be UTF-8, but it is UTF-16LE. .* `iconv",
        ),
    ],
)
def test_stdin_source_names_text_that_is_not_utf8(pipe, monkeypatch, content, message):
    source, target = pipe
    target.write(content)
    target.close()
    monkeypatch.setattr("sys.stdin", source)
    with pytest.raises(ValueError, match=message):
        [*stdin_source(1).blocks]


def test_stdin_source_names_a_closed_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(OSError, match="must be open, but it is closed. Give a file by --input"):
        stdin_source(1)
