//! Text as part of records and as a key: short ones without memory of their own, and how lines are
//! taken apart into words. It does not know records.

mod words;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use words::{Words, words};

/// A text that does not change. Up to 15 bytes are kept in place, so that most words cost neither a
/// call of the allocator nor a look at memory elsewhere.
///
/// Its hash, order, encoding and text are those of [`str`]: state that is kept by a [`String`] can
/// be restored into state that is kept by a `Text`, and the other way round.
// In this order it is moved in the pieces in which it was made and is compared: what is written in
// small pieces can be read in large ones only after a pause.
#[repr(C)]
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    /// A short text with zeros behind it, and how long it is.
    short: [u8; SHORT_MAX + 1],
    /// A text that is longer: a thin pointer.
    long: Option<Box<Box<str>>>,
}

impl Text {
    /// The text.
    ///
    /// A short one is checked to be UTF-8 each time: for hot paths there is [`Text::as_bytes`].
    pub fn as_str(&self) -> &str {
        match &self.long {
            None => std::str::from_utf8(self.as_bytes()).expect("it has been made of a text"),
            Some(text) => text,
        }
    }

    /// The bytes of the text.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.long {
            None => &self.short[..usize::from(self.short[SHORT_MAX])],
            Some(text) => text.as_bytes(),
        }
    }

    #[cold]
    fn long(text: Box<str>) -> Self {
        Self { short: [0; SHORT_MAX + 1], long: Some(Box::new(text)) }
    }
}

impl From<&str> for Text {
    #[inline]
    fn from(text: &str) -> Self {
        if text.len() > SHORT_MAX {
            return Self::long(text.into());
        }
        let len = (text.len() as u128) << (8 * SHORT_MAX);
        Self { short: (number_of(text.as_bytes()) | len).to_le_bytes(), long: None }
    }
}

/// At most 15 bytes as a little-endian number, made without a loop: two or three reads overlap.
#[inline]
fn number_of(bytes: &[u8]) -> u128 {
    let len = bytes.len();
    let at = |first: usize, number: u64| u128::from(number) << (8 * first);
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        at(0, u64::from_le_bytes(*first)) | at(len - 8, u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        at(0, u32::from_le_bytes(*first).into()) | at(len - 4, u32::from_le_bytes(*last).into())
    } else {
        [0, len / 2, len.saturating_sub(1)].into_iter().fold(0, |number, place| {
            number | at(place, bytes.get(place).copied().unwrap_or_default().into())
        })
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        if text.len() > SHORT_MAX { Self::long(text.into()) } else { text.as_str().into() }
    }
}

impl Default for Text {
    fn default() -> Self {
        "".into()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl Hash for Text {
    /// As `str`: the bytes, and one that no text has.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
        state.write_u8(0xff);
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(AnyText)
    }
}

struct AnyText;

impl Visitor<'_> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(text.into())
    }
}

/// A text this long, its length and a pointer take as much room as a [`String`].
const SHORT_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use std::collections::hash_map::DefaultHasher;

    use super::*;

    /// Texts of all lengths around the border, of letters of one to four bytes.
    fn texts() -> Vec<String> {
        let letters = ["a", "\0", "é", "水", "👩"];
        let texts = (0..30).flat_map(|len| letters.map(|letter| letter.repeat(len)));
        texts.chain(["\"quoted\"\n".to_owned(), "b".repeat(1000)]).collect()
    }

    #[test]
    fn a_text_is_no_larger_than_a_string() {
        assert_eq!(size_of::<Text>(), size_of::<String>());
    }

    #[test]
    fn a_text_looks_and_compares_like_the_str_it_is_made_of() {
        for one in texts() {
            let text = Text::from(one.as_str());
            assert_eq!((text.as_str(), &*text.to_string()), (&*one, &*one));
            assert_eq!(format!("{text:?}"), format!("{one:?}"));
            assert_eq!(text, Text::from(one.clone()));
            for other in texts() {
                let order = text.cmp(&Text::from(other.as_str()));
                assert_eq!(order, one.cmp(&other), "{one} {other}");
                assert_eq!(text == Text::from(other.as_str()), one == other, "{one} {other}");
            }
        }
        assert_eq!(Text::default().as_str(), "");
    }

    #[test]
    fn a_text_has_the_hash_of_a_str() {
        fn hash(value: &(impl Hash + ?Sized)) -> u64 {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            hasher.finish()
        }
        for text in texts() {
            assert_eq!(hash(&Text::from(text.as_str())), hash(text.as_str()), "{text}");
        }
    }
}
