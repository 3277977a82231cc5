# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

from tests.e2e.kafka_broker import kafka_broker

__all__ = ["kafka_broker"]
