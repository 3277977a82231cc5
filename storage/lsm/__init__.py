# SPDX-License-Identifier: Apache-2.0
"""The log-structured merge tree of one bucket: key order, levels, compaction, merging, writing."""
