# SPDX-License-Identifier: Apache-2.0
"""What a pipeline would make of its source, before it runs: `lakeward plan`."""
