//! Collection of the repository's texts for users.

use std::fs;

use proc_macro2::{Delimiter, TokenTree};

use crate::layout::paths::{inside, is, is_cfg_test, item_end, tokens, word_of};
use crate::layout::{root, sources};

/// One text and its place.
pub(super) struct Text {
    pub file: String,
    pub line: usize,
    pub text: String,
    /// Printed as help of the command line.
    pub is_help: bool,
}

/// Files of the repository with that ending, by their path from the root.
fn named(ending: &str) -> Vec<(String, String)> {
    fn walk(folder: &str, ending: &str, found: &mut Vec<(String, String)>) {
        let mut entries: Vec<_> = fs::read_dir(root().join(folder)).expect("a folder").flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.path().is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push((path, fs::read_to_string(entry.path()).expect("a text file")));
            }
        }
    }
    let mut found = Vec::new();
    walk("", ending, &mut found);
    found
}

/// All texts for users.
pub(super) fn all() -> Vec<Text> {
    let mut texts = Vec::new();
    for (path, text) in sources() {
        let is_test = path.ends_with("tests.rs") || path.split('/').any(|part| matches!(part, "tests" | "benches"));
        if path.contains("/src/") && !is_test {
            texts.extend(of_source(&path, &text));
        }
    }
    for (path, text) in named(".md") {
        texts.extend(of_markdown(&path, &text));
    }
    for (path, text) in named(".toml") {
        if path == "policies.toml" || path.contains("/presets/") {
            texts.extend(of_comments(&path, &text));
        }
    }
    for (path, text) in named(".schema.json") {
        let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("\"description\""));
        texts.extend(lines.map(|(number, line)| Text {
            file: path.clone(),
            line: number + 1,
            text: line.to_owned(),
            is_help: false,
        }));
    }
    texts
}

/// Literals of a source, and comments that become help.
pub(super) fn of_source(file: &str, text: &str) -> Vec<Text> {
    let mut found = Vec::new();
    walk(&tokens(text), false, &mut |line, text, is_help| {
        found.push(Text { file: file.to_owned(), line, text, is_help });
    });
    found
}

fn walk(tokens: &[TokenTree], is_help: bool, found: &mut dyn FnMut(usize, String, bool)) {
    let mut at = 0;
    // Whether the attributes before the item at hand make it one of clap's.
    let mut clap = is_help;
    while let Some(token) = tokens.get(at) {
        if is(token, '#')
            && let Some(TokenTree::Group(group)) = tokens.get(at + 1)
            && group.delimiter() == Delimiter::Bracket
        {
            if is_cfg_test(group) {
                at = item_end(tokens, at);
                continue;
            }
            clap |= makes_help(&tokens[at..]);
            attribute(&inside(group), clap, found);
            at += 2;
            continue;
        }
        if is(token, '#')
            && let Some([bang, TokenTree::Group(group)]) = tokens.get(at + 1..at + 3)
            && is(bang, '!')
        {
            attribute(&inside(group), false, found);
            at += 3;
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                walk(&inside(group), clap, found);
                if group.delimiter() == Delimiter::Brace {
                    clap = is_help;
                }
            }
            TokenTree::Literal(_) => literal(token, false, found),
            _ if is(token, ';') => clap = is_help,
            _ => {}
        }
        at += 1;
    }
}

/// True if one of the attributes that begin here derives a part of the command line.
fn makes_help(tokens: &[TokenTree]) -> bool {
    let pairs = tokens.chunks(2).map_while(|pair| match pair {
        [sign, TokenTree::Group(group)] if is(sign, '#') => Some(inside(group)),
        _ => None,
    });
    pairs.filter(|words| words.first().is_some_and(|head| word_of(head) == "derive")).any(|words| {
        let Some(TokenTree::Group(derived)) = words.get(1) else { return false };
        inside(derived).iter().any(|word| matches!(&*word_of(word), "Args" | "Parser" | "Subcommand" | "ValueEnum"))
    })
}

fn attribute(words: &[TokenTree], clap: bool, found: &mut dyn FnMut(usize, String, bool)) {
    match words.first().map(word_of).unwrap_or_default().as_str() {
        // Reasons are for readers of the code.
        "expect" | "allow" | "must_use" | "deprecated" => {}
        "doc" if clap => words.iter().for_each(|word| literal(word, true, found)),
        "doc" => {}
        _ => walk(words, false, found),
    }
}

fn literal(token: &TokenTree, is_help: bool, found: &mut dyn FnMut(usize, String, bool)) {
    let TokenTree::Literal(literal) = token else { return };
    let written = literal.to_string();
    let quoted = written.trim_start_matches(['b', 'c', 'r', '#']);
    let raw = quoted.len() < written.len();
    let Some(text) = quoted.trim_end_matches('#').strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return;
    };
    // A literal continued after `\` is one line of text; a hit is reported at its first line.
    let text = if raw { text.to_owned() } else { text.replace("\\\n", " ").replace("\\n", " ").replace("\\\"", "\"") };
    let text = without_arguments(&text);
    // One word is a name: of a key, a column, a metric.
    if !text.trim().contains(' ') {
        return;
    }
    found(literal.span().start().line, text, is_help);
}

/// A format string without the names between its braces.
fn without_arguments(text: &str) -> String {
    let mut depth = 0_usize;
    let blank = |sign: char| match sign {
        '{' => {
            depth += 1;
            sign
        }
        '}' => {
            depth = depth.saturating_sub(1);
            sign
        }
        _ if depth > 0 && sign != '\n' => '_',
        _ => sign,
    };
    text.chars().map(blank).collect()
}

/// A document without its code.
pub(super) fn of_markdown(file: &str, text: &str) -> Vec<Text> {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        if !fenced && !fence {
            // Every second part lies between backticks.
            let parts: Vec<&str> = line.split('`').step_by(2).collect();
            prose.push_str(&parts.join("…"));
        }
        prose.push('\n');
        fenced ^= fence;
    }
    vec![Text { file: file.to_owned(), line: 1, text: prose, is_help: false }]
}

/// Comments of a TOML file.
pub(super) fn of_comments(file: &str, text: &str) -> Vec<Text> {
    let mut comments = String::new();
    for line in text.lines() {
        let quotes = |at: usize| line[..at].matches('"').count();
        let start = line.match_indices('#').map(|(at, _)| at).find(|&at| quotes(at) % 2 == 0);
        comments.push_str(start.map_or("", |at| line[at + 1..].trim()));
        comments.push('\n');
    }
    vec![Text { file: file.to_owned(), line: 1, text: comments, is_help: false }]
}
