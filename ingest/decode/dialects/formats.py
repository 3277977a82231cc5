# SPDX-License-Identifier: Apache-2.0
"""The event formats that share one decoder, by the names that settings use (`config.choices`).

`DIALECTS[name](DialectOptions(...), resolve)` makes a decoder with the contract of `events`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ingest.decode.dialects.canal import CanalJson
from ingest.decode.dialects.debezium_flat import DebeziumFlat
from ingest.decode.dialects.dms import DmsJson
from ingest.decode.dialects.maxwell import MaxwellJson
from ingest.decode.dialects.ogg import OggJson
from ingest.decode.dialects.plain import PlainJson
from ingest.decode.dialects.upsert import UpsertJson
from ingest.decode.json.envelopes import Dialect

__all__ = ["DIALECTS"]

DIALECTS: Mapping[str, type[Dialect]] = MappingProxyType(
    {
        "debezium-flat": DebeziumFlat,
        "upsert-json": UpsertJson,
        "canal-json": CanalJson,
        "maxwell-json": MaxwellJson,
        "ogg-json": OggJson,
        "aws-dms-json": DmsJson,
        "json": PlainJson,
    }
)
