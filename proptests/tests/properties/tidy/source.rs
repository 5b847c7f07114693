//! Reads Rust source as text: what is code in it, which paths it names, how long its functions are.
//! It knows no grammar; it relies on the layout that rustfmt gives.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of the source tree.
pub(super) struct Source {
    /// From the repository's root, with `/`.
    pub(super) path: String,
    /// As it is in the file.
    pub(super) text: String,
    /// With spaces in place of comments and of what literals hold; same lines and columns.
    pub(super) code: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// The code without the test modules.
    pub(super) fn code_without_tests(&self) -> String {
        if self.path.ends_with("/tests.rs") {
            return String::new();
        }
        without_tests(&self.code)
    }

    /// Its module, as the path's parts below `root`: `src/state/heap.rs` is `[state, heap]`.
    pub(super) fn module(&self, root: &str) -> Vec<String> {
        let inside = self.path.strip_prefix(root).expect("callers ask for files below `root`");
        let name = inside.trim_start_matches('/').trim_end_matches(".rs");
        let mut parts: Vec<String> = name.split('/').map(str::to_owned).collect();
        if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            parts.pop();
        }
        parts
    }

    /// Every path that the code names outside tests, from the root of the crate that has it:
    /// `crate::…` and `super::…` resolved to `[crate, …]`, other crates as they are called.
    pub(super) fn paths(&self, root: &str, crates: &[&str]) -> Vec<Vec<String>> {
        let code = self.code_without_tests();
        let mut paths = Vec::new();
        for (start, tail) in heads(&code, crates) {
            let prefix = resolve(start, &self.module(root));
            expand(prefix, tail, &mut paths);
        }
        paths
    }
}

/// Every Rust file below the folders, in order of their names.
pub(super) fn read_sources(root: &Path, folders: &[&str]) -> Vec<Source> {
    let mut files = Vec::new();
    for folder in folders {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("the tests run where the source is");
        let path = path.strip_prefix(root).expect("the files are below the root");
        Source::new(&path.to_string_lossy().replace('\\', "/"), &text)
    };
    files.into_iter().map(read).collect()
}

/// The functions with the number of lines from the one with `fn` to the closing brace.
pub(super) fn functions(code: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closes = |other: &&str| -> bool {
            let rest = other.strip_prefix(indent).filter(|rest| !rest.starts_with(' '));
            rest.is_some_and(|rest| rest.starts_with('}') || rest.trim_end().ends_with(';'))
        };
        let one_line = line.trim_end().ends_with(['}', ';']);
        let more = lines[first + 1..].iter().position(closes);
        let length = if one_line { 1 } else { more.map_or(1, |more| more + 2) };
        functions.push((name.to_owned(), length));
    }
    functions
}

fn function_name(line: &str) -> Option<&str> {
    let words = ["pub(crate)", "pub(super)", "pub", "const", "async", "extern"];
    let mut rest = line.trim_start();
    while let Some(next) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = next.strip_prefix(' ')?;
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !is_word(c)).next()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("the folder is readable").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Where a path begins that interests us, with the text from there.
fn heads<'a>(code: &'a str, crates: &'a [&str]) -> Vec<(&'a str, &'a str)> {
    let mut heads = Vec::new();
    for word in ["crate", "super"].iter().chain(crates) {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].chars().next_back();
            let tail = &code[at + word.len()..];
            let is_inside = before.is_some_and(|c| is_word(c) || c == ':' || c == '$');
            if !is_inside && let Some(tail) = tail.strip_prefix("::") {
                heads.push((*word, tail));
            }
        }
    }
    heads
}

fn resolve(head: &str, module: &[String]) -> Vec<String> {
    match head {
        "super" => {
            let above = &module[..module.len().saturating_sub(1)];
            let root = std::iter::once("crate".to_owned());
            root.chain(above.iter().cloned()).collect()
        }
        head => vec![head.to_owned()],
    }
}

