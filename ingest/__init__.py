# SPDX-License-Identifier: Apache-2.0
"""The daemon: sources, decoding, the micro-batch on Spark, quarantine, telemetry, commands."""
