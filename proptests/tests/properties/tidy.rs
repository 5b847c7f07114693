//! The rules of the house that no compiler checks, over the text of the source tree.

mod source;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use source::{Source, functions, read_sources};

/// The modules of the engine from the bottom up. A module names its own layer's modules only where
/// the layer says so, and never a higher one. ARCHITECTURE.md shows the same table.
const LAYERS: [Layer; 7] = [
    Layer { modules: &["id", "time", "guarantee", "text", "processor"], knows_itself: false },
    Layer {
        modules: &[
            "element",
            "message",
            "storage",
            "trace",
            "config",
            "graph",
            "state::codec",
            "state::hash",
            "state::key_group",
            "state::snapshot",
        ],
        knows_itself: true,
    },
    Layer { modules: &["state", "barrier"], knows_itself: false },
    Layer { modules: &["operator"], knows_itself: false },
    Layer { modules: &["task", "coordinator"], knows_itself: false },
    Layer { modules: &["drive", "job", "durable", "sync"], knows_itself: false },
    Layer { modules: &["connector", "runtime"], knows_itself: false },
];

/// What a module may not name although it is lower.
const BANS: [(&str, &[&str]); 2] = [
    ("coordinator", &["state", "barrier", "operator"]),
    ("connector", &["barrier", "task", "coordinator", "drive", "job"]),
];

/// What the judges may name of the engine.
const KNOWN_TO_JUDGES: [&str; 4] = ["id", "time", "guarantee", "trace"];

/// The only places for unsafe code.
const UNSAFE_PLACES: [&str; 2] = ["src/sync/", "src/processor.rs"];

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 800;
/// Functions that are longer, by file and name, with their lines. They may only get shorter.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

const FOLDERS: [&str; 8] = [
    "src",
    "benches",
    "tests",
    "sim/src",
    "sim/tests",
    "sim/benches",
    "proptests/src",
    "proptests/tests",
];
/// Marks of work that is not done, or hidden.
const BANNED: [&str; 4] = ["todo!", "dbg!", "unimplemented!", "allow(dead_code)"];

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| read_sources(&root(), &FOLDERS));

struct Layer {
    modules: &'static [&'static str],
    knows_itself: bool,
}

#[test]
fn modules_name_lower_layers_only() {
    assert_none(sources().iter().flat_map(layer_breaches).collect());
}

#[test]
fn every_layered_module_exists() {
    let lib = read("src/lib.rs");
    let state = read("src/state/mod.rs");
    let is_there = |module: &str| match module.strip_prefix("state::") {
        Some(module) => state.contains(&format!("mod {module};")),
        None => lib.contains(&format!("mod {module};")),
    };
    let modules = LAYERS.iter().flat_map(|layer| layer.modules);
    assert_none(modules.filter(|module| !is_there(module)).collect());
}

#[test]
fn architecture_shows_the_layers() {
    let page = read("docs/ARCHITECTURE.md");
    assert_none(layer_rows().into_iter().filter(|row| !page.contains(row.as_str())).collect());
    let shown = page.lines().filter(|line| line.starts_with("| ") && is_layer_row(line));
    assert_eq!(shown.count(), LAYERS.len(), "rows of the layer table in ARCHITECTURE.md");
}

#[test]
fn only_the_command_line_meets_threads() {
    assert_none(sources().iter().flat_map(thread_breaches).collect());
}

#[test]
fn judges_know_nothing_of_the_judged() {
    assert_none(sources().iter().flat_map(judge_breaches).collect());
}

#[test]
fn one_module_knows_the_encoding() {
    let all = sources();
    let named = all.iter().filter(|source| !source.path.starts_with("proptests/"));
    let others = named.filter(|source| source.path != "src/state/codec.rs");
    let breaches = others.filter(|source| source.code.contains("bincode::"));
    assert_none(breaches.map(|source| &source.path).collect());
}

#[test]
fn one_module_has_unsafe_code() {
    assert_none(sources().iter().flat_map(unsafe_breaches).collect());
}

#[test]
fn lines_fit() {
    assert_none(sources().iter().flat_map(long_lines).collect());
}

#[test]
fn functions_fit() {
    assert_none(sources().iter().flat_map(long_functions).collect());
}

