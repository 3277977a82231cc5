# SPDX-License-Identifier: Apache-2.0
import pytest

from storage.catalog.hive_client import HiveClient
from storage.catalog.hive_types import hive_type, paimon_type
from storage.errors import InvalidOptionError, UnsupportedFeatureError
from storage.format.types.type_text import parse_type, type_to_json


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "tinyint"),
        ("SMALLINT", "smallint"),
        ("INT", "int"),
        ("BIGINT", "bigint"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("DECIMAL(10, 2)", "decimal(10,2)"),
        ("STRING", "string"),
        ("VARCHAR(20)", "varchar(20)"),
        ("CHAR(5)", "char(5)"),
        ("BYTES", "binary"),
        ("DATE", "date"),
        ("TIMESTAMP(6)", "timestamp"),
    ],
)
def test_types_of_columns_and_back(paimon, hive):
    assert hive_type(parse_type(paimon)) == hive
    assert type_to_json(paimon_type(hive)) == paimon


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("CHAR(300)", "string"),
        ("VARCHAR(70000)", "string"),
        ("BINARY(4)", "binary"),
        ("TIME(0)", "string"),
        ("TIMESTAMP(3)", "timestamp"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp"),
        ("INT NOT NULL", "int"),
    ],
)
def test_types_that_hive_does_not_have(paimon, hive):
    assert hive_type(parse_type(paimon)) == hive


def test_nested_types():
    text = "array<map<string,struct<a:int,b c:decimal(5,1)>>>"
    found = paimon_type(text)
    assert hive_type(found) == text
    assert hive_type(paimon_type("timestamp with local time zone")) == "timestamp"


@pytest.mark.parametrize("text", ["", "array<int", "struct<int>", "uniontype<int>", "int>", "<"])
def test_what_is_no_type(text):
    with pytest.raises(UnsupportedFeatureError, match="not known"):
        paimon_type(text)


def test_addresses():
    assert HiveClient("thrift://a:1, thrift://b").addresses() == [("a", 1), ("b", 9083)]
    for text in ("a:1", "http://a:1", ""):
        with pytest.raises(InvalidOptionError, match="address"):
            HiveClient(text).addresses()
