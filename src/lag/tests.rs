//! Worked examples of the figures, and monitors over a log in memory.

mod figures;
