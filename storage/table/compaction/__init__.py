# SPDX-License-Identifier: Apache-2.0
"""Dedicated compaction of tables."""
