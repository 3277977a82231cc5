# SPDX-License-Identifier: Apache-2.0
"""Requests to a running stream: files in the warehouse, handled between two batches."""
