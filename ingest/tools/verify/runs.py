# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify`: selects tables and their sources, compares them one by one."""

import dataclasses
import fnmatch
import importlib
import json
import logging
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.decode.events import SOURCE_TABLE_OPTION
from ingest.observe.observe import LAG_POLL_S
from ingest.source.open import LagProbe
from ingest.state.ownership import Parking, newest_note
from ingest.state.stream_state import CheckpointState, progress_of, read_offset_log
from ingest.tools.verify.compare import (
    KEY_HASH,
    Columns,
    Comparison,
    Counterpart,
    FilesSide,
    Find,
    PlannedColumns,
    Side,
    TableSide,
    compare,
    derived_columns,
    first_rows,
    parquet_schema,
    plan_columns,
)
from ingest.tools.verify.fitting import Way, way_of
from ingest.tools.verify.repair import (
    NOT_IN_SOURCE,
    Confirmed,
    Repair,
    TableOutcome,
    confirm,
    resume_killed,
)
from ingest.tools.verify.source_url import SourceUrl
from storage.catalog.catalog import Catalog
from storage.clock import Clock
from storage.errors import InvalidRequestError, LakewardError, NotFoundError, RetryableError
from storage.format.types.types import DataType
from storage.io.resolve import resolve_file_io
from storage.table.scan.predicate import And, Compare, IsNull, Op, Or, Predicate, parse_predicate
from storage.table.table import FileStoreTable

# Waiting until the lake has caught up with a position of the source.
#
# The lake knows Kafka's offsets, not the database's positions. So, in this order: the database's
# position is noted; a PostgreSQL replication slot, if one is named, must confirm it, else the
# connector is given some seconds; the ends of the topics are noted; the lake must reach these ends.
# The evidence is the table's own snapshots, the stream's note in the warehouse or, for batches
# without rows of the table, its checkpoint; or the status page of the pipeline.


_LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_POLL_S = 1.0
_LOG_EVERY_S = 15.0

Offsets = dict[tuple[str, str], int]


class Progress(Protocol):
    """The lag of the lake."""

    def note_ends(self) -> None:
        """Record the current end offsets of the topics."""

    def lag(self) -> Mapping[str, int]:
        """Records between the lake and the noted ends, by `topic/partition`; only above 0."""


class KafkaLag:
    """Ends from Kafka, the lake's offsets from the lake."""

    def __init__(self, settings: Settings, table: FileStoreTable, name: str) -> None:
        self._settings = settings
        self._name = name
        self._table = table
        self._stream = settings.pipeline.name
        self._ends: Offsets = {}

    def note_ends(self) -> None:
        """See `Progress`."""
        feeding = progress_of(self._table, self._stream)
        topics = set() if feeding is None else set(feeding.offsets)
        with LagProbe(self._settings.source) as probe:
            watermarks = probe.poll()
        self._ends = {
            (topic, str(partition)): high
            for (topic, partition), (low, high) in watermarks.items()
            if high > low and (not topics or topic in topics)
        }

    def lag(self) -> Mapping[str, int]:
        """See `Progress`.

        Raises:
            InvalidRequestError: the table is parked: it does not catch up.
        """
        reached = self._highest_offsets()
        return {
            f"{topic}/{partition}": end - reached.get((topic, partition), 0)
            for (topic, partition), end in self._ends.items()
            if end > reached.get((topic, partition), 0)
        }

    def _highest_offsets(self) -> Offsets:
        """The highest offsets that any of the witnesses reports."""
        reached: Offsets = {}
        for offsets in self._witnesses():
            for topic, parts in offsets.items():
                for partition, offset in parts.items():
                    if isinstance(offset, int):
                        key = (topic, str(partition))
                        reached[key] = max(offset, reached.get(key, 0))
        return reached

    def _witnesses(self) -> Iterator[Mapping[str, Any]]:
        warehouse = self._settings.sink.warehouse
        parking = Parking(self._table.file_io, warehouse, self._stream)
        parking.load()
        parked = parking.parked().get(self._name)
        if parked is not None:
            raise InvalidRequestError(
                "the table is parked, so it does not catch up",
                hint="resume it with `lakeward resume`, or verify without --wait-for",
                detail=parked.reason,
                table=self._name,
            )
        progress = progress_of(self._table, self._stream)
        if progress is not None:
            yield parking.of_present_topics(progress.offsets, progress.identifier)
        if self._name not in parking.catching_up:  # other tables' offsets are no evidence for it
            yield parking.common_floor
            yield from self._of_note(-1 if progress is None else progress.identifier)
        yield self._checkpoint() or {}

    def _of_note(self, identifier: int) -> Iterator[Mapping[str, Any]]:
        """Start offsets of the batch being committed; its end offsets if it is in the table."""
        warehouse = self._settings.sink.warehouse
        note = newest_note(self._table.file_io, warehouse, self._stream)
        if note is not None:
            committed = identifier >= note.identifier or self._name not in note.tables
            yield note.end if committed else note.start

    def _checkpoint(self) -> Mapping[str, Any] | None:
        """End offsets of the newest finished batch, if the checkpoint is on this machine."""
        checkpoint = Path(self._settings.pipeline.checkpoint)
        try:
            state = CheckpointState.load(checkpoint)
            if state is None or state.stream != self._stream:
                return None
            files = state.directory(checkpoint)
            names = [entry.name for entry in (files / "commits").iterdir()]
            batch_ids = [int(name) for name in names if name.isdecimal()]
            return read_offset_log(files, max(batch_ids)) if batch_ids else None
        except OSError:
            return None


