//! The hash of a key. It decides in which key group an entry is stored and, with that, whether a
//! snapshot can be restored: so the hasher is our own and never changes with a dependency, and
//! golden values pin it.
//!
//! Integers, `str` and bytes hash alike on every machine. Slices of wider integers do not: the
//! standard library hands them over as raw memory. What a `#[derive(Hash)]` writes is the standard
//! library's affair too; should it ever change, a restore notices that keys sit in foreign groups.

use std::hash::{Hash, Hasher};

/// The hash of a key: its low 32 bits choose the key group, the lowest of them the piece, its high
/// bits the slot in the piece's table, so that the keys of a piece still spread over the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// A hash of no key in particular.
    pub(crate) const ZERO: Self = Self(0);

    /// The hash of `key`.
    #[inline]
    pub fn of<K: Hash + ?Sized>(key: &K) -> Self {
        let mut hasher = StableHasher::default();
        key.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// The whole hash.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The hash with its lowest bit first. In this order, keys that have their low bits in common
    /// stand together.
    #[inline]
    pub const fn order(self) -> u64 {
        self.0.reverse_bits()
    }

    /// The part that chooses the key group.
    #[inline]
    pub const fn low(self) -> i32 {
        self.0 as i32
    }
}

/// A fast hasher with a fixed seed: each word is folded into the state by one 64 x 64 -> 128 bit
/// multiplication whose halves are then combined. It does not withstand keys chosen to collide.
#[derive(Clone, Debug)]
pub struct StableHasher(u64);

impl Default for StableHasher {
    #[inline]
    fn default() -> Self {
        Self(SEED)
    }
}

impl Hasher for StableHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    /// Folds two words at a time; the last two may overlap the ones before, and the length keeps
    /// apart what would read the same.
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        let mut rest = bytes;
        while let Some((block, behind)) = rest.split_first_chunk::<16>()
            && !behind.is_empty()
        {
            self.0 = fold(word(&block[..8]) ^ self.0, word(&block[8..]) ^ LAST);
            rest = behind;
        }
        let (first, last) = match rest.len() {
            0 => (0, 0),
            short @ 1..4 => {
                let ends = u64::from(rest[0]) << 8 | u64::from(rest[short - 1]);
                (ends, u64::from(rest[short / 2]))
            }
            middle @ 4..8 => (word(&rest[..4]), word(&rest[middle - 4..])),
            long => (word(&rest[..8]), word(&rest[long - 8..])),
        };
        self.0 = fold(first ^ self.0, last ^ LAST ^ len as u64);
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = fold(self.0 ^ number, MULTIPLIER);
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[inline]
const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

/// At most eight bytes as a little-endian number.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("words are read four or eight bytes at a time"),
    }
}

/// Odd numbers with about as many ones as zeros: digits of the fractional part of pi.
const SEED: u64 = 0x243f_6a88_85a3_08d3;
const MULTIPLIER: u64 = 0xa409_3822_299f_31d1;
const LAST: u64 = 0x1319_8a2e_0370_7345;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_hash_never_changes() {
        let hashes = [
            KeyHash::of(&0_u64),
            KeyHash::of(&1_u64),
            KeyHash::of(&-1_i32),
            KeyHash::of(&u128::MAX),
            KeyHash::of(""),
            KeyHash::of("barrier"),
            KeyHash::of("a barrier set in a running stream"),
            KeyHash::of(&(7_u8, "key".to_owned())),
            KeyHash::of(&Some(3_u64)),
        ];
        // Computed apart, by a program in another language.
        let golden = [
            0xbf65_65d7_7ed0_4d03,
            0x136a_bdf5_813f_bf32,
            0x2f44_9e6f_a347_b9ee,
            0xbae7_ce86_6253_2135,
            0xdf1e_193f_b603_1904,
            0x8848_9b5f_10b4_38ba,
            0x9480_dd19_03ef_5e4f,
            0xe63a_9569_4d55_e5d5,
            0xc2c3_bf57_b443_0418,
        ];
        assert_eq!(hashes.map(KeyHash::get), golden);
    }

    #[test]
    fn every_bit_of_every_byte_counts_at_every_length() {
        let mut seen = BTreeSet::new();
        for len in 0..50 {
            let mut bytes = vec![0_u8; len];
            assert!(seen.insert(KeyHash::of(&bytes[..]).get()), "{len} zeros");
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(KeyHash::of(&bytes[..]).get()), "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// Regular keys spread over both ends of the hash: no bin gets twice its share.
    #[test]
    fn regular_keys_spread_over_high_and_low_bits() {
        for shift in [0, 3, 12, 32, 48] {
            let mut bins = [[0_u32; 64]; 2];
            for key in 0..6400_u64 {
                let hash = KeyHash::of(&(key << shift)).get();
                bins[0][(hash >> 58) as usize] += 1;
                bins[1][(hash & 63) as usize] += 1;
            }
            assert!(bins.iter().flatten().all(|keys| *keys < 200), "shift {shift}: {bins:?}");
        }
    }
}
