# SPDX-License-Identifier: Apache-2.0
"""Streams into one real table, of rows that are given as JSON text: every digit counts."""

import re

from ingest.source.records import RawBatch
from storage.format.types.types import type_name
from tests.unit.ingest.debezium_events import SOURCE, dumps
from tests.unit.ingest.local_stream import LocalStream

__all__ = ["DIALECTS", "ItemStream", "changed"]

TOPIC = "src.shop.items"
CONFIG = """
source: {{type: files, path: /nowhere, format: {format}}}
sink: {{warehouse: "WAREHOUSE"{sink}}}
pipeline: {{name: test{pipeline}}}
tables: [{{match: '*', primary.key: [id]{rule}}}]
"""

DIALECTS = ["debezium-json", "debezium-flat", "maxwell-json", "ogg-json", "canal-json"]
DIALECTS += ["aws-dms-json"]
"""Those whose deletes bring the row before."""

_FORMS = {
    "debezium-json": b'{"op":"%(op)s","source":@source,"before":%(before)s,"after":%(after)s}',
    "debezium-flat": b'%(row)s,"__op":"%(op)s","__deleted":"%(gone)s"}',
    "maxwell-json": b'{"type":"%(verb)s","database":"shop","table":"items","ts":5,'
    b'"data":%(row)s,"old":%(old)s}',
    "ogg-json": b'{"op_type":"%(letter)s","table":"SHOP.items","before":%(before)s,'
    b'"after":%(after)s}',
    "canal-json": b'{"type":"%(VERB)s","database":"shop","table":"items","es":5,'
    b'"mysqlType":{%(types)s},"data":[%(row)s],"old":[%(old)s]}',
    "aws-dms-json": b'{"metadata":{"operation":"%(verb)s","record-type":"data",'
    b'"schema-name":"shop","table-name":"items"},"data":%(row)s,"before-image":%(old)s}',
    "upsert-json": b"%(row)s",
}
_NAME = re.compile(rb'"(id|n|name|more)":')
_VERBS = {b"c": b"insert", b"u": b"update", b"d": b"delete"}
_LETTERS = {b"c": b"I", b"u": b"U", b"d": b"D"}


def _type(name):
    return b"text" if name == b"name" else b"bigint"


def changed(form, op, row, before=None):
    """A message about a row.

    Args:
        form: name of the format.
        op: `c`, `u` or `d`.
        row: JSON text of the row after, of a delete the row before.
        before: of an update the row before.
    """
    code, row = op.encode(), row if isinstance(row, bytes) else row.encode()
    old = b"null" if before is None else before.encode()
    verb = _VERBS[code]
    parts = {
        b"op": code,
        b"before": row if op == "d" else old,
        b"after": b"null" if op == "d" else row,
        b"row": row[:-1] if form == "debezium-flat" else row,
        b"old": old,
        b"gone": b"true" if op == "d" else b"false",
        b"verb": verb,
        b"VERB": verb.upper(),
        b"letter": _LETTERS[code],
        b"types": b",".join(b'"%s":"%s"' % (name, _type(name)) for name in _NAME.findall(row)),
    }
    text = _FORMS[form] % parts
    source = dumps({**SOURCE, "name": "src", "db": "shop", "schema": "", "table": "items"})
    return text.replace(b"@source", source)


class ItemStream:
    """Batches of values into one table."""

    def __init__(self, directory, form, *, rule="", sink="", pipeline=""):
        directory.mkdir(exist_ok=True)
        config = CONFIG.format(format=form, rule=rule, sink=sink, pipeline=pipeline)
        self.form = form
        self.local = LocalStream(directory, config)
        self.offset = self.number = 0

    def put(self, *rows):
        """Insert rows."""
        self.run(*(changed(self.form, "c", row) for row in rows))

    def delete(self, *rows):
        self.run(*(changed(self.form, "d", row) for row in rows))

    def update(self, before, after):
        self.run(changed(self.form, "u", after, before))

    def run(self, *values, keys=None):
        offsets = list(range(self.offset, self.offset + len(values)))
        raw = RawBatch(TOPIC, 0, offsets, keys or [None] * len(values), list(values))
        self.local.run(self.number, {(TOPIC, 0): [raw]})
        self.offset += len(values)
        self.number += 1

    @property
    def name(self):
        (name,) = (n for n in self.local.book.schema_ids() if not n.startswith("lakeward."))
        return name

    @property
    def table(self):
        return self.local.table(self.name)

    def rows(self):
        return [tuple(row.values()) for row in self.local.rows(self.name)]

    def types(self):
        fields = self.table.schema.fields
        return {field.name: type_name(field.type).removesuffix(" NOT NULL") for field in fields}

    def bad(self):
        if "lakeward._quarantine" not in self.local.book.schema_ids():
            return []
        found = self.local.table("lakeward._quarantine").to_arrow().to_pylist()
        return [row["error_class"] for row in sorted(found, key=lambda row: row["offset"])]

    def errors(self):
        found = self.local.table("lakeward._quarantine").to_arrow().to_pylist()
        return [row["error"] for row in sorted(found, key=lambda row: row["offset"])]