/// Takes a path, or the tree of a `use`, from the front of the text.
fn expand<'a>(mut prefix: Vec<String>, text: &'a str, paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text.trim_start();
    loop {
        if let Some(mut inside) = rest.strip_prefix('{') {
            while !inside.trim_start().starts_with('}') {
                let after = expand(prefix.clone(), inside, paths);
                let after = after.trim_start().trim_start_matches(',');
                if after.len() == inside.len() {
                    return "";
                }
                inside = after;
            }
            return inside.trim_start().strip_prefix('}').unwrap_or("");
        }
        let end = rest.find(|c: char| !is_word(c) && c != '*').unwrap_or(rest.len());
        match &rest[..end] {
            "super" => drop(prefix.pop()),
            "self" => {}
            name => prefix.push(name.to_owned()),
        }
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) if !more.starts_with('<') => rest = more,
            _ => break,
        }
    }
    paths.push(prefix);
    let alias = rest.trim_start().strip_prefix("as ").map(str::trim_start);
    alias.map_or(rest, |alias| alias.trim_start_matches(is_word))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        let opens = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| {
                next.trim_start().starts_with("mod ") && next.trim_end().ends_with('{')
            });
        if !opens {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        lines.by_ref().find(|line| line.trim_end() == end);
    }
    kept
}

/// Puts spaces in place of comments and of the insides of literals.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (opening, length) = literal(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let hidden = &rest[opening..length];
        code.push_str(&rest[..opening]);
        code.extend(hidden.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    code
}

/// If a comment or literal begins here: how much of it stays to be seen, and where it ends.
fn literal(rest: &str, before: Option<char>) -> (usize, usize) {
    let end_of = |from: usize, end: &str| {
        rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return (0, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (0, end_of(2, "*/"));
    }
    if let Some(inside) = rest.strip_prefix('"') {
        return (1, 1 + escaped(inside, '"'));
    }
    let may_be_raw = !before.is_some_and(|c| is_word(c) && c != 'b');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| may_be_raw) {
        let inside = raw.trim_start_matches('#');
        let hashes = raw.len() - inside.len();
        if inside.starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return (2 + hashes, end_of(2 + hashes, &end));
        }
    }
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut chars = inside.chars();
        let is_char = match chars.next() {
            Some('\\') => true,
            Some(_) => chars.next() == Some('\''),
            None => false,
        };
        if is_char {
            return (1, 1 + escaped(inside, '\''));
        }
    }
    (0, 0)
}

/// The bytes up to and with the quote that ends the literal.
fn escaped(inside: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    inside.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(path: &str, text: &str) -> Vec<String> {
        let paths = Source::new(path, text).paths("src", &["cofferdam"]);
        paths.into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let text = "a /* b */ \"c \\\" d\" r#\"e \" f\"# '\\'' 'g' &'static str // h\ni";
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        let words: Vec<_> = code.split(|c: char| !is_word(c)).filter(|w| !w.is_empty()).collect();
        assert_eq!(words, ["a", "r", "static", "str", "i"]);
    }

    #[test]
    fn use_trees_give_every_path() {
        let text = "use crate::{id::{A, B as C}, state::{self, codec}};\nuse cofferdam::time::*;";
        assert_eq!(
            paths("src/task/mod.rs", text),
            ["crate::id::A", "crate::id::B", "crate::state", "crate::state::codec"]
                .into_iter()
                .chain(["cofferdam::time::*"])
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn paths_in_expressions_and_above_are_seen() {
        assert_eq!(
            paths("src/drive.rs", "fn f() { crate::task::run::<u8>() }"),
            ["crate::task::run"]
        );
        assert_eq!(
            paths("src/drive.rs", "use super::runtime::Worker;"),
            ["crate::runtime::Worker"]
        );
        assert_eq!(paths("src/task/gate.rs", "use super::super::job::Job;"), ["crate::job::Job"]);
    }

    #[test]
    fn tests_are_left_out() {
        let text = "use crate::id;\n#[cfg(test)]\nmod tests {\n    use crate::task;\n}\n";
        assert_eq!(paths("src/time.rs", text), ["crate::id"]);
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let code = "
impl A {
    pub(crate) fn long(
        a: u8,
    ) -> u8 {
        if a {
        }
    }

    const fn one() {}
}
trait B {
    fn declared(
        &self,
    ) -> u8;
    fn f();
}
";
        let expected = [("long", 6), ("one", 1), ("declared", 3), ("f", 1)];
        let found = functions(code);
        assert_eq!(found, expected.map(|(name, length)| (name.to_owned(), length)));
    }
}
