//! A partition: an append-only log made of segments.
