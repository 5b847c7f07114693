//! Lines, numbers and clicks for the jobs that keep one value a key: few hot keys, some cold ones.

use std::borrow::Cow;

use crate::dice::Dice;
use crate::jobs::row::Entry;
use crate::workload::signed;

/// Lines of words: empty ones, blank ones, words that repeat within a line, words of many scripts,
/// now and then a word that comes only once.
pub fn lines(dice: &mut Dice, records: usize) -> Vec<Entry<()>> {
    (0..records).map(|record| Entry::new(line(dice, record), ())).collect()
}

/// Few whole lines that come again and again, and some that come once.
pub fn repeated_lines(dice: &mut Dice, records: usize) -> Vec<Entry<()>> {
    let key = |dice: &mut Dice, record| match dice.below(8) {
        0 => String::new(),
        1 => format!("once {record}"),
        _ => format!("line {}", dice.pick(WORDS)),
    };
    (0..records).map(|record| Entry::new(key(dice, record), ())).collect()
}

/// Keys with values that are small, negative, zero or at the ends of their range.
pub fn numbers(dice: &mut Dice, records: usize) -> Vec<Entry<i64>> {
    let value = |dice: &mut Dice| match dice.below(16) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => 0,
        _ => signed(dice, -100, 100),
    };
    (0..records).map(|record| Entry::new(&*key(dice, record), value(dice))).collect()
}

/// Campaigns with prices, free clicks and the greatest price among them.
pub fn prices(dice: &mut Dice, records: usize) -> Vec<Entry<u64>> {
    let value = |dice: &mut Dice| match dice.below(16) {
        0 => u64::MAX,
        1 => 0,
        _ => dice.below(5_000_000),
    };
    (0..records).map(|record| Entry::new(&*key(dice, record), value(dice))).collect()
}

fn line(dice: &mut Dice, record: usize) -> String {
    match dice.below(12) {
        0 => return String::new(),
        1 => return " \t\u{3000}".to_owned(),
        2 => return format!("once{record}"),
        _ => {}
    }
    let mut line = String::with_capacity(LINE_BYTES);
    for _ in 0..dice.below(4) + 1 {
        let word = key(dice, record);
        line.push_str(&word);
        let space: &&str = dice.pick(SPACES);
        line.push_str(space);
        if dice.chance(200) {
            line.push_str(&word);
            line.push(' ');
        }
    }
    line
}

/// Every other key is one of two hot ones.
fn key(dice: &mut Dice, record: usize) -> Cow<'static, str> {
    match dice.below(10) {
        0..5 => WORDS[dice.below(2) as usize].into(),
        5..9 => (*dice.pick(WORDS)).into(),
        _ => format!("cold{record}").into(),
    }
}

/// More than most lines have.
const LINE_BYTES: usize = 64;

const WORDS: &[&str] = &["the", "a", "barrier", "Ärger", "水门", "e\u{301}", "\"quoted\"", "👩‍🚒"];
const SPACES: &[&str] = &[" ", "  ", "\t", "\u{2003}"];
