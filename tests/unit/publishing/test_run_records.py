"""Names of records in the folder of a model."""

import pytest

from vanilla_transformer.publishing.run_records import check_record_name


@pytest.mark.parametrize("name", ["test 2016", "wmt-14_de.v2", "परीक्षण", "e\u0301te\u0301", "m²"])
def test_check_record_name_accepts_letters_of_any_script(name):
    check_record_name(name)


@pytest.mark.parametrize("name", ["a/b", "", "a:b", "a\nb"])
def test_check_record_name_refuses_other_characters(name):
    with pytest.raises(ValueError, match="--name may hold letters, digits"):
        check_record_name(name)
