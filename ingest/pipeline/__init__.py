# SPDX-License-Identifier: Apache-2.0
"""The way of one micro-batch: plan, map side, reduce side, commit, report."""
