# SPDX-License-Identifier: Apache-2.0
"""Tables partitioned by every type, with values that file systems and paths do not like."""

import datetime
import decimal
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import VALUE_KIND
from storage.table.scan.predicate import Compare, IsNull, Op
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, reopened

moment = datetime.datetime.fromisoformat
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 0],
    "INT": [-(2**31), 42],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [0.1, -0.0, 1.0e10, 1.17549435e-38, float("inf"), float("nan")],
    "DOUBLE": [0.1, -0.0, 1.0e10, 4.9e-324, 2.0e-3, 1.0e-5, float("-inf"), float("nan")],
    "DECIMAL(10, 2)": [decimal.Decimal("1.50"), decimal.Decimal("-0.01")],
    "DECIMAL(38, 10)": [decimal.Decimal("1E-10"), decimal.Decimal("12345678901234567890.5")],
    "DATE": [datetime.date(2024, 5, 14), datetime.date(1, 1, 1)],
    "TIME(0)": [datetime.time(12, 34, 56), datetime.time(0)],
    "TIME(3)": [datetime.time(12, 34, 56, 789_000)],
    "TIMESTAMP(0)": [moment("2024-05-14T13:00"), moment("1969-12-31T01:00")],
    "TIMESTAMP(3)": [moment("2024-05-14T13:34:56.001")],
    "TIMESTAMP(6)": [moment("2024-05-14T13:34:56.123456")],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [moment("1969-12-31T23:59:59.999999+00:00")],
    "CHAR(3)": ["abc", "a b"],
    "VARCHAR(400)": [
        *("", " ", "\t\n", "a/b", "..", ".", "a=b%2F", "*?:\\\"'{}[]^#", "\x00\x1f\x7f"),
        *("中文 – ελληνικά", "\U0001f600", "\u2028\u00a0", "é" * 60, "x" * 240),
        *("__DEFAULT_PARTITION__", "null", "NULL", "$(touch x);`y`&|<>", "~", "-rf"),
    ],
    "BINARY(2)": [b"\x01a"],
    "BYTES": [b"", b"a/b", b"\xff\x00", "ü".encode()],
}
NO_TEXT = ("BINARY(2)", "BYTES")
"""Types without a stable text in legacy names."""


def partitioned(root: pathlib.Path, type_: str, *, keyed: bool, legacy: bool) -> FileStoreTable:
    return make_table(
        root,
        columns=(("p", type_ if not keyed else f"{type_} NOT NULL"), ("v", "INT")),
        keys=("p", "v") if keyed else (),
        partitions=("p",),
        options={
            "bucket": "1" if keyed else "-1",
            "partition.legacy-name": str(legacy).lower(),
        },
    )


def write_values(table: FileStoreTable, values: list[Any]) -> pa.Table:
    fields = table.schema.arrow_schema
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(values, fields.field("p").type),
            pa.array(range(len(values)), pa.int32()),
            pa.array([0] * len(values), pa.int8()),
        ],
        names=["p", "v", VALUE_KIND],
    )
    with table.new_write("user") as writer:
        writer.write(batch)
        table.new_commit("user").commit(writer.prepare_commit(), 1)
    return pa.table({"p": batch.column(0), "v": batch.column(1)})


def by_v(rows: pa.Table) -> list[str]:
    return [repr(value) for value in rows.sort_by("v").column("p").to_pylist()]


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("type_", VALUES)
def test_every_value_comes_back(
    tmp_path: pathlib.Path, type_: str, keyed: bool, legacy: bool
) -> None:
    table = partitioned(tmp_path, type_, keyed=keyed, legacy=legacy)
    values = VALUES[type_] + ([] if keyed else [None])
    if legacy and type_ in NO_TEXT:
        with pytest.raises(UnsupportedFeatureError, match="legacy-name"):
            write_values(table, values)
        return
    written = write_values(table, values)
    again = reopened(table)
    assert by_v(again.to_arrow()) == by_v(written)
    for value in written.column("p").to_pylist()[-4:]:
        if value != value:
            continue  # NaN equals nothing
        wanted = IsNull("p") if value is None else Compare(Op.EQ, "p", value)
        found = again.to_arrow(filter=wanted).column("p").to_pylist()
        assert value in found


def test_nothing_is_written_outside_of_the_table(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path / "warehouse", "VARCHAR(400)", keyed=False, legacy=True)
    write_values(table, VALUES["VARCHAR(400)"])
    assert [path.name for path in tmp_path.iterdir()] == ["warehouse"]
    root = pathlib.Path(table.layout.root)
    folders = [path for path in root.iterdir() if path.name.startswith("p=")]
    assert all((folder / "bucket-0").is_dir() for folder in folders)


def test_null_empty_and_blank_share_a_directory_but_stay_apart(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path, "STRING", keyed=False, legacy=True)
    write_values(table, [None, "", "  ", "__DEFAULT_PARTITION__"])
    root = pathlib.Path(table.layout.root)
    assert [path.name for path in root.glob("p=*")] == ["p=__DEFAULT_PARTITION__"]
    assert table.to_arrow(filter=IsNull("p")).column("v").to_pylist() == [0]
    assert table.to_arrow(filter=Compare(Op.EQ, "p", "")).column("v").to_pylist() == [1]
    assert table.to_arrow(filter=Compare(Op.EQ, "p", "  ")).column("v").to_pylist() == [2]


def test_a_value_too_long_for_a_file_name_is_refused_clearly(tmp_path: pathlib.Path) -> None:
    table = partitioned(tmp_path, "STRING", keyed=False, legacy=True)
    with pytest.raises(InvalidRequestError, match="too long"):
        write_values(table, ["x" * 300])
