# SPDX-License-Identifier: Apache-2.0
"""HDFS through its HTTP interface."""
