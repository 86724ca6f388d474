"""Errors of XML name the line of the file, and no other file is read."""

import pytest

from vanilla_transformer.text.xml_tree import parse_xml


def test_parse_xml_counts_the_lines_of_the_declaration():
    with pytest.raises(ValueError, match=r"^[^\n]*<string>, line 3\)\.$"):
        parse_xml('<?xml version="1.0"?>\n<a>\n<b></a>')


@pytest.mark.parametrize("content", [str, str.encode])
@pytest.mark.parametrize(
    "name",
    ['PUBLIC "-//A"\n"http://a.example/a.dtd"', "SYSTEM 'https://a.example/'", "SYSTEM {!r}"],
)
def test_parse_xml_opens_no_document_type(name, content, tmp_path):
    file = tmp_path / "a.dtd"
    file.write_text("<!ELEMENT <")  # which would be an error
    doctype = f"<!-- <!DOCTYPE a> -->\n<!DOCTYPE a {name.format(file.as_uri())}"
    text = f'{doctype} [<!ENTITY b "c">]>\n<a xml:id="x">&b;&amp;</a>'
    root = parse_xml(content(text)).getroot()
    assert root.sourceline == text.count("\n") + 1
    assert root.get("{http://www.w3.org/XML/1998/namespace}id") == "x"
    with pytest.raises(ValueError, match=f"line {root.sourceline}"):
        parse_xml(content(text.replace("</a>", "</b>")))