#[test]
fn long_functions_are_listed_as_they_are() {
    let all = sources();
    let is_there = |(path, name, lines): &(&str, &str, usize)| {
        let of_path = all.iter().find(|source| source.path == *path);
        of_path
            .is_some_and(|source| functions(&source.code).contains(&((*name).to_owned(), *lines)))
    };
    assert_none(LONG_FUNCTIONS.iter().filter(|listed| !is_there(listed)).collect::<Vec<_>>());
}

#[test]
fn files_fit() {
    let lengths = sources().iter().map(|source| {
        let lines = source.code_without_tests().lines().count();
        (&source.path, lines)
    });
    assert_none(lengths.filter(|(_, lines)| *lines > FILE_LINES_MAX).collect());
}

#[test]
fn nothing_is_left_undone_or_hidden() {
    assert_none(sources().iter().flat_map(banned_marks).collect());
}

#[test]
fn every_judge_is_explained() {
    let page = read("docs/INVARIANTS.md");
    assert_none(sources().iter().flat_map(|source| unexplained(source, &page)).collect());
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = std::fs::read_dir(root().join("docs")).expect("the pages are part of the tree");
    let pages = pages.map(|entry| entry.expect("the folder is readable").path());
    let mut pages: Vec<PathBuf> = pages.chain([root().join("README.md")]).collect();
    pages.sort();
    let dead = pages.iter().flat_map(|page| {
        let text = std::fs::read_to_string(page).expect("a page is text");
        let folder = page.parent().expect("a page lies in a folder").to_owned();
        let links: Vec<String> = links(&text).map(str::to_owned).collect();
        links.into_iter().filter(move |link| !folder.join(link).exists())
    });
    assert_none(dead.collect());
}

fn layer_breaches(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") || source.path == "src/lib.rs" {
        return Vec::new();
    }
    let module = layered(&source.module("src"));
    let Some(own) = layer_of(&module) else {
        return vec![format!("{}: `{module}` has no layer", source.path)];
    };
    let mut breaches = Vec::new();
    for path in source.paths("src", &[]) {
        let named = layered(&path[1..]);
        if named == module {
            continue;
        }
        let may = layer_of(&named)
            .is_some_and(|layer| layer < own || (layer == own && LAYERS[own].knows_itself));
        let bans = BANS.iter().filter(|(by, _)| *by == module).flat_map(|(_, named)| *named);
        if !may || bans.into_iter().any(|ban| *ban == named) {
            breaches.push(format!("{}: `{module}` names `{}`", source.path, path.join("::")));
        }
    }
    breaches
}

/// The part of a module's path that has a layer.
fn layered(path: &[String]) -> String {
    let two = path.get(..2).map(|parts| parts.join("::")).unwrap_or_default();
    let first = path.first().cloned().unwrap_or_default();
    if layer_of(&two).is_some() { two } else { first }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.modules.contains(&module))
}

fn layer_rows() -> Vec<String> {
    let row = |(number, layer): (usize, &Layer)| {
        let modules: Vec<_> = layer.modules.iter().map(|module| format!("`{module}`")).collect();
        let itself = if layer.knows_itself { "yes" } else { "no" };
        format!("| {number} | {} | {itself} |", modules.join(", "))
    };
    LAYERS.iter().enumerate().map(row).collect()
}

fn is_layer_row(line: &str) -> bool {
    line[2..].split(' ').next().is_some_and(|word| word.parse::<usize>().is_ok())
}

fn thread_breaches(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    if !path.starts_with("sim/src/") || path.starts_with("sim/src/cli") {
        return Vec::new();
    }
    let mut named = source.paths("sim/src", &["cofferdam"]);
    let over_files = path.starts_with("sim/src/jobs/");
    named.retain(|path| {
        let of_engine = path[0] == "cofferdam";
        let part = path.get(1).map(String::as_str);
        of_engine && (part == Some("runtime") || (part == Some("connector") && !over_files))
    });
    named.iter().map(|named| format!("{path}: {}", named.join("::"))).collect()
}

fn judge_breaches(source: &Source) -> Vec<String> {
    if !source.path.starts_with("sim/src/oracle/") {
        return Vec::new();
    }
    let may = |path: &Vec<String>| {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        match parts[..] {
            ["cofferdam", "message", "AbortReason", ..] => true,
            ["cofferdam", module, ..] => KNOWN_TO_JUDGES.contains(&module),
            ["crate", module, ..] => module == "oracle",
            _ => false,
        }
    };
    let named = source.paths("sim/src", &["cofferdam"]).into_iter();
    let breaches = named.filter(|path| !may(path));
    breaches.map(|named| format!("{}: {}", source.path, named.join("::"))).collect()
}

