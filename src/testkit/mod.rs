//! Conformance suites for the traits that a host can implement.
