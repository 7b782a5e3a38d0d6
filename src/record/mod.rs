//! Kafka's record batches: parsing, checking, decoding, building.
