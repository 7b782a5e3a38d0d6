//! Leader epochs and where each began.
