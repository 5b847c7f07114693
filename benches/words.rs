//! How many words a second are counted in a large text: the engine beside a loop by hand over the
//! same file.
//!
//! `cargo bench --bench words -- [MEGABYTES] [ROUNDS]` writes a text of words that are as unequal
//! as those of a language into a temporary folder, and counts its words in turn by hand and by the
//! engine (exactly once, a checkpoint a second into files), on one core and on two. Each word gives
//! its count so far, which goes into a checksum. The engine does it twice:
//! with words that are a `String` each, and with words that are a `Text`. `CORES only
//! hand|strings|texts` as last words: one of them alone, for a profile.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/exchange.rs"]
mod exchange;
#[path = "common/figures.rs"]
mod figures;
#[path = "common/mixed.rs"]
mod mixed;
#[path = "common/rate.rs"]
mod rate;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use cofferdam::config::JobConfig;
use cofferdam::connector::file::LineSource;
use cofferdam::connector::memory::DiscardSink;
use cofferdam::job::JobBuilder;
use cofferdam::operator::Emit;
use cofferdam::runtime::{FileStore, RunOptions, run};
use cofferdam::state::key_group::Key;
use cofferdam::text::{self, Text};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::exchange::{Peer, Shard, peers};
use crate::figures::{arguments, median};
use crate::mixed::splitmix64;
use crate::rate::rate;

fn main() {
    let numbers = arguments();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (megabytes, rounds) = (number(0, 200), number(1, 3));
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let text = folder.path().join("text");
    let words = write_text(&text, megabytes * 1_000_000).expect("there is room for the text");
    let has = |name: &str| std::env::args().any(|word| word == name);
    if has("only") {
        let cores = number(2, 1) as usize;
        let (rate, _) = if has("hand") {
            by_hand(&text, words, cores)
        } else if has("strings") {
            by_engine(&text, words, cores, into_strings)
        } else {
            by_engine(&text, words, cores, into_texts)
        };
        return println!("{words} words on {cores} cores: {rate:.1} million a second");
    }
    println!("{words} words in {megabytes} MB, medians of {rounds} rounds, million a second:\n");
    println!("| cores | by hand | exactly-once | ratio | with strings |");
    println!("| --- | --- | --- | --- | --- |");
    for cores in [1, 2] {
        let mut rates: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            let (hand, expected) = by_hand(&text, words, cores);
            let (engine, of_texts) = by_engine(&text, words, cores, into_texts);
            let (strings, of_strings) = by_engine(&text, words, cores, into_strings);
            assert_eq!([of_texts, of_strings], [expected; 2], "all count the same words");
            let figures = [hand, engine, engine / hand, strings];
            rates.iter_mut().zip(figures).for_each(|(rates, rate)| rates.push(rate));
        }
        let [hand, engine, ratio, strings] = rates.map(median);
        println!("| {cores} | {hand:.1} | {engine:.1} | {ratio:.2} | {strings:.1} |");
    }
}

/// Million words a second, and the sum of all counts.
type Outcome = (f64, u64);

fn into_strings(line: String, out: &mut dyn Emit<String>) {
    line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
}

fn into_texts(line: String, out: &mut dyn Emit<Text>) {
    text::words(&line).for_each(|word| out.emit(word.into()));
}

fn by_engine<W: Key>(
    text: &Path,
    words: u64,
    cores: usize,
    split: fn(String, &mut dyn Emit<W>),
) -> Outcome {
    let sink = DiscardSink::new(|(_, count): &(W, u64)| *count);
    let builder = JobBuilder::new("words", cores);
    builder
        .source("lines", LineSource::new([text], |_, line: &str| Ok(Some(line.to_owned()))))
        .flat_map("split", split)
        .key_by_ref(|word| word)
        .aggregate("count", 0, |count: &mut u64, _| *count += 1)
        .sink("out", sink.clone());
    let job = builder.build(JobConfig::default()).expect("it can work");
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let store = FileStore::open(folder.path()).expect("the folder is new");
    let started = Instant::now();
    let options = RunOptions { workers: cores, ..RunOptions::new(store) };
    let report = run(&job, options).expect("nothing fails here");
    let rate = rate(words, started);
    assert_eq!(report.records_out, words);
    (rate, sink.checksum())
}

fn by_hand(text: &Path, words: u64, cores: usize) -> Outcome {
    let started = Instant::now();
    let checksum = match cores {
        1 => one_thread(text),
        _ => two_threads(text),
    };
    (rate(words, started), checksum.expect("the text can be read"))
}

