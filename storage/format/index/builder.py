# SPDX-License-Identifier: Apache-2.0
"""The file indexes configured for a table, all built while a data file is written.

Source: FORMAT.md §10.1. `file-index.<type>.columns` names the columns of one type of index;
`m[k]` is the value of key `k` in the map column `m`. Settings of a column are
`file-index.<type>.<column>.<setting>`, those of a map column count for all its keys.
"""

import dataclasses
import functools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidOptionError
from storage.format.index.bloom import DEFAULT_FPP, DEFAULT_ITEMS, parameters
from storage.format.index.container import encode_container
from storage.format.index.kinds import BLOOM, INDEX_TYPES, can_index, takes
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataField, DataType, MapType, TypeRoot
from storage.options.options import TableOptions

_log = logging.getLogger(__name__)

_SETTING = re.compile(r"file-index\.([^.]+)\.([^.]+)\.([^.]+)\Z")
_MAP_KEY = re.compile(r"([^\[]*)\[(.*)\]\Z", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class FileIndexSpec:
    """One index configured for a table.

    Attributes:
        map_key: the key whose values are indexed, of a map column; None = the column itself.
        settings: parsed settings by name; those left out have their defaults.
    """

    index_type: str
    column: str
    map_key: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Column name inside the container."""
        return self.column if self.map_key is None else f"{self.column}[{self.map_key}]"

    @staticmethod
    def of(options: TableOptions) -> tuple["FileIndexSpec", ...]:
        """The indexes that the options of a table ask for, by type and then as listed.

        Raises:
            InvalidOptionError: an index type or setting is unknown, a value does not parse, or
                a setting is of a column that has no such index.
        """
        indexes: dict[tuple[str, str], dict[str, Any]] = {}
        for key, value in options.file_index_columns.items():
            kind = key.removeprefix("file-index.").removesuffix(".columns")
            if kind not in INDEX_TYPES:
                raise InvalidOptionError(
                    "unknown type of file index",
                    hint=f"one of {', '.join(INDEX_TYPES)}",
                    option=key,
                    found=kind,
                )
            for item in value.split(","):
                if not item.strip():
                    raise InvalidOptionError(
                        "a list of indexed columns has an empty item",
                        hint="give column names separated by commas",
                        option=key,
                        value=value,
                    )
                indexes[(kind, item.strip())] = {}
        _settle(indexes, options.file_index_settings)
        return tuple(_spec(kind, name, settings) for (kind, name), settings in indexes.items())

    def type_of(self, field: DataField) -> AtomicType:
        """The type of the indexed values.

        Raises:
            InvalidOptionError: values of this column cannot have this index.
        """
        value: DataType = field.type
        if self.map_key is not None:
            if not isinstance(value, MapType) or not _is_text(value.key):
                raise InvalidOptionError(
                    "an index of a map key needs a map column with text keys",
                    hint="name the column without `[...]`, or take a map with STRING keys",
                    column=self.name,
                    type=type_name(value),
                )
            value = value.value
        if not isinstance(value, AtomicType) or not can_index(self.index_type, value):
            raise InvalidOptionError(
                "a column of this type cannot have this file index",
                hint=f"`{self.index_type}` takes {takes(self.index_type)}",
                column=self.name,
                type=type_name(value),
                index=self.index_type,
            )
        return value

    def builder(self, type_: AtomicType) -> Any:
        """A new builder of this index."""
        kind = INDEX_TYPES[self.index_type]
        return kind.builder(
            type_, **{kind.settings[name][0]: value for name, value in self.settings.items()}
        )


def _is_text(type_: DataType) -> bool:
    return isinstance(type_, AtomicType) and type_.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


@functools.lru_cache(maxsize=1024)
def _warn_unknown(key: str) -> None:
    _log.warning("unknown setting of a file index is kept and has no effect option=`%s`", key)


def _settle(indexes: dict[tuple[str, str], dict[str, Any]], raw: Mapping[str, str]) -> None:
    """Assign column settings to the indexes; those of a map key override those of its map."""
    matches = [(match, value) for key, value in raw.items() if (match := _SETTING.match(key))]
    for match, value in sorted(matches, key=lambda item: "[" in item[0][2]):
        kind, column, setting = match.groups()
        targets = [
            settings
            for (index_type, name), settings in indexes.items()
            if index_type == kind and (name == column or name.startswith(f"{column}["))
        ]
        if not targets:
            raise InvalidOptionError(
                "setting for a column without this file index",
                hint=f"name the column in `file-index.{kind}.columns`, a map key as `map[key]`",
                option=match[0],
                column=column,
            )
        if setting not in INDEX_TYPES[kind].settings:
            _warn_unknown(match[0])
            continue
        try:
            parsed = INDEX_TYPES[kind].settings[setting][1](value)
        except ValueError as error:
            raise InvalidOptionError(
                "the value of an option cannot be read",
                hint=f"give {error}",
                option=match[0],
                value=value,
            ) from error
        for settings in targets:
            settings[setting] = parsed


def _spec(index_type: str, name: str, settings: Mapping[str, Any]) -> FileIndexSpec:
    match = _MAP_KEY.match(name)
    column, map_key = (name, None) if match is None else match.groups()
    if index_type == BLOOM:
        parameters(settings.get("items", DEFAULT_ITEMS), settings.get("fpp", DEFAULT_FPP))
    return FileIndexSpec(index_type, column, map_key, settings)


def check_file_indexes(fields: Sequence[DataField], options: TableOptions) -> None:
    """Check that a table with these value columns can have the file indexes its options ask for.

    Raises:
        InvalidOptionError: it cannot; names the column and the alternatives.
    """
    _indexed_columns(fields, FileIndexSpec.of(options))


def _indexed_columns(
    fields: Sequence[DataField], specs: Sequence[FileIndexSpec]
) -> list[tuple[FileIndexSpec, DataField, AtomicType]]:
    """Every index with its column and the type of its values."""
    by_name = {field.name: field for field in fields}
    columns = []
    for spec in specs:
        if spec.column not in by_name:
            raise InvalidOptionError(
                "file index on a column that does not exist",
                hint=f"the table has {', '.join(by_name)}",
                option=f"file-index.{spec.index_type}.columns",
                column=spec.column,
            )
        field = by_name[spec.column]
        columns.append((spec, field, spec.type_of(field)))
    return columns


class FileIndexBuilder:
    """Builds all indexes of one data file.

    Protocol: `add` the rows in file order, any number of times; then `finish` once.

    Args:
        fields: value columns in the order they are given to `add`.

    Raises:
        InvalidOptionError: a column is missing or cannot have its index.
    """

    def __init__(self, fields: Sequence[DataField], specs: Sequence[FileIndexSpec]) -> None:
        positions = {field.name: i for i, field in enumerate(fields)}
        self._builders = [
            (spec, positions[field.name], spec.builder(type_))
            for spec, field, type_ in _indexed_columns(fields, specs)
        ]
        self._rows = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add more rows.

        Columns are in the form of `arrow_types.arrow_type`, one per field.
        """
        if not columns or not len(columns[0]):
            return
        self._rows += len(columns[0])
        for spec, position, builder in self._builders:
            column = columns[position]
            if spec.map_key is not None:
                column = pc.map_lookup(column, spec.map_key, "first")
            builder.add(column)

    def payloads(self) -> dict[str, dict[str, bytes | None]]:
        """Index payloads by column and type; None = the index got no row."""
        result: dict[str, dict[str, bytes | None]] = {}
        for spec, _, builder in self._builders:
            payload = builder.finish() if self._rows or spec.map_key is None else None
            if payload is None and self._rows:
                _log.warning(
                    "no %s index was written for this column: it holds -2^63 column=`%s`",
                    spec.index_type,
                    spec.name,
                )
                continue
            result.setdefault(spec.name, {})[spec.index_type] = payload
        return result

    def finish(self) -> bytes:
        """The container, for the manifest or a file beside the data file."""
        return encode_container(self.payloads())
