# SPDX-License-Identifier: Apache-2.0
"""Requests for Debezium snapshots, and their progress."""
