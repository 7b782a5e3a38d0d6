//! A segment: one `.log` file with its sparse indexes.
