# SPDX-License-Identifier: Apache-2.0
"""Changing single rows of a table: DELETE, UPDATE, MERGE."""
