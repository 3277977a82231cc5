# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify --repair`: rows that differ are written to the lake as the source has them.

The rows pass through the transforms of the pipeline (filter, computed columns, masks, soft deletes)
and through the table's own writer, so that merge, indexes and changelog producer handle them like
any change. One commit, of the user `<stream>.repair-…`, brings up to `_KEYS_PER_COMMIT` keys.

Why no newer change is overwritten. A row is written as of a read of the source at some moment:

1. Before that read the table is at rest (`at_rest`), so every change made after the read is applied
   after the repair, when the stream continues from the offsets at which the table stopped.
2. The commit is published only on the snapshot of the lake that was read, or one that only
   compactions changed since, while the table is still at rest. Otherwise both sides are read again.
3. A read replica may lag behind what the lake has. It is refused as a source.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import Settings
from ingest.decode.events import OFFSET_COLUMN, SOURCE_TABLE_OPTION
from ingest.decode.metadata_columns import origin_schema
from ingest.state.stream_state import OFFSETS_PROPERTY
from ingest.tools.verify.at_rest import at_rest
from ingest.tools.verify.columns import Columns, Compared, Counterpart, Find
from ingest.tools.verify.compare import (
    KEY_HASH,
    UNFIT,
    Side,
    differing_keys,
    first_rows,
    hashed,
    hashed_schema,
)
from ingest.tools.verify.fitting import Form
from ingest.tools.verify.hashes import Hashes, column_hashes, combined_hashes
from ingest.tools.verify.lake import TableSide
from ingest.tools.verify.outcome import RepairReport
from ingest.tools.verify.recheck import rows_of_keys
from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import HIDDEN_OPTION, hidden_from_text, present_rule, transform_rule
from storage.clock import Clock
from storage.errors import CommitConflictError, InvalidRequestError, RetryableError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.commit.commit import NOT_COMMITTED
from storage.table.table import FileStoreTable
from storage.table.uncommitted import discarded_on

NOT_IN_SOURCE = "not in the source"

