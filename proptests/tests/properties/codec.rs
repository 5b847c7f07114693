//! The envelope opens to what was sealed, and to nothing else.

use cofferdam::state::codec::{Kind, decode, open, seal};
use proptest::collection::vec;
use proptest::prelude::*;

type Value = (Vec<(u16, Vec<u8>)>, Option<String>, i64);

proptest! {
    #[test]
    fn what_was_sealed_is_opened(value: Value) {
        prop_assert_eq!(open::<Value>(Kind::State, &seal(Kind::State, &value)), Ok(value));
    }

    #[test]
    fn a_changed_or_cut_envelope_is_refused(
        value: Value,
        at: prop::sample::Index,
        change in 1_u8..,
        cut: prop::sample::Index,
    ) {
        let mut bytes = seal(Kind::State, &value);
        let length = cut.index(bytes.len());
        prop_assert!(open::<Value>(Kind::State, &bytes[..length]).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(open::<Value>(Kind::State, &bytes).is_err());
    }

    #[test]
    fn any_bytes_are_decoded_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = open::<Value>(Kind::Metadata, &bytes);
        let _ = decode::<Value>(&bytes);
    }
}
