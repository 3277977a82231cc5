# SPDX-License-Identifier: Apache-2.0
"""State of a stream: its tables, offsets, ownership, parked tables."""
