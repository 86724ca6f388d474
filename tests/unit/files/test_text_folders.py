"""Folders of text are one text; each must have files, and none of them is the output."""

import pytest

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.text_folders import hash_texts, stream_texts, text_files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.en", "a/z.en", "a.en", ".b.en.tmp", ".git/config", "a/.b/c"):
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n\nend\n")
    return tmp_path / "texts"


def test_stream_texts_reads_files_in_the_order_of_their_names(folder):
    paths = text_files(folder)
    assert paths == [folder / name for name in ("a/z.en", "a.en", "b.en")]
    lines = ["a/z.en", "", "end", "a.en", "", "end", "b.en", "", "end"]
    assert [*stream_texts(folder)] == lines
    assert [*stream_texts(str(folder / "a.en"))] == lines[3:6]


def test_hash_texts_is_of_names_and_contents(folder):
    hashes = [hash_texts(folder)]
    (folder / "b.en").rename(folder / "c.en")
    hashes.append(hash_texts(folder))
    (folder / "c.en").write_text("Other text.\n")
    hashes.append(hash_texts(str(folder)))
    assert len({*hashes}) == 3 and hash_texts(folder) == hashes[-1]
    assert hash_texts(folder / "a.en") == hash_file(folder / "a.en")


def test_text_files_refuses_an_output_among_them_and_an_empty_folder(folder, tmp_path):
    assert len(text_files(folder, tmp_path / "out.de")) == 3
    with pytest.raises(UserError, match="The output must be outside of .*texts, .* got .*out.de"):
        text_files(folder, folder / "a" / "out.de")
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    with pytest.raises(UserError, match="A folder of text must have files, but .*empty has none"):
        text_files(tmp_path / "empty")