class StatusLag:
    """Everything from the pipeline's status page."""

    def __init__(self, url: str, clock: Clock) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidRequestError("not the address of a status page", address=url)
        url = url.rstrip("/")
        self._url = url if url.endswith("/api/status") else f"{url}/api/status"
        self._clock = clock
        self._noted_s = 0.0

    def note_ends(self) -> None:
        """See `Progress`."""
        self._noted_s = self._clock.monotonic_s()

    def lag(self) -> Mapping[str, int]:
        """See `Progress`; the page polls the topics every `LAG_POLL_S`."""
        remaining_s = self._noted_s + LAG_POLL_S + 1 - self._clock.monotonic_s()
        if remaining_s > 0:
            self._clock.sleep(remaining_s)
        lags: dict[str, int] = {}
        for topic, parts in self._document().get("source", {}).items():
            for partition, facts in parts.items():
                lag = facts.get("lag")
                if lag is None:  # the page has no recent lag of the topic
                    lags[f"{topic}/{partition}"] = 1
                elif lag > 0:
                    lags[f"{topic}/{partition}"] = int(lag)
        return lags

    def _document(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:
                document = json.loads(answer.read())
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise RetryableError(
                "the pipeline's status page does not answer",
                hint="name it with --status-url, or give the configuration with -c",
                detail=str(error),
                address=self._url,
            ) from error
        if not isinstance(document, dict):
            raise RetryableError("not the status page of a pipeline", address=self._url)
        return document


@dataclasses.dataclass(slots=True, kw_only=True)
class LagWait:
    """Waits for lag 0 at a position.

    Attributes:
        progress: how far the lake is.
        position: returns the end of the source's log.
        is_confirmed: whether the connector has confirmed a position; None = unknown.
        clock: time.
        settle_s: time the connector gets to send, where that is unknown [s].
        timeout_s: when to give up [s].
    """

    progress: Progress
    position: Callable[[], str | None]
    is_confirmed: Callable[[str], bool] | None
    clock: Clock
    settle_s: float = 5.0
    timeout_s: float = 600.0

    def __call__(self) -> str | None:
        """Wait.

        Returns:
            The position that the lake has reached; None where the source has none.

        Raises:
            RetryableError: it took too long; says what is missing.
        """
        begun_s = self.clock.monotonic_s()
        position = self.position()
        if position is not None and self.is_confirmed is not None:
            is_confirmed, at = self.is_confirmed, position
            self._until(
                begun_s, lambda: {} if is_confirmed(at) else {"replication slot": 1}, position
            )
        else:
            self.clock.sleep(self.settle_s)
        self.progress.note_ends()
        self._until(begun_s, self.progress.lag, position)
        return position

    def _until(
        self, begun_s: float, lag: Callable[[], Mapping[str, int]], position: str | None
    ) -> None:
        logged_s = begun_s
        while True:
            lags = lag()
            if not lags:
                return
            now_s = self.clock.monotonic_s()
            text = ", ".join(f"{name} by {count}" for name, count in sorted(lags.items())[:5])
            if now_s - begun_s > self.timeout_s:
                raise RetryableError(
                    "the lake did not catch up with the source in time",
                    hint="see whether the connector and the pipeline run, or give --wait-timeout",
                    behind=text,
                    position=position,
                    waited_s=round(now_s - begun_s),
                )
            if now_s - logged_s >= _LOG_EVERY_S:
                logged_s = now_s
                _LOG.info("waiting for the lake", extra={"event": "waiting", "behind": text})
            self.clock.sleep(_POLL_S)


_TABLE_OF_WAREHOUSE = re.compile(r"^(.+):([^:/\\]+\.[^:/\\]+)$")
_GLOB = re.compile(r"[*?\[]")
_SHARED_PREFIX = "shared:"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a comparison.

    Attributes:
        source_table: name in the source; `{database}` and `{table}` are parts of the lake's name.
            None = the one recorded in the lake table.
        against: another table or Parquet files, instead of a database.
        key: columns that identify a row; none = the primary key.
        exclude: lake columns that are not compared.
        mask: columns whose values are not shown.
        where: SQL condition on rows of the source; of another table a condition as `where_lake`.
        where_lake: condition on rows of the lake.
        key_range: first and last value of the first key column; None = all.
        page_rows: rows of a page of the source, and of a range.
        rechecks: how often keys that differ are read again.
        recheck_wait_s: time between [s].
        examples_per_kind: keys shown of each kind.
        limit: stop looking for keys that differ after so many.
        wait: whether to wait for lag 0.
        wait_timeout_s: for how long at most [s].
        settle_s: time the connector gets to send [s].
        status_url: the pipeline's status page; None = lag from Kafka and the tables.
        slot: PostgreSQL replication slot of the connector.
        repair: whether rows that differ are written to the lake.
        dry_run: whether a repair only counts them.
    """

    source_table: str | None = None
    against: str | None = None
    key: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    where: str | None = None
    where_lake: Predicate | None = None
    key_range: tuple[str | None, str | None] | None = None
    page_rows: int = 10_000
    rechecks: int = 1
    recheck_wait_s: float = 0.0
    examples_per_kind: int = 10
    limit: int = 100_000
    wait: bool = False
    wait_timeout_s: float = 600.0
    settle_s: float = 5.0
    status_url: str | None = None
    slot: str | None = None
    repair: bool = False
    dry_run: bool = False


def opened_database(url: SourceUrl) -> Any:
    """The source database.

    Raises:
        InvalidRequestError: an optional package is missing, or the URL is invalid.
    """
    try:
        module = importlib.import_module("ingest.tools.verify.database")
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            "comparing with a database needs an optional package",
            hint="pip install 'lakeward[verify]'",
            package=error.name,
        ) from error
    return module.Database(url)


def selected_tables(catalog: Catalog, patterns: Sequence[str]) -> list[tuple[str, bool]]:
    """Names of the chosen tables, and whether each was named rather than matched.

    Raises:
        NotFoundError: a pattern matches no table.
    """
    tables: dict[str, bool] = {}
    for pattern in patterns:
        if not _GLOB.search(pattern):
            tables[pattern] = True
            continue
        names = [
            f"{database}.{name}"
            for database in catalog.list_databases()
            for name in catalog.list_tables(database)
        ]
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise NotFoundError("no table matches", pattern=pattern, warehouse=catalog.warehouse)
        for name in matching:
            tables.setdefault(name, False)
    return list(tables.items())


def verify_tables(
    catalog: Catalog,
    tables: Sequence[tuple[str, bool]],
    request: Request,
    *,
    database: Any,
    settings: Settings | None,
    clock: Clock,
) -> Iterator[TableOutcome]:
    """Compare tables, one after another; an error of one does not stop the others.

    Args:
        catalog: where the lake tables are.
        tables: as from `selected_tables`.
        request: how.
        database: the source database; None = `request.against`.
        settings: of the pipeline that fills the tables, if known.
    """
    for name, by_name in tables:
        begun_s = clock.monotonic_s()
        outcome = TableOutcome(table=name)
        try:
            _Comparison(catalog, name, request, database, settings, clock, outcome).run(by_name)
        except (LakewardError, OSError) as error:
            _LOG.debug("not compared", exc_info=error)
            outcome.error = error
        outcome.seconds = clock.monotonic_s() - begun_s
        yield outcome


class _Comparison:
    """One table; fills its outcome."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        request: Request,
        database: Any,
        settings: Settings | None,
        clock: Clock,
        outcome: TableOutcome,
    ) -> None:
        self._name = name
        self._request = request
        self._database = database
        self._settings = settings
        self._clock = clock
        self._outcome = outcome
        self._table = catalog.table(name)

    def run(self, required: bool) -> None:
        """Compare.

        Args:
            required: whether a table that cannot be compared is an error; else it is skipped.
        """
        outcome, request = self._outcome, self._request
        self._refuse_repair()
        source_name = ""
        if self._database is not None:
            source_name, problem = self._source_table()
            if problem and not required:
                outcome.skipped = problem
                return
            if problem:
                raise InvalidRequestError(
                    problem, hint="name it with --source-table", table=self._name
                )
        columns, source = self._open_sides(source_name, self._derived_columns())
        lake = TableSide(self._table, self._name, columns, self._lake_predicate(columns))
        outcome.source = source.label
        lag_wait = self._lag_wait()
        if lag_wait is not None:
            if request.repair and self._settings is not None:
                resume_killed(self._settings, self._table, self._name)
            outcome.position = lag_wait()
        lake.refresh()
        outcome.snapshot = lake.snapshot_id
        with tempfile.TemporaryDirectory(prefix="lakeward-verify-") as directory:
            comparison = compare(
                source,
                lake,
                columns,
                directory=Path(directory),
                rows_per_range=request.page_rows,
                limit=request.limit,
            )
            outcome.comparison = comparison
            if comparison.ranges_differing:
                self._confirm(source, lake, columns, comparison, lag_wait)

    def _confirm(
        self,
        source: Side,
        lake: TableSide,
        columns: Columns,
        comparison: Comparison,
        waited: LagWait | None,
    ) -> None:
        request, outcome = self._request, self._outcome
        confirmed = confirm(
            source,
            lake,
            columns,
            comparison,
            rounds=request.rechecks,
            wait=self._between(waited),
            examples_per_kind=request.examples_per_kind,
            masked=request.mask,
        )
        outcome.confirmed = confirmed
        if not request.rechecks:
            outcome.notes.append("keys that differ were not read again (--rechecks 0)")
        if request.repair and confirmed.kinds:
            self._repair(source, lake, columns, confirmed)

    def _repair(
        self, source: Side, lake: TableSide, columns: Columns, confirmed: Confirmed
    ) -> None:
        assert self._settings is not None, "checked before anything is read"
        assert confirmed.source is not None
        assert confirmed.lake is not None
        table = self._database.table(self._source_table()[0])
        find, ways = self._finder(table)
        repair = Repair(
            settings=self._settings,
            name=self._name,
            table=self._table,
            columns=columns,
            source=source,
            lake=lake,
            find=find,
            open_source=lambda read: self._database_side(table, read, ways),
            clock=self._clock,
        )
        names = [*columns.key_names, KEY_HASH]
        rows = pa.concat_tables([side.select(names) for side in (confirmed.source, confirmed.lake)])
        keys = first_rows(rows, np.array(list(confirmed.kinds), np.uint64))
        self._outcome.repair = repair.run(keys, dry_run=self._request.dry_run)

    def _between(self, waited: LagWait | None) -> Callable[[], None] | None:
        """What happens between the reads of the source and of the lake."""
        pause_s = self._request.recheck_wait_s
        if waited is None and not pause_s:
            return None

        def wait() -> None:
            self._clock.sleep(pause_s)
            if waited is not None:
                self._outcome.position = waited()

        return wait

    def _refuse_repair(self) -> None:
        """Refuse a repair for which something is missing.

        Raises:
            InvalidRequestError: it cannot be exact.
        """
        if not self._request.repair:
            return
        if self._settings is None:
            raise InvalidRequestError(
                "a repair needs the pipeline's transforms and its daemon",
                hint="give the configuration of the pipeline with -c",
                table=self._name,
            )
        if self._database.is_replica():
            raise InvalidRequestError(
                "the source is a read replica: it may lag behind what the lake has",
                hint="repair from the primary",
                table=self._name,
            )

    # --- the sides

    def _open_sides(self, source_name: str, derived: Mapping[str, str]) -> tuple[Columns, Side]:
        if self._database is not None:
            return self._of_database(source_name, derived)
        text = self._request.against or ""
        match = _TABLE_OF_WAREHOUSE.match(text)
        options = {} if self._settings is None else dict(self._settings.sink.options)
        if match is not None:
            warehouse, name = match.groups()
            options = options if warehouse.startswith("s3") else {}
            table = Catalog.open(warehouse, options).table(name)
            planned = self._planned(_by_name(table.schema.field_names), derived)
            rows = self._other_predicate(planned.columns)
            side = TableSide(table, text, planned.columns, rows, by_source_name=True)
            return planned.columns, side
        file_io, path = resolve_file_io(text, options if text.startswith("s3") else None)
        schema: pa.Schema = parquet_schema(file_io, path)
        planned = self._planned(_by_name(schema.names), derived)
        rows = self._other_predicate(planned.columns)
        return planned.columns, FilesSide(file_io, path, planned.columns, rows)

    def _of_database(self, source_name: str, derived: Mapping[str, str]) -> tuple[Columns, Side]:
        table = self._database.table(source_name)
        find, ways = self._finder(table)
        planned = self._planned((find, [column.name for column in table.columns]), derived)
        return planned.columns, self._database_side(table, planned.columns, ways)

    def _finder(self, table: Any) -> tuple[Find, dict[str, Way]]:
        """A function that looks up columns in the source; and how the columns it finds are read."""
        ways: dict[str, Way] = {}
        mapping = () if self._settings is None else self._settings.sink.type_mapping

        def find(name: str, type_: DataType) -> Counterpart | str:
            column = table.column(name)
            if column is None:
                return NOT_IN_SOURCE
            way = way_of(self._database.dialect, column, type_, mapping)
            if way.refusal:
                return way.refusal
            ways[name] = way
            return Counterpart(column.name, way.form)

        return find, ways

    def _database_side(self, table: Any, columns: Columns, ways: Mapping[str, Way]) -> Side:
        module = importlib.import_module("ingest.tools.verify.database")
        low, high = self._request.key_range or (None, None)
        side: Side = module.DatabaseSide(
            self._database,
            table,
            columns,
            ways,
            where=self._request.where,
            bounds=module.KeyBounds(low, high),
            page_rows=self._request.page_rows,
        )
        return side

    def _planned(
        self, finder: tuple[Find, Sequence[str]], derived: Mapping[str, str]
    ) -> PlannedColumns:
        find, names = finder
        planned = plan_columns(
            self._table.schema, find, names, key=self._request.key, without=derived
        )
        self._outcome.left_out = planned.left_out
        if planned.key_left_out and self._request.where_lake is None:
            self._outcome.notes.append(
                f"the key without {', '.join(planned.key_left_out)} may not be unique: "
                "choose the rows of one source table with --where-lake"
            )
        if not planned.columns.keyed:
            self._outcome.notes.append("without a key whole rows are compared, and not read again")
        return planned

    def _lake_predicate(self, columns: Columns) -> Predicate | None:
        parts = [] if self._request.where_lake is None else [self._request.where_lake]
        deleted = self._deleted_column()
        if deleted in self._table.schema.field_names:
            parts.append(Or((IsNull(deleted), Compare(Op.EQ, deleted, False))))
            self._outcome.notes.append(f"rows with {deleted} = true are left out")
        if self._request.key_range is not None:
            parts += self._bounds(columns.keys[0].name)
        return And(tuple(parts)) if parts else None

    def _other_predicate(self, columns: Columns) -> Predicate | None:
        """Rows of another table that count."""
        where = self._request.where
        parts = [] if where is None else [parse_predicate(where)]
        if self._request.key_range is not None:
            parts += self._bounds(columns.keys[0].source)
        return And(tuple(parts)) if parts else None

    def _bounds(self, column: str) -> list[Predicate]:
        low, high = self._request.key_range or (None, None)
        bounds: list[Predicate] = []
        if low is not None:
            bounds.append(Compare(Op.GE, column, low))
        if high is not None:
            bounds.append(Compare(Op.LE, column, high))
        return bounds

    # --- what the pipeline does to the table

    def _deleted_column(self) -> str:
        settings = self._settings
        if settings is None:
            return ""
        soft = settings.rule_value(self._name, lambda rule: rule.deletes) == "soft"
        return f"{settings.sink.metadata_prefix}deleted" if soft else ""

    def _derived_columns(self) -> dict[str, str]:
        settings = self._settings
        if settings is None:
            return derived_columns(excluded=self._request.exclude)
        condition = settings.rule_value(self._name, lambda rule: rule.filter)
        if condition and self._request.where is None:
            self._outcome.notes.append(
                f"the pipeline keeps rows with `{condition}` only: say it in SQL with --where"
            )
        return derived_columns(
            computed=settings.rule_value(self._name, lambda rule: rule.computed) or (),
            partition_by=settings.rule_value(self._name, lambda rule: rule.partition_by) or (),
            masked=settings.rule_value(self._name, lambda rule: rule.mask),
            excluded=self._request.exclude,
        )

    def _source_table(self) -> tuple[str, str]:
        """Name of the source table, or what is wrong."""
        template = self._request.source_table
        database, _, table = self._name.partition(".")
        if template is not None:
            return template.replace("{database}", database).replace("{table}", table), ""
        address = self._table.schema.options.get(SOURCE_TABLE_OPTION)
        if address is None:
            return "", "the table does not say which source table fills it"
        if address.startswith(_SHARED_PREFIX):
            return "", "several source tables fill the table"
        return ".".join(address.split(".")[-2:]), ""

    # --- waiting

    def _lag_wait(self) -> LagWait | None:
        request = self._request
        if not request.wait:
            return None
        database = self._database
        is_confirmed: Callable[[str], bool] | None = None
        if request.slot is not None and database is not None:
            slot = request.slot

            def confirmed(position: str) -> bool:
                return bool(database.has_confirmed(slot, position))

            is_confirmed = confirmed
        return LagWait(
            progress=self._progress(),
            position=(lambda: None) if database is None else database.position,
            is_confirmed=is_confirmed,
            clock=self._clock,
            settle_s=request.settle_s,
            timeout_s=request.wait_timeout_s,
        )

    def _progress(self) -> Progress:
        if self._request.status_url is not None:
            return StatusLag(self._request.status_url, self._clock)
        settings = self._settings
        if settings is None or not isinstance(settings.source, KafkaSourceSettings):
            raise InvalidRequestError(
                "the lag of the lake is unknown",
                hint="give the configuration of the pipeline with -c, or --status-url",
            )
        return KafkaLag(settings, self._table, self._name)


def _by_name(names: Sequence[str]) -> tuple[Find, Sequence[str]]:
    """Columns of another table, by their names; case counts."""

    def find(name: str, type_: DataType) -> Counterpart | str:
        del type_
        return Counterpart(name) if name in names else "not in the other table"

    return find, names
