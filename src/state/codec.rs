//! The one module that knows how values become bytes: bincode for checkpoints, CBOR for savepoints,
//! and an envelope that tells a whole file of ours from anything else. docs/SNAPSHOT_FORMAT.md has
//! the byte diagram.
//!
//! Invariant: equal values give equal bytes, on every machine and in every build of one format
//! version.

use crate::id::CheckpointId;

use std::fmt;
use std::io::{Read, Write};
use std::marker::PhantomData;

use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use serde::de::{DeserializeOwned, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// How values are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// bincode: private to one build of the program, and fast. Checkpoints are in it.
    #[default]
    Binary,
    /// CBOR: says itself what it holds, so that fields may come, go and widen. Savepoints are in
    /// it.
    Portable,
}

impl Format {
    /// The bytes of `value`.
    ///
    /// # Panics
    /// As [`encode`].
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED_BYTES);
        self.encode_into(value, &mut bytes);
        bytes
    }

    /// Appends the bytes of `value` to `bytes`.
    pub(crate) fn encode_into<T: Serialize + ?Sized>(self, value: &T, bytes: &mut Vec<u8>) {
        match self {
            Self::Binary => encode_into(value, bytes),
            Self::Portable => ciborium::into_writer(value, bytes)
                .expect("a Vec takes every byte, and records can be serialised"),
        }
    }

    /// Appends what stands before the elements of a list of this length.
    pub(crate) fn encode_length_into(self, length: u64, bytes: &mut Vec<u8>) {
        match self {
            Self::Binary => encode_into(&length, bytes),
            Self::Portable => {
                // As CBOR writes a number, but for the three bits that say what it counts.
                let start = bytes.len();
                self.encode_into(&length, bytes);
                bytes[start] |= CBOR_ARRAY;
            }
        }
    }

    /// The value that `bytes` hold, all of them.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, DecodeError> {
        match self {
            Self::Binary => decode(bytes),
            Self::Portable => {
                let mut rest = bytes;
                let value = ciborium::from_reader(&mut rest)
                    .map_err(|error| DecodeError::Value(error.to_string()))?;
                match rest.len() {
                    0 => Ok(value),
                    left => Err(DecodeError::Trailing(left as u64)),
                }
            }
        }
    }

    /// Of the first of these entries that is no `E`: the field of its last part for which it is
    /// none. The binary format does not say what is what.
    pub(crate) fn field_at_fault<E: DeserializeOwned>(self, entries: &[u8]) -> Option<String> {
        if self == Self::Binary {
            return None;
        }
        let entries: Vec<ciborium::Value> = ciborium::from_reader(entries).ok()?;
        let error_of = |entry: &ciborium::Value| {
            entry.deserialized::<E>().err().map(|error| error.to_string())
        };
        let (entry, error) =
            entries.iter().find_map(|entry| error_of(entry).map(|error| (entry, error)))?;
        let fields = entry.as_array()?.last()?.as_map()?;
        if error.contains("missing field") {
            return error.split('`').nth(1).map(str::to_owned);
        }
        // Fields are read in order: without any other one the error is the same.
        let is_at_fault = |place: usize| {
            let mut without = entry.clone();
            let fields = without.as_array_mut().and_then(|parts| parts.last_mut()?.as_map_mut());
            fields.into_iter().for_each(|fields| drop(fields.remove(place)));
            error_of(&without).as_ref() != Some(&error)
        };
        let place = (0..fields.len()).find(|place| is_at_fault(*place))?;
        fields[place].0.as_text().map(str::to_owned)
    }
}

/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A task's part of a checkpoint.
    State,
    /// A complete checkpoint.
    Metadata,
    /// A source's reserved positions.
    Reservation,
    /// An attempt.
    Attempt,
    /// A task's part, as changes to an earlier one.
    Changes,
    /// A savepoint, but for its parts.
    Savepoint,
    /// A task's part of a savepoint.
    SavepointPart,
    /// What a program keeps beside a savepoint.
    SavepointNote,
}

/// Whether what is stored is made smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// By LZ4, which costs little time.
    Lz4,
}

