# SPDX-License-Identifier: Apache-2.0
"""TRUNCATE events of the source: tables lose all rows in a second run of the batch."""
