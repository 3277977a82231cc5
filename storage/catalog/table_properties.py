# SPDX-License-Identifier: Apache-2.0
"""What a catalog keeps of a table so that other engines can look it up."""

from storage.format.metadata.schema import TableSchema

__all__ = ["table_properties"]


def table_properties(schema: TableSchema) -> dict[str, str]:
    """What Paimon keeps of a table with `sync-all-properties`: options, keys, comment."""
    keys = {
        "primary-key": ",".join(schema.primary_keys),
        "partition": ",".join(schema.partition_keys),
        "bucket-key": ",".join(schema.bucket_keys),
    }
    comment = {} if schema.comment is None else {"comment": schema.comment}
    return {**schema.options, **comment, **{key: text for key, text in keys.items() if text}}
