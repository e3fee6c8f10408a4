//! Tests of the host planner.
