# SPDX-License-Identifier: Apache-2.0
"""Data files in ORC."""
