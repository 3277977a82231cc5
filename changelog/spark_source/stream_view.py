# SPDX-License-Identifier: Apache-2.0
"""What of the changes of a table a stream shows: with `_row_kind`, without, as a system table.

Knows nothing of Spark. Data plane: no Python object per row.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from changelog.row_kinds import told_batch, told_schema
from changelog.spark_source.pieces import check_columns, selected
from changelog.spark_source.view_scan import is_view, shown_batches, view_schema
from changelog.starting import require_whole_changes
from changelog.stream_read import StreamRead
from storage.errors import UnsupportedFeatureError
from storage.format.types.types import VALUE_KIND
from storage.table.inspect.system.row_tables import (
    refuse_streaming_read_optimized,
    shows_sequence_numbers,
)
from storage.table.read.change_read import additions
from storage.table.scan.change_plan import ChangeSplit
from storage.table.scan.predicate import And, Predicate, columns_of, conjuncts, mask
from storage.table.scan.scan import Split
from storage.table.scan.time_travel import travel_of
from storage.table.table import FileStoreTable

__all__ = ["StreamView", "streamed_table"]


def streamed_table(table: FileStoreTable) -> FileStoreTable:
    """The table a stream reads: where it begins does not choose the schema."""
    return table if travel_of(table.schema.options).to_newest else table.latest()


class StreamView:
    """Columns of the changes of a table. Picklable.

    Args:
        table: of `streamed_table`.
        system: name of a system table; None: the table itself.
        columns: wanted, in order; None: all.
        predicate: rows wanted; None: all. Of an update only one half may be among them.
        kinds: whether rows have `_row_kind`; without, only what comes is shown. None: not said.

    Raises:
        UnsupportedFeatureError: this cannot be followed, or not without saying whether kinds are
            wanted; or the table merges rows and has no changelog producer.
        InvalidRequestError: a column is unknown.
    """

    def __init__(
        self,
        table: FileStoreTable,
        system: str | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        kinds: bool | None = None,
    ) -> None:
        self.table = table
        self._view = _followed(table, system)
        if kinds is None and table.schema.primary_keys and self._view is None:
            raise UnsupportedFeatureError(
                "a stream of a table with a primary key needs the kinds of its rows",
                hint='.option("read.changelog", "true") adds the column `_row_kind`; "false" shows '
                "only the rows that come, without those that they replace",
                table=table.layout.root,
            )
        if self._view is None:
            require_whole_changes(table)
        self._kinds = bool(kinds)
        whole = self._whole()
        check_columns(whole, predicate)
        self._schema = selected(whole, columns)
        self._predicate = predicate

    @property
    def schema(self) -> pa.Schema:
        """The columns wanted, in the form of `storage`."""
        return self._schema

    @property
    def early(self) -> Predicate | None:
        """What the plan may be asked for; the rest waits for the rows."""
        if self._view == "binlog":
            return None
        own = set(self.table.schema.field_names)
        early = tuple(part for part in conjuncts(self._predicate) if columns_of(part) <= own)
        return And(early) if early else None

    def read(self, splits: Sequence[Split | ChangeSplit]) -> Iterator[pa.RecordBatch]:
        """The rows of splits, one after the other."""
        reader = self._reader()
        for split in splits:
            for batch in self._shown(reader.to_batches(split), isinstance(split, ChangeSplit)):
                wanted = self._predicate
                rows = batch if wanted is None else batch.filter(mask(wanted, batch))
                if rows.num_rows:
                    yield rows.select(self._schema.names)

    def _whole(self) -> pa.Schema:
        if self._view is not None:
            return view_schema(self.table, self._view)
        schema = StreamRead(self.table, sequence_numbers=self._numbered).schema
        return told_schema(schema) if self._kinds else schema.remove(0)

    @property
    def _numbered(self) -> bool:
        return shows_sequence_numbers(self.table)

    def _reader(self) -> StreamRead:
        if self._view is not None:
            return StreamRead(self.table, None, self.early, sequence_numbers=True)
        needed = set(self._schema.names)
        if self._predicate is not None:
            needed |= columns_of(self._predicate)
        columns = [name for name in self.table.schema.field_names if name in needed]
        return StreamRead(self.table, columns, self.early, sequence_numbers=self._numbered)

    def _shown(self, batches: Iterator[pa.RecordBatch], changes: bool) -> Iterator[pa.RecordBatch]:
        if self._view is not None:
            return shown_batches(self.table, self._view, batches, pairs=changes)
        if self._kinds:
            return map(told_batch, batches)
        return (additions(batch).drop_columns([VALUE_KIND]) for batch in batches)


def _followed(table: FileStoreTable, system: str | None) -> str | None:
    """The view that a system table is; None: the rows themselves."""
    name = None if system is None else system.lower()
    if name == "ro":
        refuse_streaming_read_optimized(table)
        return None
    if name is None or is_view(name):
        return name
    raise UnsupportedFeatureError(
        "this system table cannot be followed as a stream",
        hint="read it in batches; `audit_log` and `binlog` can be followed",
        name=system,
        table=table.layout.root,
    )
