# SPDX-License-Identifier: Apache-2.0
"""Request a new snapshot of Debezium, and follow it."""
