# SPDX-License-Identifier: Apache-2.0
"""Options, and the columns that go with them, of tables in more than one story."""

LOOKUP = {"changelog-producer": "lookup"}
FULL_COMPACTION = {"changelog-producer": "full-compaction"}
INPUT = {"changelog-producer": "input"}
VECTORS = {"deletion-vectors.enabled": "true"}
DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}
FIRST_ROW = {"merge-engine": "first-row"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
SUM_COLUMNS = (("k", "BIGINT"), ("v", "BIGINT"))
PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
PARTIAL_COLUMNS = (("k", "BIGINT"), ("a", "STRING"), ("b", "STRING"))
