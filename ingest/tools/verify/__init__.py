# SPDX-License-Identifier: Apache-2.0
"""Comparison of a lake table with its source database, another table, or Parquet files."""
