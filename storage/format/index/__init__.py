# SPDX-License-Identifier: Apache-2.0
"""Indexes: file indexes of single data files, hash indexes and deletion vectors of buckets."""
