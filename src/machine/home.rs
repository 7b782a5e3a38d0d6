//! Which partition of a coordinators' topic keeps what belongs to a name: a group, or a transactional id.

/// Java's hash of the name, without its sign, modulo the number of partitions. (Kafka takes 0 for the one hash that has
/// no positive counterpart.)
pub(crate) fn partition_of(name: &str, partitions: u32) -> u32 {
    let hash = name.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0).unsigned_abs() % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_partition_that_kafka_gives_it() {
        // From Kafka: "grp" hashes to 102629, "my-group" to -1906497762.
        assert_eq!(["grp", "my-group", ""].map(|name| partition_of(name, 50)), [29, 12, 0]);
        // Java's best known text with the least hash there is.
        assert_eq!(partition_of("polygenelubricants", 50), 0);
        // A character outside of the first plane is two units of Java's.
        assert_eq!(partition_of("\u{1f600}", 1 << 31), 0xd83d * 31 + 0xde00);
    }
}
