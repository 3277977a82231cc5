# SPDX-License-Identifier: Apache-2.0
"""Avro object container files, encoded and decoded by the column."""
