# SPDX-License-Identifier: Apache-2.0
"""Data files: reading and writing them in any format."""
