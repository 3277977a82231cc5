# SPDX-License-Identifier: Apache-2.0
"""One micro-batch: plan, map side, reduce side, commit, report."""
