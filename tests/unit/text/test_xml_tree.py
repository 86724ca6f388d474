"""Errors of XML name the line of the file."""

import pytest

from vanilla_transformer.text.xml_tree import parse_xml


def test_parse_xml_counts_the_lines_of_the_declaration():
    with pytest.raises(ValueError, match=r"^[^\n]*<string>, line 3\)\.$"):
        parse_xml('<?xml version="1.0"?>\n<a>\n<b></a>')
