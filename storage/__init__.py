# SPDX-License-Identifier: Apache-2.0
"""The Paimon table format and its merge tree. Knows nothing of Spark, Kafka or Prometheus."""
