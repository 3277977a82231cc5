# SPDX-License-Identifier: Apache-2.0
"""Rows as bytes and hashes: BinaryRow, buckets, key hashes, statistics."""
