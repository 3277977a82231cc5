# SPDX-License-Identifier: Apache-2.0
"""Lakeward beside Flink + Paimon on the same topic: `make bench-peers`."""
