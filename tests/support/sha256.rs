//! SHA-256, to compare long values with the digests that a fixture has of them. Not for secrets.

/// The digest of `bytes`, in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let (constants, mut state) = (fractions::<64>(f64::cbrt), fractions::<8>(f64::sqrt));
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((8 * bytes.len() as u64).to_be_bytes());
    for block in padded.as_chunks::<64>().0 {
        compress(&mut state, block, &constants);
    }
    state.map(|word| format!("{word:08x}")).concat()
}

/// The first 32 bits of the fractions of a root of the first primes, where the constants come from.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction times 2^32 is a u32")]
fn fractions<const N: usize>(root: fn(f64) -> f64) -> [u32; N] {
    let is_prime = |number: &u32| (2..*number).take_while(|d| d * d <= *number).all(|d| !number.is_multiple_of(d));
    let mut primes = (2..).filter(is_prime).map(f64::from);
    std::array::from_fn(|_| primes.next().map_or(0, |prime| (root(prime).fract() * 2_f64.powi(32)) as u32))
}

fn compress(state: &mut [u32], block: &[u8; 64], constants: &[u32]) {
    let mut words: Vec<u32> = block.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    for at in 16..64 {
        let (early, late) = (words[at - 15], words[at - 2]);
        let small0 = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
        let small1 = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
        words.push(words[at - 16].wrapping_add(small0).wrapping_add(words[at - 7]).wrapping_add(small1));
    }
    let mut work = state.to_vec();
    for (word, constant) in words.iter().zip(constants) {
        let (a, e) = (work[0], work[4]);
        let sum1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & work[5]) ^ (!e & work[6]);
        let first = [work[7], sum1, choice, *constant, *word].into_iter().fold(0, u32::wrapping_add);
        let sum0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & work[1]) ^ (a & work[2]) ^ (work[1] & work[2]);
        work.rotate_right(1);
        work[4] = work[4].wrapping_add(first);
        work[0] = first.wrapping_add(sum0).wrapping_add(majority);
    }
    for (sum, word) in state.iter_mut().zip(work) {
        *sum = sum.wrapping_add(word);
    }
}
