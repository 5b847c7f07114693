//! Lines, numbers and clicks for the jobs that keep one value a key: few hot keys, some cold ones.

use crate::jobs::row::Entry;
use crate::workload::draw::Draw;

/// Lines of words: empty ones, blank ones, words that repeat within a line, words of many scripts,
/// now and then a word that comes only once.
pub fn lines(draw: &mut Draw, records: usize) -> Vec<Entry<()>> {
    (0..records).map(|record| Entry::new(line(draw, record), ())).collect()
}

/// Few whole lines that come again and again, and some that come once.
pub fn repeated_lines(draw: &mut Draw, records: usize) -> Vec<Entry<()>> {
    let key = |draw: &mut Draw, record| match draw.below(8) {
        0 => String::new(),
        1 => format!("once {record}"),
        _ => format!("line {}", draw.pick(WORDS)),
    };
    (0..records).map(|record| Entry::new(key(draw, record), ())).collect()
}

/// Keys with values that are small, negative, zero or at the ends of their range.
pub fn numbers(draw: &mut Draw, records: usize) -> Vec<Entry<i64>> {
    let value = |draw: &mut Draw| match draw.below(16) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => 0,
        _ => draw.between(-100, 100),
    };
    (0..records).map(|record| Entry::new(key(draw, record), value(draw))).collect()
}

/// Campaigns with prices, free clicks and the greatest price among them.
pub fn prices(draw: &mut Draw, records: usize) -> Vec<Entry<u64>> {
    let value = |draw: &mut Draw| match draw.below(16) {
        0 => u64::MAX,
        1 => 0,
        _ => draw.below(5_000_000),
    };
    (0..records).map(|record| Entry::new(key(draw, record), value(draw))).collect()
}

fn line(draw: &mut Draw, record: usize) -> String {
    match draw.below(12) {
        0 => return String::new(),
        1 => return " \t\u{3000}".to_owned(),
        2 => return format!("once{record}"),
        _ => {}
    }
    let mut line = String::new();
    for _ in 0..draw.below(4) + 1 {
        let word = key(draw, record);
        line.push_str(&word);
        line.push_str(draw.pick(SPACES));
        if draw.chance(20) {
            line.push_str(&word);
            line.push(' ');
        }
    }
    line
}

/// Every other key is one of two hot ones.
fn key(draw: &mut Draw, record: usize) -> String {
    match draw.below(10) {
        0..5 => WORDS[draw.below(2) as usize].to_owned(),
        5..9 => draw.pick(WORDS).to_owned(),
        _ => format!("cold{record}"),
    }
}

const WORDS: &[&str] = &["the", "a", "barrier", "Ärger", "水门", "e\u{301}", "\"quoted\"", "👩‍🚒"];
const SPACES: &[&str] = &[" ", "  ", "\t", "\u{2003}"];