/// Unsafe code where there may be none, and blocks of it that do not say why they are sound.
fn unsafe_breaches(source: &Source) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has_word = |line: &str| line.split(|c| !is_word(c)).any(|word| word == "unsafe");
    let texts: Vec<&str> = source.text.lines().collect();
    let code = source.code.lines().enumerate().filter(|(_, line)| has_word(line));
    let is_sound = |number: usize| {
        let above = texts[..number].iter().rev().map(|line| line.trim_start());
        let mut comment = above.take_while(|line| line.starts_with("//"));
        let is_allowed = UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place));
        is_allowed && comment.any(|line| line.contains("SAFETY: "))
    };
    let breaches = code.filter(|(number, _)| !is_sound(*number));
    breaches.map(|(number, _)| format!("{}:{}", source.path, number + 1)).collect()
}

fn long_lines(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    let long = lines.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    long.map(|(number, _)| format!("{}:{}", source.path, number + 1)).collect()
}

fn long_functions(source: &Source) -> Vec<String> {
    let listed = |name: &str| {
        let of_name = LONG_FUNCTIONS.iter().find(|(p, n, _)| *p == source.path && *n == name);
        of_name.map_or(FUNCTION_LINES_MAX, |(_, _, lines)| *lines)
    };
    let long = functions(&source.code).into_iter().filter(|(name, lines)| *lines > listed(name));
    long.map(|(name, lines)| format!("{}: {name} has {lines} lines", source.path)).collect()
}

fn banned_marks(source: &Source) -> Vec<String> {
    let found = BANNED.iter().filter(|mark| source.code.contains(**mark));
    found.map(|mark| format!("{}: {mark}", source.path)).collect()
}

/// The judge in this file, if there is one, unless the page has a row for it that names the file.
fn unexplained(source: &Source, page: &str) -> Option<String> {
    let file = source.path.strip_prefix("sim/src/oracle/")?;
    let (_, judge) = source.text.split_once("const ORACLE: Oracle")?;
    let name = judge.split('"').nth(1).unwrap_or_default();
    let row = format!("| `{name}` |");
    let mut rows = page.lines().filter(|line| line.starts_with(&row));
    let is_explained = rows.any(|line| line.contains(&format!("`oracle/{file}`")));
    (!is_explained).then(|| format!("{name} in oracle/{file}"))
}

/// The files that a page links to.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

fn sources() -> &'static [Source] {
    &SOURCES
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the file is part of the source tree")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[track_caller]
fn assert_none<T: std::fmt::Debug>(breaches: Vec<T>) {
    assert!(breaches.is_empty(), "{breaches:#?}");
}

/// Each check finds what it is for.
mod planted {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    #[test]
    fn a_lower_layer_that_names_a_higher_one() {
        let upwards = source("src/barrier/mod.rs", "use crate::operator::Emit;");
        assert_eq!(layer_breaches(&upwards).len(), 1);
        let downwards = source("src/barrier/mod.rs", "use crate::{id::TaskId, message::X};");
        assert_none(layer_breaches(&downwards));
    }

    #[test]
    fn peers_that_name_each_other() {
        for (path, named) in [
            ("src/task/gate.rs", "crate::coordinator::Phase"),
            ("src/coordinator/mod.rs", "crate::task::Task"),
            ("src/barrier/mod.rs", "crate::state::heap::Keyed"),
            ("src/runtime/mod.rs", "crate::connector::memory::Numbers"),
        ] {
            let peer = source(path, &format!("fn f() {{ {named}::new() }}"));
            assert_eq!(layer_breaches(&peer).len(), 1, "{path}");
        }
        assert_none(layer_breaches(&source("src/trace.rs", "use crate::message::AbortReason;")));
    }

    #[test]
    fn a_coordinator_that_names_state() {
        let banned = source("src/coordinator/mod.rs", "use crate::state::heap::KeyedState;");
        assert_eq!(layer_breaches(&banned).len(), 1);
        let words = source("src/coordinator/mod.rs", "use crate::state::snapshot::Share;");
        assert_none(layer_breaches(&words));
    }

