# SPDX-License-Identifier: Apache-2.0
"""The dialect: sqlglot's Spark, with the statements of Flink and of Paimon's tables."""
