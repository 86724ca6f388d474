"""An interrupted command continues only with the same files, models and flags of translations."""

import pytest

from vanilla_transformer.cli.flags import translation_origin
from vanilla_transformer.cli.translate import TranslateArguments
from vanilla_transformer.decoding import pretrained

FILES = {
    "glossary": "a",
    "memory": ["a"],
    "target_prefixes": "a",
    "draft": "a",
    "previous": ["b", "a"],
}


@pytest.fixture
def origin_of(tmp_path, monkeypatch):
    """Return a function of the flags of `translate` beside its model and its input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "hash_model", str)
    for name in ("a", "b", "text"):
        (tmp_path / name).write_text("before\n")

    def describe(**flags):
        return translation_origin(TranslateArguments(model="model", input="text", **flags))

    return describe


@pytest.mark.parametrize("name", FILES)
def test_origin_has_the_content_of_each_file(name, origin_of, tmp_path):
    value = FILES[name]
    before = origin_of(**{name: value})
    assert before == origin_of(**{name: value}) != origin_of()
    (tmp_path / "a").write_text("after\n")
    assert origin_of(**{name: value}) != before


MODELS = {"ensemble": ["b"], "rerank_reverse": "b", "rerank_quality": "b"}


@pytest.mark.parametrize("name", MODELS)
def test_origin_has_each_model(name, origin_of):
    assert origin_of()["model"] == ["model"]
    assert origin_of(**{name: MODELS[name]})["model"] == ["model", "b"]


OTHERS = [{"num_beams": 3}, {"split_sentences": True}, {"json": True}, {"dtype": "float32"}]
SAME = [{"batch_size": 3}, {"threads": 1}, {"workers": 2}, {"quiet": True}, {"device": "cpu"}]


@pytest.mark.parametrize("flags", OTHERS, ids=str)
def test_origin_has_flags_that_change_translations(flags, origin_of):
    assert origin_of(**flags) != origin_of()


@pytest.mark.parametrize("flags", SAME, ids=str)
def test_origin_has_no_flag_of_speed(flags, origin_of):
    assert origin_of(**flags) == origin_of()
