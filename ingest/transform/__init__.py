# SPDX-License-Identifier: Apache-2.0
"""Row transforms: expressions, computed columns, filters, masks, metadata columns, soft deletes.

Pure: Arrow record batches in, record batches out; independent of Spark and Kafka.
"""