impl Compression {
    /// The envelope, or one around it that [`open`] opens as well.
    pub fn apply(self, sealed: Vec<u8>) -> Vec<u8> {
        match self {
            Self::None => sealed,
            Self::Lz4 => {
                let mut encoder = FrameEncoder::new(vec![0; ENVELOPE_BYTES]);
                let written = encoder.write_all(&sealed).map(|()| encoder.finish());
                let bytes = written.expect("a Vec takes every byte");
                close(bytes.expect("a Vec takes every byte"), FORMAT_VERSION, COMPRESSED)
            }
        }
    }
}

/// Why bytes are not the value that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than an envelope, or than the envelope says.
    #[error("truncated: {found} bytes where {wanted} are needed")]
    Truncated {
        /// The bytes needed.
        wanted: u64,
        /// The bytes there are.
        found: u64,
    },
    /// Longer than the envelope says, or bytes are left behind the value.
    #[error("{0} bytes too many")]
    Trailing(u64),
    /// It does not begin with the magic bytes.
    #[error("not a file of cofferdam's")]
    Magic,
    /// Another format version.
    #[error("format version {found}, this build reads version {wanted}")]
    Version {
        /// The version found.
        found: u16,
        /// The version that is read.
        wanted: u16,
    },
    /// An envelope of another kind.
    #[error("it holds something else (kind {found}) than {wanted:?}")]
    Kind {
        /// The kind asked for.
        wanted: Kind,
        /// The number of the kind found.
        found: u16,
    },
    /// The checksum does not fit the bytes.
    #[error("the checksum does not match: the file is corrupt")]
    Checksum,
    /// A write is missing before this one.
    #[error("write {found} follows write {last}: one is missing")]
    Gap {
        /// The write before.
        last: CheckpointId,
        /// The write.
        found: CheckpointId,
    },
    /// The bytes are whole but are not such a value.
    #[error("not the expected value: {0}")]
    Value(String),
}

/// The bytes of `value` without an envelope.
///
/// # Panics
/// If the value's own `Serialize` fails: a record type that can not be stored is a bug of the job.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    Format::Binary.encode(value)
}

/// Appends the bytes of `value` to `bytes`.
///
/// # Panics
/// As [`encode`].
pub fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) {
    bincode::serde::encode_into_writer(value, Append(bytes), CONFIG)
        .expect("a Vec takes every byte, and records can be serialised");
}

/// A writer at the end of a vector: the one of std is slower by the checks of its errors.
struct Append<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Append<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        match bytes {
            // Most numbers are one byte, which is pushed faster than it is copied.
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// Enough for most keys and rows, so that their bytes are not moved while they grow.
const ENCODED_BYTES: usize = 32;

/// The value that `bytes` hold, all of them.
///
/// # Errors
/// If the bytes are not such a value or some are left over.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (value, rest) = decode_prefix(bytes)?;
    match rest.len() {
        0 => Ok(value),
        left => Err(DecodeError::Trailing(left as u64)),
    }
}

/// The value at the start of `bytes`, and the bytes behind it.
///
/// # Errors
/// If the bytes do not begin with such a value.
pub fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, CONFIG)
        .map_err(|error| DecodeError::Value(error.to_string()))?;
    Ok((value, &bytes[used..]))
}

/// Hands the values that `bytes` begin with to `take`, until it wants no more, at most `count`; how
/// many that were, and the bytes behind them. In one go, which is faster than one by one.
///
/// # Errors
/// If the bytes do not begin with such values.
pub(crate) fn decode_while<T: DeserializeOwned>(
    bytes: &[u8],
    count: usize,
    take: impl FnMut(T) -> bool,
) -> Result<(usize, &[u8]), DecodeError> {
    let values = Values { count, take, of: PhantomData };
    let (taken, used) = bincode::serde::seed_decode_from_slice(values, bytes, CONFIG)
        .map_err(|error| DecodeError::Value(error.to_string()))?;
    Ok((taken, &bytes[used..]))
}

