# SPDX-License-Identifier: Apache-2.0
"""A running daemon under load with dedicated compaction beside it; see `soak`."""
