//! Where the words of a text begin and end, for many bytes at a time.

/// The words of `text`: what [`str::split_whitespace`] gives, several times as fast where the text
/// is ASCII.
#[inline]
pub fn words(text: &str) -> Words<'_> {
    Words { text, at: 0, breaks: breaks_of(text, 0) }
}

/// The words of a text, see [`words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    text: &'a str,
    /// Behind the last word.
    at: usize,
    /// The bits of those bytes of the block around `at` that are white space, or behind the end.
    breaks: u64,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        while self.skip(!self.breaks) {}
        let start = self.at;
        if start >= self.text.len() {
            return None;
        }
        while self.skip(self.breaks) {}
        Some(&self.text[start..self.at.min(self.text.len())])
    }
}

impl Words<'_> {
    /// Goes on to the next of these bits of the block; true if there is none, and another block.
    #[inline]
    fn skip(&mut self, bits: u64) -> bool {
        let place = self.at % BLOCK;
        let ahead = bits >> place;
        if ahead != 0 {
            self.at += ahead.trailing_zeros() as usize;
            return false;
        }
        self.at += BLOCK - place;
        self.breaks = breaks_of(self.text, self.at);
        self.at < self.text.len()
    }
}

/// The bits of white space in the block that begins at `start`.
#[inline]
fn breaks_of(text: &str, start: usize) -> u64 {
    let bytes = text.as_bytes().get(start..).unwrap_or_default();
    let mut rest = [b' '; BLOCK];
    let block = match bytes.first_chunk() {
        Some(block) => block,
        None => {
            rest[..bytes.len()].copy_from_slice(bytes);
            &rest
        }
    };
    if block.is_ascii() { ascii_breaks(block) } else { any_breaks(text, start) }
}

/// Eight bytes at a time: no sum carries into the next byte, since no byte has its highest bit.
#[inline]
fn ascii_breaks(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    let mut breaks = 0;
    for (place, word) in words.iter().enumerate() {
        let bytes = u64::from_le_bytes(*word);
        let is_space = HIGHEST - (bytes ^ each(b' '));
        let is_control = (bytes + each(0x80 - b'\t')) & !(bytes + each(0x7f - b'\r'));
        let found = (is_space | is_control) & HIGHEST;
        breaks |= (found.wrapping_mul(GATHER) >> 56) << (8 * place);
    }
    breaks
}

/// Letter by letter, one that reaches into the block from before it included.
#[cold]
fn any_breaks(text: &str, start: usize) -> u64 {
    let first = (0..=start).rfind(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let mut breaks = (text.len() - start..BLOCK).fold(0, |bits, place| bits | 1 << place);
    for (at, letter) in text[first..].char_indices() {
        let at = first + at;
        if at >= start + BLOCK {
            break;
        }
        if letter.is_whitespace() {
            let bytes = at.max(start)..(at + letter.len_utf8()).min(start + BLOCK);
            breaks |= bytes.fold(0, |bits, byte| bits | 1 << (byte - start));
        }
    }
    breaks
}

/// A byte eight times.
const fn each(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// The highest bit of each byte.
const HIGHEST: u64 = each(0x80);
/// Moves the highest bit of each byte into the highest byte of the product.
const GATHER: u64 = 0x0002_0408_1020_4081;
const BLOCK: usize = u64::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) {
        let expected: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn every_character_is_a_break_where_the_standard_library_says_so() {
        for letter in (0..=char::MAX as u32).filter_map(char::from_u32) {
            let text = format!("a{letter}b");
            let count = text.split_whitespace().count();
            assert_eq!(words(&text).count(), count, "{letter:?}");
        }
        for byte in 0..0x80 {
            check(&char::from(byte).to_string().repeat(200));
        }
    }

    #[test]
    fn words_and_spaces_may_lie_across_blocks() {
        for letter in ["a", "é", "水", "👩"] {
            for space in [" ", "\t\r\n", "\u{85}", "\u{2003}", "\u{3000} "] {
                for (before, within) in (0..140).flat_map(|len| [(len, 3), (3, len), (len, 130)]) {
                    check(&(letter.repeat(before) + space + &letter.repeat(within) + space));
                    check(&(space.repeat(before) + &letter.repeat(within) + space + letter));
                }
            }
        }
        check("");
    }
}