    #[test]
    fn a_module_without_a_layer() {
        assert_eq!(layer_breaches(&source("src/extra.rs", "")).len(), 1);
        assert_eq!(layer_breaches(&source("src/time.rs", "use crate::extra::A;")).len(), 1);
    }

    #[test]
    fn a_simulator_with_threads() {
        let text = "fn f() { cofferdam::runtime::run() }";
        assert_eq!(thread_breaches(&source("sim/src/world/mod.rs", text)).len(), 1);
        assert_none(thread_breaches(&source("sim/src/cli/run.rs", text)));
        let text = "use cofferdam::connector::memory::Numbers;";
        assert_eq!(thread_breaches(&source("sim/src/run.rs", text)).len(), 1);
        assert_none(thread_breaches(&source("sim/src/jobs/files.rs", text)));
    }

    #[test]
    fn a_judge_that_looks_into_the_judged() {
        let engine = ["cofferdam::task::Task", "cofferdam::message::ToTask"];
        for named in engine.into_iter().chain(["crate::world::World"]) {
            let judge = source("sim/src/oracle/cut.rs", &format!("use {named};"));
            assert_eq!(judge_breaches(&judge).len(), 1, "{named}");
        }
        let judge = "use cofferdam::{id::TaskId, message::AbortReason};\nuse super::Facts;";
        assert_none(judge_breaches(&source("sim/src/oracle/cut.rs", judge)));
    }

    #[test]
    fn unsafe_code_elsewhere_or_without_a_reason() {
        let text = "fn f() {\n    // SAFETY: it is not.\n    unsafe { g() }\n}";
        assert_none(unsafe_breaches(&source("src/sync/ring.rs", text)));
        assert_eq!(unsafe_breaches(&source("src/state/heap.rs", text)), ["src/state/heap.rs:3"]);
        let silent = source("src/sync/ring.rs", "fn f() {\n    unsafe { g() }\n}");
        assert_eq!(unsafe_breaches(&silent), ["src/sync/ring.rs:2"]);
        assert_none(unsafe_breaches(&source("src/lib.rs", "// unsafe\n#![deny(unsafe_code)]")));
    }

    #[test]
    fn a_long_line_and_a_long_function() {
        let line = source("src/time.rs", &"é".repeat(COLUMNS_MAX));
        assert_none(long_lines(&line));
        let line = source("src/time.rs", &"é".repeat(COLUMNS_MAX + 1));
        assert_eq!(long_lines(&line), ["src/time.rs:1"]);
        let body = "    f();\n".repeat(FUNCTION_LINES_MAX - 2);
        assert_none(long_functions(&source("src/time.rs", &format!("fn g() {{\n{body}}}\n"))));
        let body = "    f();\n".repeat(FUNCTION_LINES_MAX - 1);
        let long = source("src/time.rs", &format!("fn g() {{\n{body}}}\n"));
        assert_eq!(long_functions(&long), ["src/time.rs: g has 71 lines"]);
    }

    #[test]
    fn work_that_is_not_done() {
        for mark in BANNED {
            let code = source("src/time.rs", &format!("fn f() {{ {mark} }}"));
            assert_eq!(banned_marks(&code).len(), 1);
            assert_none(banned_marks(&source("src/time.rs", &format!("// {mark}"))));
        }
    }

    #[test]
    fn a_judge_that_no_page_explains() {
        let text = "const ORACLE: Oracle = Oracle { name: \"cut\", judge };";
        let judge = source("sim/src/oracle/c3_cut.rs", text);
        let mentioned = unexplained(&judge, "`cut`, see `oracle/c3_cut.rs`");
        assert_eq!(mentioned.as_deref(), Some("cut in oracle/c3_cut.rs"));
        assert_eq!(unexplained(&judge, "| `cut` | what for | `oracle/c3_cut.rs` |"), None);
        assert_eq!(unexplained(&source("sim/src/oracle/values.rs", "fn f() {}"), ""), None);
    }
    #[test]
    fn links_of_a_page() {
        let page = "[a](A.md), [b](../B.md#part), [here](#part), [there](https://example.org)";
        assert_eq!(links(page).collect::<Vec<_>>(), ["A.md", "../B.md"]);
    }
}
