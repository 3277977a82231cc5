# SPDX-License-Identifier: Apache-2.0
"""A lake table and a SQLite database beside it, filled by the test, compared by `run`."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ingest.cli import main as cli
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from tests.table_kit import rows_batch


class Pair:
    """`shop.t` in a lake and `t` in SQLite."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self.database = folder / "source.db"
        self.catalog = FileSystemCatalog(str(self.warehouse), file_io=LocalFileIO(durable=False))
        self.writes = 0

    @property
    def url(self) -> str:
        return f"sqlite:///{self.database}"

    def lake(
        self,
        columns: Sequence[tuple[str, Any]],
        rows: Iterable[Sequence[Any]] = (),
        *,
        keys: Sequence[str] = ("id",),
        partitions: Sequence[str] = (),
        name: str = "shop.t",
        options: dict[str, str] | None = None,
    ) -> Any:
        schema = new_schema(
            [(column, parse_type(text)) for column, text in columns],
            primary_keys=keys,
            partition_keys=partitions,
            options={"bucket": "2" if keys else "-1", **(options or {})},
            now_ms=0,
        )
        table = self.catalog.create_table(name, schema)
        self.put(table, rows)
        return table

    def put(self, table: Any, rows: Iterable[Sequence[Any]], kind: str = "+I") -> None:
        made = [[kind, *row] for row in rows]
        if made:
            self.writes += 1
            with table.new_write("test") as write:
                write.write(rows_batch(table, made))
                messages = write.prepare_commit()
            table.new_commit("test").commit(messages, self.writes)

    def source(self, *statements: str, rows: Iterable[Sequence[Any]] = (), name: str = "t") -> None:
        connection = sqlite3.connect(self.database)
        try:
            for statement in statements:
                connection.execute(statement)
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(f'INSERT INTO "{name}" VALUES ({marks})', row)
            connection.commit()
        finally:
            connection.close()

    def arguments(self, *more: str, table: str = "shop.t") -> list[str]:
        given = ["verify", "--warehouse", str(self.warehouse), table]
        if not any(each in more for each in ("--source", "--against")):
            given += ["--source", self.url]
        if "--source-table" not in more and "--against" not in more:
            given += ["--source-table", "t"]
        return [*given, "--json", *more]

    def run(self, capsys: Any, *more: str, table: str = "shop.t") -> tuple[int, dict[str, Any]]:
        code = cli.main(self.arguments(*more, table=table))
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        return code, json.loads(lines[0]) if lines else json.loads(captured.err.splitlines()[-1])
