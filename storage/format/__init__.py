# SPDX-License-Identifier: Apache-2.0
"""What the bytes mean: no decisions, no I/O except in the stores and data files."""
