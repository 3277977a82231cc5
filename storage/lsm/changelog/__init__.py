# SPDX-License-Identifier: Apache-2.0
"""Changelog producers: what a flush or a compaction emits."""