#[derive(Default)]
struct Counts {
    counts: HashMap<Vec<u8>, u64, FixedState>,
    checksum: u64,
}

impl Counts {
    #[inline]
    fn count(&mut self, word: &[u8]) {
        let count = self.counts.entry_ref(word).or_insert(0);
        *count += 1;
        self.checksum = self.checksum.wrapping_add(*count);
    }
}

/// Words one behind the other.
#[derive(Default)]
struct Words {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Shard for Counts {
    type Batch = Words;

    fn is_empty(batch: &Words) -> bool {
        batch.ends.is_empty()
    }

    fn is_full(batch: &Words) -> bool {
        batch.ends.len() == BATCH_RECORDS
    }

    fn clear(batch: &mut Words) {
        batch.bytes.clear();
        batch.ends.clear();
    }

    fn take(&mut self, batch: &Words) {
        let mut start = 0;
        for end in &batch.ends {
            self.count(&batch.bytes[start..*end as usize]);
            start = *end as usize;
        }
    }
}

fn one_thread(text: &Path) -> io::Result<u64> {
    let mut counts = Counts::default();
    let length = std::fs::metadata(text)?.len();
    for_each_word(text, 0..length, |word| counts.count(word))?;
    Ok(counts.checksum)
}

fn two_threads(text: &Path) -> io::Result<u64> {
    let length = std::fs::metadata(text)?.len();
    let [first, second] = peers([Counts::default(), Counts::default()]);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| count_part(second, text, length / 2..length));
        let first = count_part(first, text, 0..length / 2)?;
        Ok(first.wrapping_add(other.join().expect("the other thread ends")?))
    })
}

fn count_part(mut peer: Peer<Counts>, text: &Path, part: std::ops::Range<u64>) -> io::Result<u64> {
    for_each_word(text, part, |word| {
        let target = sum_of(word) as usize & 1;
        peer.push(target, |batch| {
            batch.bytes.extend_from_slice(word);
            batch.ends.push(batch.bytes.len() as u32);
        });
    })?;
    Ok(peer.finish().checksum)
}

/// Enough to tell two threads apart.
fn sum_of(word: &[u8]) -> u8 {
    word[0].wrapping_mul(29).wrapping_add(word[word.len() - 1]) >> 1
}

/// The words of the lines that begin in a part of the text.
fn for_each_word(
    text: &Path,
    part: std::ops::Range<u64>,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(text)?);
    let (mut line, mut at) = (Vec::new(), part.start);
    if part.start > 0 {
        reader.seek(SeekFrom::Start(part.start - 1))?;
        at += reader.read_until(b'\n', &mut line)? as u64 - 1;
    }
    while at < part.end {
        line.clear();
        at += reader.read_until(b'\n', &mut line)? as u64;
        line.split(|byte| byte.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .for_each(&mut take);
    }
    Ok(())
}

/// Writes about so many bytes of lines, and says how many words they have.
fn write_text(path: &Path, bytes: u64) -> io::Result<u64> {
    let vocabulary: Vec<String> = (0..VOCABULARY).map(word).collect();
    let mut file = BufWriter::new(File::create(path)?);
    let (mut written, mut words) = (0, 0);
    while written < bytes {
        let in_line = 6 + splitmix64(words) % 10;
        for place in 0..in_line {
            // The word at rank r comes as often as 1 / r, as in a language.
            let chance = (splitmix64(!(words + place)) >> 11) as f64 / (1_u64 << 53) as f64;
            let rank = (VOCABULARY as f64).powf(chance) as usize - 1;
            let end = if place + 1 < in_line { " " } else { "\n" };
            for part in [&vocabulary[rank], end] {
                file.write_all(part.as_bytes())?;
                written += part.len() as u64;
            }
        }
        words += in_line;
    }
    file.flush()?;
    // Read once, so that nobody is the first to wait for the disk.
    io::copy(&mut File::open(path)?, &mut io::sink())?;
    Ok(words)
}

/// The word at a rank: frequent ones are short, and no two are equal.
fn word(rank: u64) -> String {
    let mixed = splitmix64(rank);
    let mut word = String::new();
    let mut rest = rank + 1;
    while rest > 0 {
        word.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    // Told apart by the letters above, whose number is known from the vowels behind them.
    for letter in 0..1 + mixed % 5 {
        word.push(char::from(b"AEIOU"[(mixed >> (8 + 8 * letter)) as usize % 5]));
    }
    word
}

const BATCH_RECORDS: usize = 1024;
const VOCABULARY: u64 = 200_000;
