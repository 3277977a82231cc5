# SPDX-License-Identifier: Apache-2.0
"""`lakeward demo`: a shop's change stream through the real pipeline."""
