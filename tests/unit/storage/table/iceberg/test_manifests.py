# SPDX-License-Identifier: Apache-2.0
"""Manifest entries that are encoded without the Avro library are read by it."""

import decimal

import pytest

from storage.table.iceberg.manifests import ADDED, DELETES, ManifestFormat, decode
from storage.table.iceberg.types import avro_partition, iceberg_schema, partition_spec
from tests.table_kit import make_table

COLUMNS = (("k", "INT"), ("p", "STRING"), ("n", "DECIMAL(10, 2)"))
STORAGE = {"metadata.iceberg.storage": "table-location", "bucket": "-1"}


@pytest.mark.parametrize("partitions", [(), ("p", "n")])
def test_deletion_vectors_are_read_back(tmp_path, partitions):
    schema = make_table(
        tmp_path, columns=COLUMNS, keys=(), partitions=partitions, options=STORAGE
    ).schema
    format_ = ManifestFormat(
        3, avro_partition(schema), iceberg_schema(schema), partition_spec(schema)
    )
    values = {"p": "é" * 100, "n": decimal.Decimal("-1.25")}
    entries = [
        {
            "status": ADDED,
            "snapshot_id": number,
            "sequence_number": number,
            "file_sequence_number": number,
            "data_file": {
                "content": DELETES,
                "file_path": f"dv-{number}.puffin",
                "file_format": "PUFFIN",
                "partition": {name: values[name] for name in partitions},
                "record_count": number,
                "file_size_in_bytes": number + 1,
                "referenced_data_file": "/é" * number,
                "content_offset": number + 2,
                "content_size_in_bytes": number + 3,
            },
        }
        for number in (0, 63, 64, 8_191, 8_192)
    ]
    found = decode(format_.encode(entries, DELETES))
    for entry, read in zip(entries, found, strict=True):
        file = {name: value for name, value in read["data_file"].items() if value is not None}
        assert file == entry["data_file"]
        assert [read[name] for name in ("status", "snapshot_id")] == [ADDED, entry["snapshot_id"]]
