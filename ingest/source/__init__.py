# SPDX-License-Identifier: Apache-2.0
"""Sources: Kafka topics and directories of events, planned as exact ranges of offsets."""
