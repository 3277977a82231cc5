# SPDX-License-Identifier: Apache-2.0
"""What a decoder knows of the schemas that records name: readers, lanes and Connect schemas.

Made once per id, from the registry's answer; a schema that cannot be decoded is remembered too.
"""

import functools
from collections.abc import Callable, Iterator

import msgspec

from ingest.decode.avro.connect_schema import AvroSchema, SchemaTextError, parse_schema
from ingest.decode.avro.lanes import EnvelopeLanes
from ingest.decode.avro.values import AvroValueError, ValueReader, reader_of, to_json
from ingest.decode.json.schema_block import SchemaBlock, parse_block
from ingest.decode.json.single_event import EventRefusedError
from ingest.decode.registry.client import AVRO, RegisteredSchema, SchemaId, UnknownSchemaError

__all__ = ["WriterSchema", "WriterSchemas"]

_BARE_BLOCK = b'{"schema":null,"payload":'


class WriterSchema:
    """A schema that records were written with.

    Attributes:
        schema: parsed.
        key_names: columns that were a key of any target of its events: of `before`, the fast path
            decodes only these.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.key_names: frozenset[str] = frozenset()

    @functools.cached_property
    def read(self) -> ValueReader:
        """Reads one value."""
        return reader_of(self.schema.tree)

    @functools.cached_property
    def lanes(self) -> EnvelopeLanes | None:
        """Decodes many row events; None when the schema is not one of those."""
        return EnvelopeLanes.of(self.schema)

    @functools.cached_property
    def block(self) -> SchemaBlock:
        """As a schema block."""
        return parse_block(self.schema.block)

    def as_json(self, data: bytes, start: int) -> bytes:
        """The JSON message, schema block included, that says the same.

        Raises:
            EventRefusedError: the bytes are no value of the schema.
        """
        return b'{"schema":' + self.schema.block + b',"payload":' + self._json(data, start) + b"}"

    def as_bare_json(self, data: bytes, start: int) -> bytes:
        """The same without a schema block."""
        return _BARE_BLOCK + self._json(data, start) + b"}"

    def _json(self, data: bytes, start: int) -> bytes:
        try:
            return to_json(self.read, data, start)
        except AvroValueError as error:
            raise EventRefusedError("avro", f"not a value of its schema: {error}") from None


class WriterSchemas:
    """Writer schemas by id.

    Args:
        fetch: reads from the registry (`SchemaRegistry.schema`), which caches schemas.
    """

    def __init__(self, fetch: Callable[[SchemaId], RegisteredSchema]) -> None:
        self._fetch = fetch
        self._known: dict[SchemaId, WriterSchema | EventRefusedError] = {}

    def of(self, schema_id: SchemaId, subject: str) -> WriterSchema:
        """The schema of an id.

        Args:
            schema_id: of the record.
            subject: of the record, for messages: under which the schema is registered.

        Raises:
            EventRefusedError: class `schema_id`: the registry does not know it (requested again
                next time); class `avro`: it cannot be decoded.
            RetryableError, AccessDeniedError, InvalidRequestError: of the registry.
        """
        found = self._known.get(schema_id)
        if found is None:
            try:
                registered = self._fetch(schema_id)
            except UnknownSchemaError as error:
                raise EventRefusedError("schema_id", f"{error} subject=`{subject}`") from None
            found = self._known[schema_id] = _parsed(schema_id, registered)
        if isinstance(found, EventRefusedError):
            raise found
        return found


def _parsed(schema_id: SchemaId, registered: RegisteredSchema) -> WriterSchema | EventRefusedError:
    if registered.kind != AVRO:
        return EventRefusedError(
            "avro",
            f"schema {schema_id} is {registered.kind}, not Avro, which is not supported: set the "
            "producer's converter or serializer to Avro's",
        )
    try:
        parsed = WriterSchema(
            parse_schema(registered.text, dict.fromkeys(_texts(registered.references)))
        )
        _ = parsed.read, parsed.block
    except (SchemaTextError, msgspec.MsgspecError, LookupError, RecursionError) as error:
        return EventRefusedError("avro", f"schema {schema_id} cannot be decoded: {error}")
    return parsed


def _texts(references: tuple[RegisteredSchema, ...]) -> Iterator[str]:
    for reference in references:
        yield from _texts(reference.references)
        yield reference.text
