# SPDX-License-Identifier: Apache-2.0
"""Records that cannot become rows: their classes, their table, their copies, their limits."""
