//! Batches that a keyed operator handles block by block against the same records one by one.

use cofferdam::operator::keyed::{KeySelector, Keyed, KeyedContext, KeyedProcess};
use cofferdam::operator::{Emit, Operator, StateParts};
use cofferdam::state::codec::Format;
use proptest::collection::vec;
use proptest::prelude::*;

/// A key, and the state it gets.
type Write = (u16, Option<u32>);

/// Sets the state of a key, and emits the one before.
#[derive(Clone)]
struct Set;

impl KeyedProcess for Set {
    type Key = u16;
    type In = Write;
    type State = u32;
    type Out = (u16, Option<u32>);

    fn process(
        &mut self,
        (_, next): Write,
        context: &mut KeyedContext<'_, u16, u32>,
        out: &mut impl Emit<Self::Out>,
    ) {
        let before = context.state().take();
        context.state().put(next);
        out.emit((*context.key(), before));
    }
}

#[derive(Clone)]
struct First;

impl KeySelector<Write> for First {
    type Key = u16;

    fn with_key<R>(&self, record: &Write, then: impl FnOnce(&u16) -> R) -> R {
        then(&record.0)
    }
}

proptest! {
    /// Keys come and go within a block and tables are split, so that what was guessed for a later
    /// record of the block is no longer right; snapshots share tables that are written to next.
    #[test]
    fn a_batch_gives_what_its_records_give_one_by_one(
        rounds in vec((vec(write(), 0..200), any::<bool>()), 1..8),
        grown in prop_oneof![Just(0), Just(40_000)],
    ) {
        let grown: Vec<Write> = (0..grown).map(|key| (key, Some(7))).collect();
        let rounds = std::iter::once((grown, false)).chain(rounds);
        let (mut alone, mut together) = (Keyed::new(Set, First), Keyed::new(Set, First));
        let mut shared = Vec::new();
        for (records, is_cut) in rounds {
            let (mut wanted, mut given) = (Vec::new(), Vec::new());
            records.iter().for_each(|record| alone.process(*record, &mut wanted));
            together.process_all(records.into_iter(), &mut given);
            prop_assert_eq!(given, wanted);
            if is_cut {
                shared.push((bytes(alone.snapshot()), together.snapshot()));
            }
        }
        shared.push((bytes(alone.snapshot()), together.snapshot()));
        for (wanted, given) in shared {
            prop_assert!(bytes(given) == wanted);
        }
    }
}

/// Few keys, which come and go, and many, which make tables grow.
fn write() -> impl Strategy<Value = Write> {
    let key = prop_oneof![3 => 0..20_u16, 1 => any::<u16>()];
    (key, prop::option::weighted(0.7, any::<u32>()))
}

fn bytes(parts: StateParts) -> Vec<(u16, Vec<u8>)> {
    let keyed = parts.keyed.expect("it keeps keyed state");
    let groups = keyed.encode_groups(Format::Binary);
    groups.into_iter().map(|(group, bytes)| (group.get(), bytes.to_vec())).collect()
}
