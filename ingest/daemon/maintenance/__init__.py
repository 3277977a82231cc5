# SPDX-License-Identifier: Apache-2.0
"""Maintenance in the background: compaction, expiry, orphan files."""
