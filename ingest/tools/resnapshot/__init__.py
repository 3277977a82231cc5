# SPDX-License-Identifier: Apache-2.0
"""Asking Debezium for a new snapshot, and following it."""