_KEYS_PER_COMMIT = 20_000
_ATTEMPTS = 5
_CHANGES = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Rows to write for some keys.

    Attributes:
        rows: columns of the table, then `_VALUE_KIND`.
        expected: the table's rows of these keys afterwards, hashed.
        keys: the key columns and the hashes of the keys.
        base: snapshot of the table that was read; None = it has none.
    """

    rows: pa.Table
    expected: pa.Table
    keys: pa.Table
    base: int | None


class Repair:
    """The repair of one table.

    Args:
        settings: of the pipeline that fills the table.
        name: `database.table`.
        table: the table.
        columns: what was compared.
        source: that side of the comparison.
        lake: the other.
        find: looks up a column in the source.
        open_source: opens the source with other columns.
        clock: time.

    Raises:
        InvalidRequestError: rows of the table cannot be repaired; says why.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        name: str,
        table: FileStoreTable,
        columns: Columns,
        source: Side,
        lake: TableSide,
        find: Find,
        open_source: Callable[[Columns], Side],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._stream = settings.pipeline.name
        self._name = name
        self._table = table
        self._columns = columns
        self._source, self._lake = source, lake
        self._clock = clock
        self._rule = present_rule(transform_rule(settings, name), table.schema)
        self._refuse_tables()
        hidden = hidden_from_text(table.schema.options.get(HIDDEN_OPTION, ""))
        zone = settings.sink.time_zone
        self._transform = RowTransform.of(self._rule, table.schema, hidden=hidden, zone=zone)
        self._absent: dict[str, str] = {}
        self._read = self._columns_to_read(find)
        self._fresh = open_source(self._read)
        fields = [field for field in table.schema.fields if field.name not in columns.key_names]
        self._all_columns = Columns(
            columns.keys, tuple(Compared(field.name, field.type, field.name) for field in fields)
        )
        self._lake_side = TableSide(table, name, self._all_columns)

    # --- what cannot be repaired

    def _refuse_tables(self) -> None:
        schema, options = self._table.schema, self._table.options
        reason = ""
        computed = {name for name, _ in self._rule.assignments}
        left_out = [
            key
            for key in schema.primary_keys
            if key not in self._columns.key_names and key not in computed
        ]
        streams = self._other_streams()
        if not schema.primary_keys or not self._columns.keyed:
            reason = "it has no primary key"
        elif options.merge_engine != "deduplicate":
            reason = f"its merge engine {options.merge_engine} makes rows of several changes"
        elif options.rowkind_field is not None:
            reason = "its rows carry their own kind (rowkind.field)"
        elif schema.options.get(SOURCE_TABLE_OPTION, "").startswith("shared:"):
            reason = "several source tables fill it"
        elif left_out:
            reason = f"the source does not have {', '.join(left_out)} of its key"
        elif any(key.form is not Form.PLAIN for key in self._columns.keys):
            reason = "texts of its key may be written in several ways"
        elif streams:
            reason = f"another pipeline writes it, too ({streams[0]})"
        if reason:
            raise InvalidRequestError(
                f"the table cannot be repaired: {reason}",
                hint="take a new snapshot of it with `lakeward resnapshot`",
                table=self._name,
            )

    def _other_streams(self) -> list[str]:
        snapshot = self._table.latest_snapshot()
        properties = {} if snapshot is None else snapshot.properties or {}
        own_property = OFFSETS_PROPERTY + self._stream
        return sorted(
            name.removeprefix(OFFSETS_PROPERTY)
            for name in properties
            if name.startswith(OFFSETS_PROPERTY) and name != own_property
        )

    def _columns_to_read(self, find: Find) -> Columns:
        """The source's columns that rows are made from; missing ones are added to `_absent`."""
        items: dict[str, Compared] = {}
        for field in self._transform.decode_schema.fields:
            counterpart = find(field.name, field.type)
            if isinstance(counterpart, Counterpart):  # as the connector writes it, in no other form
                items[field.name] = Compared(field.name, field.type, counterpart.name)
            else:
                self._absent[field.name] = counterpart
        masked = sorted(self._absent.keys() & self._rule.mask.keys())
        if masked:
            raise InvalidRequestError(
                "the table cannot be repaired: the source does not have a masked column",
                column=masked[0],
                table=self._name,
            )
        rest = tuple(item for name, item in items.items() if name not in self._columns.key_names)
        return Columns(self._columns.keys, rest)

    # --- the work

    def run(self, keys: pa.Table, *, dry_run: bool) -> RepairReport:
        """Repair the rows of some keys.

        Raises:
            RetryableError: the daemon did not answer, or the table did not come to rest.
            LakewardError: a side cannot be read or written.
        """
        report = RepairReport(dry_run=dry_run)
        parts = [
            keys.slice(start, _KEYS_PER_COMMIT)
            for start in range(0, keys.num_rows, _KEYS_PER_COMMIT)
        ]
        if dry_run:
            for part in parts:
                self._count(self._change(part, report), report)
        elif parts:
            with at_rest(self._settings, self._table, self._name, self._clock) as require_rest:
                self._refuse_new_schema()
                for part in parts:
                    self._commit(part, report, require_rest)
        return report

    def _refuse_new_schema(self) -> None:
        if self._table.latest().schema.id != self._table.schema.id:
            raise RetryableError(
                "the schema of the table changed meanwhile", hint="run it again", table=self._name
            )

    def _commit(
        self, keys: pa.Table, report: RepairReport, require_rest: Callable[[], None]
    ) -> None:
        attempt = 0
        while True:
            attempt += 1
            draft = RepairReport(dry_run=False)
            change = self._change(keys, draft)
            try:
                if change.rows.num_rows:
                    report.snapshots.append(self._write(change, require_rest))
                break
            except CommitConflictError:
                if attempt == _ATTEMPTS:
                    raise
        report.filtered += draft.filtered
        report.unrepaired += draft.unrepaired
        self._count(change, report)
        self._check_result(change, report)

    def _write(self, change: "_Change", require_rest: Callable[[], None]) -> int:
        """Write and commit rows; the snapshot."""
        user = f"{self._stream}.repair-{self._table.ids.uuid()}"
        with self._table.new_write(user) as write:
            for batch in change.rows.combine_chunks().to_batches():
                write.write(batch)
            messages = write.prepare_commit()
        with discarded_on(self._table, messages, NOT_COMMITTED):
            result = self._table.new_commit(user).commit(
                messages,
                BATCH_COMMIT_IDENTIFIER,
                before_publish=functools.partial(self._check, user, change.base, require_rest),
            )
        return result.append_snapshot_id or 0

    def _check(
        self,
        user: str,
        base: int | None,
        require_rest: Callable[[], None],
        latest: Snapshot | None,
    ) -> None:
        """Refuse to publish on a snapshot that another writer committed after the lake was read.

        If the rows are published already and only their compaction is pending, it is allowed.

        Raises:
            CommitConflictError: there is such a snapshot; nothing was committed.
        """
        newest = 0 if latest is None else latest.id
        snapshots = [self._table.snapshots.read(i) for i in range((base or 0) + 1, newest + 1)]
        if any(snapshot.commit_user == user for snapshot in snapshots):
            return
        for snapshot in snapshots:
            if snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE):
                raise CommitConflictError(
                    "the table was written meanwhile", table=self._name, snapshot=snapshot.id
                )
        require_rest()

    def _count(self, change: _Change, report: RepairReport) -> None:
        report.upserts += change.expected.num_rows
        report.deletes += change.rows.num_rows - change.expected.num_rows

    def _check_result(self, change: _Change, report: RepairReport) -> None:
        """Count the keys of which the table now has other rows than were written."""
        self._lake_side.refresh()
        stored = self._living(self._stored_rows(change.keys))
        wrong = differing_keys(change.expected, stored)
        if wrong:
            report.unrepaired["the table's own order of rows kept another row"] += len(wrong)

    # --- the rows

    def _change(self, keys: pa.Table, report: RepairReport) -> _Change:
        """The rows to write for the keys of which the sides still differ."""
        self._lake_side.refresh()
        self._lake.snapshot_id = self._lake_side.snapshot_id
        differing = differing_keys(
            rows_of_keys(self._source, self._columns, keys),
            rows_of_keys(self._lake, self._columns, keys),
        )
        keys = first_rows(keys, np.array(list(differing), np.uint64))
        stored = self._stored_rows(keys)
        fresh = rows_of_keys(self._fresh, self._read, keys)
        excluded = _Excluded(report.unrepaired)
        excluded.add("a value does not fit the lake's type", _keys_where(fresh, UNFIT))
        hashes = np.asarray(fresh.column(KEY_HASH))
        values, counts = np.unique(hashes, return_counts=True)
        excluded.add("the source has several rows with the key", values[counts > 1])
        fresh = excluded.without(fresh)
        upserts = self._transformed(fresh, stored, excluded, report)
        stored = excluded.without(stored)
        retracted = self._retracted(stored, upserts)
        rows = pa.concat_tables([retracted, upserts.cast(retracted.schema)])
        whole = upserts.select(self._all_columns.schema.names).cast(self._all_columns.schema)
        parts = [hashed(batch, self._all_columns) for batch in whole.combine_chunks().to_batches()]
        expected = pa.Table.from_batches(parts, schema=hashed_schema(self._all_columns))
        return _Change(rows, expected, excluded.without(keys), self._lake_side.snapshot_id)

    def _stored_rows(self, keys: pa.Table) -> pa.Table:
        return rows_of_keys(self._lake_side, self._all_columns, keys)

    def _transformed(
        self, fresh: pa.Table, stored: pa.Table, excluded: "_Excluded", report: RepairReport
    ) -> pa.Table:
        """Transform rows of the source to rows of the table, as the pipeline does.

        Returns:
            Columns of the table and `_VALUE_KIND`.
        """
        decode = self._transform.decode_schema
        before = pc.index_in(fresh.column(KEY_HASH), value_set=stored.column(KEY_HASH))
        before = before.combine_chunks()
        unknown = np.zeros(fresh.num_rows, bool)
        arrays: list[pa.Array] = []
        for field in decode.arrow_schema:
            reason = self._absent.get(field.name)
            if reason is None:
                column = fresh.column(field.name).combine_chunks()
            else:  # the pipeline cannot read it from the source either: keep the stored value
                column = pa.nulls(fresh.num_rows, field.type)
                if field.name in stored.column_names:
                    column = stored.column(field.name).combine_chunks().take(before)
                new = np.asarray(pc.is_null(before))
                if reason != NOT_IN_SOURCE:
                    unknown |= new
                if not field.nullable:
                    unknown |= np.asarray(pc.is_null(column))
            arrays.append(column)
        inserts = pa.scalar(int(RowKind.INSERT), pa.int8())
        kinds = pc.if_else(
            pc.is_null(before), inserts, pa.scalar(int(RowKind.UPDATE_AFTER), pa.int8())
        )
        hashes = np.asarray(fresh.column(KEY_HASH))
        excluded.add("a column has no rule by which it is read from the source", hashes[unknown])
        offsets = pa.array(np.arange(fresh.num_rows, dtype=np.int64))
        rows = pa.RecordBatch.from_arrays(
            [*arrays, kinds, offsets], names=[*decode.field_names, VALUE_KIND, OFFSET_COLUMN]
        ).filter(pa.array(~unknown))
        origin = pa.RecordBatch.from_arrays(
            [pa.array(["r"] * rows.num_rows, pa.string())], schema=origin_schema(["op"])
        )
        result = self._transform.apply(rows, origin, now_ms=self._clock.now_ms())
        if len(result.failed):
            positions = np.asarray(rows.column(OFFSET_COLUMN))
            excluded.add("a transform has no result", hashes[positions[result.failed]])
        output = pa.Table.from_batches([result.rows])
        mask = pc.is_in(output.column(VALUE_KIND), pa.array(list(map(int, _CHANGES)), pa.int8()))
        report.filtered += output.num_rows - pc.sum(mask).as_py() if output.num_rows else 0
        return output.filter(mask).drop_columns([OFFSET_COLUMN])

    def _retracted(self, stored: pa.Table, new_rows: pa.Table) -> pa.Table:
        """Stored rows whose primary key no new row has, as deletes."""
        stored = self._living(stored).select(self._table.schema.field_names)
        keys = self._table.schema.primary_keys
        old, new = (_hashes_of(rows, keys) for rows in (stored, new_rows))
        stored = stored.filter(pa.array(~np.isin(old, new)))
        kind = RowKind.DELETE
        if self._rule.soft_delete:
            kind = RowKind.UPDATE_AFTER
            at = stored.schema.get_field_index(self._rule.deleted_column)
            deleted = pa.array([True] * stored.num_rows, pa.bool_())
            stored = stored.set_column(at, stored.schema.field(at), deleted)
        kinds = pa.array([int(kind)] * stored.num_rows, pa.int8())
        schema = pa.schema([*self._table.schema.arrow_schema, new_rows.schema.field(VALUE_KIND)])
        return pa.Table.from_arrays([*stored.columns, kinds], schema=schema)

    def _living(self, stored: pa.Table) -> pa.Table:
        """Rows without those that are marked as deleted."""
        if not self._rule.soft_delete:
            return stored
        deleted = pc.fill_null(stored.column(self._rule.deleted_column), False)
        return stored.filter(pc.invert(deleted))


@dataclasses.dataclass(slots=True, eq=False)
class _Excluded:
    """Keys that are not repaired.

    Attributes:
        counts: of them by reason.
        keys: their hashes.
    """

    counts: Counter[str]
    keys: Hashes = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, reason: str, keys: Hashes) -> None:
        """Leave keys out."""
        new = np.setdiff1d(keys, self.keys)
        if len(new):
            self.counts[reason] += len(new)
            self.keys = np.union1d(self.keys, new)

    def without(self, rows: pa.Table) -> pa.Table:
        """Rows of other keys."""
        return rows.filter(pa.array(~np.isin(np.asarray(rows.column(KEY_HASH)), self.keys)))


def _keys_where(rows: pa.Table, column: str) -> Hashes:
    """Hashes of keys of rows in which a column is not null."""
    return np.asarray(rows.filter(pc.is_valid(rows.column(column))).column(KEY_HASH))


def _hashes_of(rows: pa.Table, names: Sequence[str]) -> Hashes:
    hashes = [column_hashes(rows.column(name).combine_chunks()) for name in names]
    return combined_hashes(hashes, rows.num_rows)
