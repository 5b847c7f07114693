use super::*;
use crate::operator::RowsRestOn;
use crate::operator::chain::{Named, Segment};
use crate::operator::keyed::{ByRef, Keyed, KeyedProcess};
use crate::state::codec::Format;
use crate::state::key_group::KeyGroup;
use crate::state::snapshot::{Bytes, Extent, OperatorState};

/// A visit: who, when.
type Visit = (char, i64);
type KeyOf = fn(&Visit) -> &char;

fn of(windows: Windows, time: i64) -> Vec<(i64, i64)> {
    let windows = windows.of(EventTime::from_millis(time));
    windows.map(|window| (window.start.as_millis(), window.end.as_millis())).collect()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_time_lies_in_one_tumbling_window_also_before_zero() {
    let windows = Windows::tumbling(ms(10));
    assert_eq!(of(windows, 0), [(0, 10)]);
    assert_eq!(of(windows, 9), [(0, 10)]);
    assert_eq!(of(windows, 10), [(10, 20)]);
    assert_eq!(of(windows, -1), [(-10, 0)]);
}

#[test]
fn sliding_windows_overlap_or_leave_gaps() {
    let windows = Windows::sliding(ms(10), ms(4));
    assert_eq!(of(windows, 8), [(8, 18), (4, 14), (0, 10)]);
    assert_eq!(of(windows, 10), [(8, 18), (4, 14)]);
    let apart = Windows::sliding(ms(3), ms(10));
    assert_eq!(of(apart, 12), [(10, 13)]);
    assert_eq!(of(apart, 13), []);
}

#[test]
fn windows_at_the_ends_of_time_are_cut_off_and_end() {
    let size = ms(u64::MAX);
    assert_eq!(of(Windows::tumbling(size), i64::MAX - 1), [(0, i64::MAX)]);
    assert_eq!(of(Windows::tumbling(ms(10)), i64::MIN).len(), 1);
}

fn time_of(visit: &Visit) -> EventTime {
    EventTime::from_millis(visit.1)
}

fn count(count: &mut u32, _: &Visit) {
    *count += 1;
}

fn tumbling(
    lateness: u64,
) -> impl KeyedProcess<Key = char, In = Visit, State = Panes<u32>, Out = Windowed<char, u32, Visit>>
{
    FixedWindows::new(Windows::tumbling(ms(10)), ms(lateness), time_of, 0, count)
}

fn sessions(
    lateness: u64,
) -> impl KeyedProcess<Key = char, In = Visit, State = Panes<u32>, Out = Windowed<char, u32, Visit>>
{
    Sessions::new(ms(10), ms(lateness), time_of, 0, count, |count: &mut u32, more| *count += more)
}

/// A window operator, and what it has emitted as text.
struct Under<P: KeyedProcess<Key = char, In = Visit>> {
    operator: Named<Keyed<P, ByRef<KeyOf>>>,
}

impl<P> Under<P>
where
    P: KeyedProcess<Key = char, In = Visit, State = Panes<u32>, Out = Windowed<char, u32, Visit>>,
{
    fn new(process: P) -> Self {
        let keyed = Keyed::new(process, ByRef((|visit| &visit.0) as KeyOf));
        Self { operator: Named::new("window", keyed) }
    }

    fn visits(&mut self, key: char, times: impl IntoIterator<Item = i64>) -> Vec<String> {
        let mut out = Vec::new();
        times.into_iter().for_each(|time| self.operator.process((key, time), &mut out));
        out.into_iter().map(text).collect()
    }

    fn watermark(&mut self, time: i64) -> Vec<String> {
        let mut out = Vec::new();
        self.operator.on_watermark(EventTime::from_millis(time), &mut out);
        out.into_iter().map(text).collect()
    }

    /// How many keys have state, and how many timers there are.
    fn kept(&mut self) -> (usize, usize) {
        let OperatorState { keyed, timers, .. } = self.state();
        (
            entries::<(char, Panes<u32>)>(keyed.as_deref()),
            entries::<(EventTime, char)>(timers.as_deref()),
        )
    }

    fn state(&mut self) -> OperatorState {
        let mut snapshots = Vec::new();
        self.operator.snapshot(Extent::Whole, &mut snapshots);
        snapshots[0].to_state(Format::Binary)
    }
}

fn entries<T: Record>(groups: Option<&[(KeyGroup, Bytes)]>) -> usize {
    let decode = |(_, bytes): &(_, Bytes)| Format::Binary.decode::<Vec<T>>(bytes).unwrap().len();
    groups.unwrap().iter().map(decode).sum()
}

fn text(out: Windowed<char, u32, Visit>) -> String {
    match out {
        Windowed::Row(WindowRow { key, window: Window { start, end }, value }) => {
            format!("{key} {}..{} {value}", start.as_millis(), end.as_millis())
        }
        Windowed::Late((key, time)) => format!("{key} {time} late"),
    }
}

#[test]
fn a_window_fires_when_the_watermark_has_come_to_its_last_millisecond() {
    let mut under = Under::new(tumbling(0));
    assert!(under.visits('a', [0, 9, 5, 10]).is_empty());
    assert!(under.visits('b', [3]).is_empty());
    assert!(under.watermark(8).is_empty());
    assert_eq!(under.watermark(9), ["a 0..10 3", "b 0..10 1"]);
    assert_eq!(under.kept(), (1, 1), "what is fired is dropped");
    assert_eq!(under.watermark(i64::MAX), ["a 10..20 1"]);
    assert_eq!(under.kept(), (0, 0));
}

#[test]
fn a_record_behind_the_watermark_is_late_only_if_its_window_is_gone() {
    let mut under = Under::new(tumbling(0));
    assert!(under.watermark(8).is_empty());
    assert!(under.visits('a', [2]).is_empty(), "the window is open until 9");
    assert_eq!(under.watermark(9), ["a 0..10 1"]);
    assert_eq!(under.visits('a', [9, 10, 3]), ["a 9 late", "a 3 late"]);
    assert_eq!(under.watermark(19), ["a 10..20 1"]);
}

#[test]
fn within_the_allowed_lateness_a_window_fires_again_with_the_value_so_far() {
    let mut under = Under::new(tumbling(5));
    assert!(under.visits('a', [1]).is_empty());
    assert_eq!(under.watermark(9), ["a 0..10 1"]);
    assert_eq!(under.visits('a', [2]), ["a 0..10 2"]);
    assert_eq!(under.visits('b', [2]), ["b 0..10 1"]);
    assert!(under.watermark(13).is_empty(), "nothing fires twice for the same records");
    assert_eq!(under.visits('a', [3]), ["a 0..10 3"]);
    assert!(under.watermark(14).is_empty());
    assert_eq!(under.kept(), (0, 0));
    assert_eq!(under.visits('a', [4]), ["a 4 late"]);
}

#[test]
fn a_record_counts_in_each_sliding_window_that_is_still_there() {
    let windows = Windows::sliding(ms(10), ms(5));
    let mut under = Under::new(FixedWindows::new(windows, ms(0), time_of, 0, count));
    assert!(under.visits('a', [7]).is_empty());
    assert_eq!(under.watermark(9), ["a 0..10 1"]);
    assert!(under.visits('a', [8]).is_empty(), "one of its windows is still there");
    assert_eq!(under.watermark(14), ["a 5..15 2"]);
    assert_eq!(under.visits('a', [8]), ["a 8 late"]);
}

#[test]
fn sessions_grow_and_are_joined_and_leave_no_timer_behind() {
    let mut under = Under::new(sessions(0));
    assert!(under.visits('a', [0, 20, 5]).is_empty());
    assert_eq!(under.kept(), (1, 2));
    assert!(under.visits('a', [12]).is_empty());
    assert_eq!(under.kept(), (1, 1), "0, 5, 12, 20 are one session by now");
    assert!(under.watermark(28).is_empty());
    assert_eq!(under.watermark(29), ["a 0..30 4"]);
    assert_eq!(under.kept(), (0, 0));
}

#[test]
fn records_a_whole_gap_apart_are_of_two_sessions_whenever_the_watermark_comes() {
    let mut early = Under::new(sessions(0));
    assert!(early.visits('a', [0]).is_empty());
    assert_eq!(early.watermark(9), ["a 0..10 1"]);
    assert!(early.visits('a', [10]).is_empty());
    assert_eq!(early.watermark(i64::MAX), ["a 10..20 1"]);
    let mut late = Under::new(sessions(0));
    assert!(late.visits('a', [10, 0]).is_empty());
    assert_eq!(late.watermark(i64::MAX), ["a 0..10 1", "a 10..20 1"]);
}

#[test]
fn a_late_record_joins_a_session_that_is_there() {
    let mut under = Under::new(sessions(0));
    assert!(under.visits('a', [20]).is_empty());
    assert!(under.watermark(25).is_empty());
    assert_eq!(under.visits('a', [10, 11, 1]), ["a 10 late", "a 1 late"]);
    assert_eq!(under.watermark(29), ["a 11..30 2"]);
}

#[test]
fn an_idempotent_fold_absorbs_what_comes_again_unless_windows_wait_for_late_records() {
    let largest = |largest: &mut u32, visit: &Visit| *largest = (*largest).max(visit.1 as u32);
    let windows = |lateness| {
        FixedWindows::new(Windows::tumbling(ms(10)), ms(lateness), time_of, 0, largest).idempotent()
    };
    let traits = |lateness| {
        let mut described = Vec::new();
        Under::new(windows(lateness)).operator.describe(&mut described);
        described[0].1
    };
    assert!(traits(0).idempotent && traits(0).absorbs && traits(0).rows == RowsRestOn::Records);
    assert!(traits(5).idempotent && !traits(5).absorbs);
    let mut under = Under::new(windows(0));
    assert!(under.visits('a', [3, 7, 3]).is_empty());
    assert_eq!(under.watermark(9), ["a 0..10 7"]);
    assert!(under.visits('a', [3]).is_empty());
    let mut under = Under::new(windows(5));
    under.watermark(9);
    assert_eq!(under.visits('a', [3, 3]), ["a 0..10 3", "a 0..10 3"]);
}

#[test]
fn sessions_fire_again_within_the_allowed_lateness() {
    let mut under = Under::new(sessions(20));
    assert!(under.visits('a', [0]).is_empty());
    assert_eq!(under.watermark(9), ["a 0..10 1"]);
    assert_eq!(under.visits('a', [-5]), ["a -5..10 2"]);
    assert!(under.visits('a', [8]).is_empty(), "it lasts until 18 now");
    assert_eq!(under.watermark(17), ["a -5..18 3"]);
    assert!(under.watermark(36).is_empty());
    assert_eq!(under.kept(), (1, 1));
    assert!(under.watermark(37).is_empty());
    assert_eq!(under.kept(), (0, 0));
}

#[test]
fn open_windows_come_back_with_their_timers_and_what_was_late_stays_late() {
    let mut under = Under::new(tumbling(0));
    under.visits('a', [12, 15]);
    under.watermark(11);
    let state = under.state();
    let mut restored = Under::new(tumbling(0));
    restored.operator.restore(Extent::Whole, &[state]).unwrap();
    assert_eq!(restored.visits('a', [3]), ["a 3 late"]);
    assert_eq!(restored.watermark(19), ["a 10..20 2"]);
}
