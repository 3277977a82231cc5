# SPDX-License-Identifier: Apache-2.0
"""`lakeward plan`: preview of a pipeline from sampled records."""
