//! What the built-in jobs read and write, and its JSON: field for field as the command line's page
//! fixes it, integers exact, one line a row.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

use cofferdam::element::Record;
use cofferdam::state::codec::{self, DecodeError};
use cofferdam::text::Text;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::workload::splitmix64;

/// A row that a sink can write.
pub trait Row: Record {
    /// Whether rows with the same key are equal, but for their origin.
    const IS_KEY_WHOLE: bool = false;

    /// What an idempotent sink keeps it by, in the checkpoint encoding.
    fn row_key(&self) -> Vec<u8>;

    /// Appends the row as one JSON object, without a line end.
    fn write_json(&self, out: &mut Vec<u8>);

    /// The row of a JSON object, but for its origin; `None` if it is not one of this type.
    fn read_json(line: &[u8]) -> Option<Self>;

    /// What a discarding sink adds to its checksum.
    fn checksum(&self) -> u64 {
        checksum(self)
    }
}

/// The checksum of what a row is encoded to.
pub(crate) fn checksum<R: Record>(row: &R) -> u64 {
    codec::encode(row).iter().fold(0, |sum, byte| splitmix64(sum ^ u64::from(*byte)))
}

/// The JSON of a row in the checkpoint encoding.
pub(crate) fn encoded_json<R: Row>(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut json = Vec::new();
    codec::decode::<R>(row)?.write_json(&mut json);
    Ok(json)
}

/// A field of a JSON object as people write it: texts without quotes.
pub(crate) fn json_field(line: &[u8], name: &str) -> Option<String> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_slice(line).ok()?;
    let field = object.get(name)?.get();
    // Numbers are left as they stand: some are greater than `serde_json::Value` can hold.
    if field.starts_with('"') { serde_json::from_str(field).ok() } else { Some(field.to_owned()) }
}

/// Where a row comes from, for judges outside the process: part of a row only on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The source record: its line, from 0.
    pub offset: u64,
    /// Which of that record's outputs it is, from 0.
    pub position: u32,
}

/// A key with a value: what the jobs with one value a key read, keep and write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The key.
    pub key: Text,
    /// The value.
    pub value: V,
    /// Where it comes from, if that was asked for.
    pub origin: Option<Origin>,
}

impl<V> Entry<V> {
    /// An entry without an origin.
    pub fn new(key: impl Into<Text>, value: V) -> Self {
        Self { key: key.into(), value, origin: None }
    }
}

impl<V: Display> Display for Entry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.key, self.value)
    }
}

impl<V: Record + Display + FromStr> Row for Entry<V> {
    /// A value that takes no room is always the same.
    const IS_KEY_WHOLE: bool = size_of::<V>() == 0;

    fn row_key(&self) -> Vec<u8> {
        codec::encode(&self.key)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("value", &self.value);
        match self.origin {
            Some(origin) => object.origin(origin).end(),
            None => object.end(),
        }
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        Some(Self::new(json_field(line, "key")?, json_field(line, "value")?.parse().ok()?))
    }
}

/// The value of a key of which nothing is said but that it is there: `true` wherever it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark;

impl Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == MARK { Ok(Self) } else { Err(format!("'{text}' is not {MARK}")) }
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match bool::deserialize(from)? {
            true => Ok(Self),
            false => Err(de::Error::custom(format!("false is not {MARK}"))),
        }
    }
}

const MARK: &str = "true";

impl Row for (u64, u64) {
    fn row_key(&self) -> Vec<u8> {
        codec::encode(&self.0)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        JsonObject::begin(out).field("key", &self.0).field("value", &self.1).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        Some((json_field(line, "key")?.parse().ok()?, json_field(line, "value")?.parse().ok()?))
    }

    #[inline]
    fn checksum(&self) -> u64 {
        self.0 ^ self.1
    }
}

/// Writes one JSON object, field after field.
pub(crate) struct JsonObject<'a> {
    out: &'a mut Vec<u8>,
    fields: usize,
}

impl<'a> JsonObject<'a> {
    pub(crate) fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, fields: 0 }
    }

    /// A field with a text, escaped.
    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        serde_json::to_writer(&mut *self.out, text).expect("a Vec takes every byte");
        self
    }

    /// A field whose value reads in JSON as people read it: a number, `true`, `false`.
    pub(crate) fn field(mut self, name: &str, value: &impl Display) -> Self {
        self.name(name);
        self.out.extend_from_slice(value.to_string().as_bytes());
        self
    }

    pub(crate) fn origin(self, origin: Origin) -> Self {
        self.field("_offset", &origin.offset).field("_position", &origin.position)
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if self.fields > 0 {
            self.out.push(b',');
        }
        self.fields += 1;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn json(row: &impl Row) -> String {
        let mut out = Vec::new();
        row.write_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_written_byte_for_byte_as_the_page_says() {
        assert_eq!(json(&Entry::new("the", 17_u64)), r#"{"key":"the","value":17}"#);
        assert_eq!(json(&Entry::new("a \"b\"\t水", true)), r#"{"key":"a \"b\"\t水","value":true}"#);
        assert_eq!(json(&(3_u64, u64::MAX)), r#"{"key":3,"value":18446744073709551615}"#);
    }

    #[test]
    fn integers_are_exact_beyond_what_a_double_holds() {
        let value = i128::from(i64::MAX) * 3;
        assert_eq!(
            json(&Entry::new(String::new(), value)),
            r#"{"key":"","value":27670116110564327421}"#
        );
        for value in [value, i128::MAX, i128::MIN] {
            let row = Entry::new("\u{e9}\n".to_owned(), value);
            assert_eq!(Entry::read_json(json(&row).as_bytes()), Some(row));
        }
    }

    #[test]
    fn an_origin_comes_last_and_only_if_there_is_one() {
        let origin = Some(Origin { offset: 12, position: 3 });
        let row = Entry { key: "a".into(), value: -1_i64, origin };
        assert_eq!(json(&row), r#"{"key":"a","value":-1,"_offset":12,"_position":3}"#);
        let read = Entry::read_json(json(&row).as_bytes());
        assert_eq!(read, Some(Entry::new("a", -1_i64)));
    }
}
