# SPDX-License-Identifier: Apache-2.0
"""The event formats that share one decoder, by the names that settings use (`config.choices`).

`DIALECTS[name](DialectOptions(...), resolve)` makes a decoder with the contract of `events`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ingest.decode.dialects.canal import CanalJsonDecoder
from ingest.decode.dialects.debezium_flat import DebeziumFlatDecoder
from ingest.decode.dialects.dms import DmsJsonDecoder
from ingest.decode.dialects.maxwell import MaxwellJsonDecoder
from ingest.decode.dialects.ogg import OggJsonDecoder
from ingest.decode.dialects.plain import PlainJsonDecoder
from ingest.decode.dialects.upsert import UpsertJsonDecoder
from ingest.decode.json.envelope_decoder import EnvelopeDecoder

__all__ = ["DIALECTS"]

DIALECTS: Mapping[str, type[EnvelopeDecoder]] = MappingProxyType(
    {
        "debezium-flat": DebeziumFlatDecoder,
        "upsert-json": UpsertJsonDecoder,
        "canal-json": CanalJsonDecoder,
        "maxwell-json": MaxwellJsonDecoder,
        "ogg-json": OggJsonDecoder,
        "aws-dms-json": DmsJsonDecoder,
        "json": PlainJsonDecoder,
    }
)
