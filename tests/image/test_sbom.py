# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.image.sbom import bill
from tests.image.tools import tool


@pytest.mark.full
def test_the_bill_names_what_is_in_the_image_and_nothing_else():
    document = bill(tool("cyclonedx-py"))
    names = {each["name"] for each in document["components"]}
    assert {"pyspark", "pyarrow", "confluent-kafka", "psycopg"} <= names
    assert {"spark-core_2.13", "hadoop-client-runtime"} <= names
    assert not {"pytest", "mypy", "ruff", "setuptools"} & names
    assert document["metadata"]["component"]["name"] == "lakeward"
    known = {each["bom-ref"] for each in document["components"]} | {"root-component"}
    for each in document["dependencies"]:
        assert set(each["dependsOn"]) <= known
