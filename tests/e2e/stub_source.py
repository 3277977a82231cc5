# SPDX-License-Identifier: Apache-2.0
"""The stream's data source without decoding: a chunk holds the offsets and values it read.

A module of its own, because Spark's planner and worker processes import it.
"""

import json
from collections.abc import Iterator

import pyarrow as pa

from ingest.pipeline.exchange import CHUNK_ARROW_SCHEMA
from ingest.pipeline.spark_source import LakewardCdcReader, LakewardCdcSource
from ingest.source.open import open_ranges


class StubSource(LakewardCdcSource):
    @classmethod
    def name(cls) -> str:
        return "lakeward_cdc_stub"

    def streamReader(self, schema) -> LakewardCdcReader:
        del schema
        return StubReader({name: str(self.options[name]) for name in self.options})


class StubReader(LakewardCdcReader):
    def read(self, partition) -> Iterator[pa.RecordBatch]:
        for piece, batches in open_ranges(partition.ranges, self._planning().settings):
            for batch in batches:
                values = [value.decode() for value in batch.values]
                row = {
                    "kind": 0,
                    "topic": batch.topic,
                    "source_partition": batch.partition,
                    "first_offset": piece.start,
                    "payload": json.dumps([batch.offsets, values]).encode(),
                }
                yield pa.RecordBatch.from_pylist([row], CHUNK_ARROW_SCHEMA)