/// What [`decode_while`] asks the decoder for: a tuple, since its length is not stored.
struct Values<T, F> {
    count: usize,
    take: F,
    of: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for Values<T, F> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<usize, D::Error> {
        decoder.deserialize_tuple(self.count, self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> Visitor<'de> for Values<T, F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.count)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<usize, A::Error> {
        let mut taken = 0;
        while let Some(value) = values.next_element()? {
            taken += 1;
            if !(self.take)(value) {
                break;
            }
        }
        Ok(taken)
    }
}

/// The bytes of `value` in an envelope.
///
/// # Panics
/// As [`encode`].
pub fn seal<T: Serialize>(kind: Kind, value: &T) -> Vec<u8> {
    let mut bytes = vec![0; ENVELOPE_BYTES];
    kind.format().encode_into(value, &mut bytes);
    close(bytes, kind.version(), kind.number())
}

/// Fills in the envelope around what lies behind it.
fn close(mut bytes: Vec<u8>, version: u16, kind: u16) -> Vec<u8> {
    let (envelope, body) = bytes.split_at_mut(ENVELOPE_BYTES);
    envelope[..4].copy_from_slice(&MAGIC);
    envelope[4..6].copy_from_slice(&version.to_le_bytes());
    envelope[6..8].copy_from_slice(&kind.to_le_bytes());
    envelope[8..16].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let checksum = checksum(&envelope[..16], body);
    envelope[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The value in an envelope of `kind`.
///
/// # Errors
/// If the envelope is torn, corrupt, of another kind or version, or the value is not a `T`.
pub fn open<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    let number = bytes.get(6..8).map(|number| u16::from_le_bytes([number[0], number[1]]));
    if kind == Kind::State && number == Some(COMPRESSED) {
        let body = body_of(bytes, kind, COMPRESSED)?;
        let mut sealed = Vec::new();
        let mut frame = FrameDecoder::new(body).take(DECODE_BYTES_MAX as u64);
        frame.read_to_end(&mut sealed).map_err(|error| DecodeError::Value(error.to_string()))?;
        return kind.format().decode(body_of(&sealed, kind, kind.number())?);
    }
    kind.format().decode(body_of(bytes, kind, kind.number())?)
}

/// What lies in an envelope with this number in place of that of `kind`.
fn body_of(bytes: &[u8], kind: Kind, wanted_number: u16) -> Result<&[u8], DecodeError> {
    let found = bytes.len() as u64;
    let Some((envelope, body)) = bytes.split_at_checked(ENVELOPE_BYTES) else {
        return Err(DecodeError::Truncated { wanted: ENVELOPE_BYTES as u64, found });
    };
    if envelope[..4] != MAGIC {
        return Err(DecodeError::Magic);
    }
    let number = |at: usize| u16::from_le_bytes([envelope[at], envelope[at + 1]]);
    if number(6) != wanted_number {
        return Err(DecodeError::Kind { wanted: kind, found: number(6) });
    }
    if number(4) != kind.version() {
        return Err(DecodeError::Version { found: number(4), wanted: kind.version() });
    }
    let wanted = sealed_bytes(envelope);
    if found < wanted {
        return Err(DecodeError::Truncated { wanted, found });
    }
    if found > wanted {
        return Err(DecodeError::Trailing(found - wanted));
    }
    if envelope[16..] != checksum(&envelope[..16], body).to_le_bytes() {
        return Err(DecodeError::Checksum);
    }
    Ok(body)
}

/// The envelope that `bytes` begin with, and what lies behind it. If there is none, or not as a
/// whole, all is the first: [`open`] says what is wrong with it.
pub fn split_first(bytes: &[u8]) -> (&[u8], &[u8]) {
    let envelope = bytes.get(..ENVELOPE_BYTES).filter(|envelope| envelope[..4] == MAGIC);
    let length = envelope.and_then(|envelope| usize::try_from(sealed_bytes(envelope)).ok());
    length.and_then(|length| bytes.split_at_checked(length)).unwrap_or((bytes, &[]))
}

/// How long an envelope says that it is.
fn sealed_bytes(envelope: &[u8]) -> u64 {
    let length = envelope[8..16].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    length.saturating_add(ENVELOPE_BYTES as u64)
}

impl Kind {
    /// What is made to be read by later builds, and by other programs, says itself what it holds.
    const fn format(self) -> Format {
        match self {
            Self::Savepoint | Self::SavepointPart | Self::SavepointNote => Format::Portable,
            Self::State | Self::Metadata | Self::Reservation | Self::Attempt | Self::Changes => {
                Format::Binary
            }
        }
    }

    const fn version(self) -> u16 {
        match self.format() {
            Format::Binary => FORMAT_VERSION,
            Format::Portable => PORTABLE_VERSION,
        }
    }

    const fn number(self) -> u16 {
        match self {
            Self::State => 1,
            Self::Metadata => 2,
            Self::Reservation => 3,
            Self::Attempt => 4,
            Self::Changes => 5,
            Self::Savepoint => 6,
            Self::SavepointPart => 7,
            Self::SavepointNote => 8,
        }
    }
}

fn checksum(envelope: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(envelope);
    hasher.update(body);
    hasher.finalize()
}

/// The type of an array in the first byte of a CBOR value; that of an unsigned number is 0.
const CBOR_ARRAY: u8 = 4 << 5;

/// A decoder never allocates more than this for one value: a corrupt length must not exhaust
/// memory.
const DECODE_BYTES_MAX: usize = 1 << 34;

const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<DECODE_BYTES_MAX>,
> = bincode::config::standard().with_limit::<DECODE_BYTES_MAX>();

const MAGIC: [u8; 4] = *b"CFDM";
const FORMAT_VERSION: u16 = 7;
/// The kind of an envelope around a compressed one.
const COMPRESSED: u16 = 9;
/// Fields that are added, with a default, do not change it.
const PORTABLE_VERSION: u16 = 1;
const ENVELOPE_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    #[test]
    fn an_envelope_opens_to_what_was_sealed() {
        let value = (7_u64, "barrier".to_owned(), vec![1_i64, -2]);
        let bytes = seal(Kind::State, &value);
        assert_eq!(open::<(u64, String, Vec<i64>)>(Kind::State, &bytes), Ok(value));
    }

    #[test]
    fn every_single_damaged_byte_and_every_cut_is_noticed() {
        let bytes = seal(Kind::Metadata, &vec![1_u32, 2, 3]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(open::<Vec<u32>>(Kind::Metadata, &damaged).is_err(), "byte {at}");
            assert!(open::<Vec<u32>>(Kind::Metadata, &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_compressed_envelope_opens_as_well_and_damage_is_noticed() {
        let value = vec![7_u64; 1000];
        let sealed = seal(Kind::State, &value);
        assert_eq!(Compression::None.apply(sealed.clone()), sealed);
        let bytes = Compression::Lz4.apply(sealed.clone());
        assert!(bytes.len() < sealed.len() / 4, "{} of {}", bytes.len(), sealed.len());
        assert_eq!(open(Kind::State, &bytes), Ok(value));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(open::<Vec<u64>>(Kind::State, &damaged).is_err(), "byte {at}");
            assert!(open::<Vec<u64>>(Kind::State, &bytes[..at]).is_err(), "cut at {at}");
        }
        let twice = Compression::Lz4.apply(bytes);
        assert!(matches!(open::<Vec<u64>>(Kind::State, &twice), Err(DecodeError::Kind { .. })));
    }

    #[test]
    fn a_text_has_the_bytes_of_a_string() {
        for string in ["", "a", "水门", "fifteen letters", "sixteen letters.", &"é".repeat(300)]
        {
            for format in [Format::Binary, Format::Portable] {
                let bytes = format.encode(&(string.to_owned(), 7_u64));
                let decoded: (Text, u64) = format.decode(&bytes).unwrap();
                assert_eq!((&*decoded.0, decoded.1), (string, 7));
                assert_eq!(format.encode(&decoded), bytes);
            }
        }
    }

    #[test]
    fn bytes_of_another_kind_or_with_a_tail_are_refused() {
        let mut bytes = seal(Kind::Attempt, &1_u64);
        assert!(matches!(open::<u64>(Kind::State, &bytes), Err(DecodeError::Kind { .. })));
        bytes.push(0);
        assert_eq!(open::<u64>(Kind::Attempt, &bytes), Err(DecodeError::Trailing(1)));
        assert_eq!(decode::<u8>(&[1, 2]), Err(DecodeError::Trailing(1)));
    }
}
