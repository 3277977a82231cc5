# SPDX-License-Identifier: Apache-2.0
"""A process that changes a catalog at the same time as another one does.

python -m tests.unit.storage.catalog.racer WAREHOUSE OPTIONS NUMBER

It races to make `db.t`, commits rows to it, adds columns, and makes, renames and drops tables of
its own. The store refuses conditional puts, so the catalog's lock is all that orders publications.
"""

import json
import sys

from storage.catalog.catalog import Catalog
from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.io.counting import ForwardingFileIO
from tests.table_kit import write

COMMITS = 8
COLUMNS = 3
INT = parse_type("INT")


class Unconditional(ForwardingFileIO):
    """A store without conditional puts."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Refuse."""
        raise UnsupportedFeatureError("no conditional puts", path=path)


def race(warehouse: str, options: dict[str, str], number: int) -> None:
    """Do it."""
    catalog = Catalog.open(warehouse, options).through(Unconditional)
    schema = new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})
    catalog.create_database("db", ignore_if_exists=True)
    catalog.create_table("db.t", schema, ignore_if_exists=True)
    table = catalog.table("db.t")
    # the other process may have added columns before this one looks at the table
    added = [None] * (len(table.schema.fields) - len(schema.fields))
    for commit in range(COMMITS):
        row = ("+I", 1000 * number + commit, number, *added)
        write(table, commit + 1, [row], user=f"racer-{number}", compaction=False)
    for column in range(COLUMNS):
        catalog.alter_table("db.t", [AddColumn(f"c{number}_{column}", INT)])
        own = f"db.own_{number}_{column}"
        catalog.create_table(own, schema)
        catalog.rename_table(own, f"{own}_renamed")
    catalog.drop_table(f"db.own_{number}_0_renamed")


if __name__ == "__main__":
    race(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
