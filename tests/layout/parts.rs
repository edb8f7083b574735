//! Files and folders: small, with a head comment, `unsafe` only where it may be, the top level as agreed.

use std::fs;

use proc_macro2::{Delimiter, TokenTree};

use super::paths::{inside, is, tokens, word_of};
use super::table::{MAX_LINES, MAX_PARAMETERS, README_FOLDERS, TOP_LEVEL, UNSAFE};
use super::{root, sources};

#[test]
fn files_are_small() {
    let large: Vec<String> = sources()
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(large.is_empty(), "split these by idea, {MAX_LINES} lines at most:\n{}", large.join("\n"));
}

/// True if the code, not its comments, strings or lints, contains `unsafe`.
fn says_unsafe(tokens: &[TokenTree]) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Group(group) => says_unsafe(&inside(group)),
        _ => word_of(token) == "unsafe",
    })
}

#[test]
fn unsafe_is_only_where_it_may_be() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(path, _)| {
            !UNSAFE.iter().any(|allowed| path == allowed || (allowed.ends_with('/') && path.starts_with(allowed)))
        })
        .filter(|(_, text)| says_unsafe(&tokens(text)))
        .map(|(path, _)| path)
        .collect();
    assert!(found.is_empty(), "`unsafe` outside the files that tests/layout/table.rs names:\n{}", found.join("\n"));
}

#[test]
fn all_forms_of_unsafe_are_seen() {
    for text in ["fn f() { unsafe { g() } }", "unsafe impl Send for A {}", "unsafe fn f() {}", "m! { x => unsafe {} }"]
    {
        assert!(says_unsafe(&tokens(text)), "{text}");
    }
    for text in ["// unsafe { }\nfn f() {}", "const A: &str = \"unsafe {\";", "#![deny(unsafe_code)]"] {
        assert!(!says_unsafe(&tokens(text)), "{text}");
    }
}

/// Functions and how many parameters each has.
fn functions(tokens: &[TokenTree], found: &mut Vec<(String, usize)>) {
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            functions(&inside(group), found);
        }
        let name = tokens.get(at + 1).map(word_of).unwrap_or_default();
        if word_of(token) != "fn" || name.is_empty() {
            continue;
        }
        // Bounds like `F: Fn(A, B)` come first, between `<` and `>`.
        let mut depth = 0_i32;
        for at in at + 2..tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) if depth == 0 && group.delimiter() == Delimiter::Parenthesis => {
                    found.push((name, parameters(&inside(group))));
                    break;
                }
                token if is(token, '<') => depth += 1,
                token if is(token, '>') && !is(&tokens[at - 1], '-') => depth -= 1,
                _ => {}
            }
        }
    }
}

fn parameters(tokens: &[TokenTree]) -> usize {
    let (mut depth, mut number, mut filled) = (0_i32, 0, false);
    for (at, token) in tokens.iter().enumerate() {
        if is(token, ',') && depth == 0 {
            number += usize::from(filled);
            filled = false;
            continue;
        }
        filled = true;
        if is(token, '<') {
            depth += 1;
        } else if is(token, '>') && !(at > 0 && (is(&tokens[at - 1], '-') || is(&tokens[at - 1], '='))) {
            depth -= 1;
        }
    }
    number + usize::from(filled)
}

#[test]
fn functions_have_few_parameters() {
    let mut wide = Vec::new();
    for (path, text) in sources() {
        let mut found = Vec::new();
        functions(&tokens(&text), &mut found);
        for (name, number) in found.into_iter().filter(|(_, number)| *number > MAX_PARAMETERS) {
            wide.push(format!("{path}: {name} has {number}"));
        }
    }
    assert!(wide.is_empty(), "put what belongs together into a struct, {MAX_PARAMETERS} at most:\n{}", wide.join("\n"));
}

#[test]
fn parameters_are_counted_as_written() {
    for (text, number) in [
        ("fn f() {}", 0),
        ("fn f(&self,) {}", 1),
        ("fn f<F: Fn(A, B) -> C>(a: (X, Y), b: Map<K, V>, c: F) {}", 3),
        ("fn f(a: fn(A) -> B, b: impl Fn(C, D) -> E<F, G>, c: [u8; 3]) {}", 3),
        ("impl A { fn f(&mut self, a: A, b: B, c: C, d: D, e: E, f: F) {} }", 7),
        ("m! { fn f(a: A, b: B) }", 2),
    ] {
        let mut found = Vec::new();
        functions(&tokens(text), &mut found);
        assert_eq!(found, [("f".to_owned(), number)], "{text}");
    }
}

#[test]
fn every_file_says_what_it_is() {
    let says = |text: &str| {
        text.lines().next().and_then(|head| head.strip_prefix("//! ")).is_some_and(|head| head.contains(' '))
    };
    let silent: Vec<String> = sources().into_iter().filter(|(_, text)| !says(text)).map(|(path, _)| path).collect();
    assert!(silent.is_empty(), "begin these with a line `//! …` that describes their contents:\n{}", silent.join("\n"));
}

#[test]
fn every_folder_explains_itself() {
    for folder in README_FOLDERS {
        let path = root().join(folder).join("README.md");
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.lines().count() > 10, "{} is missing or says nothing", path.display());
    }
}

#[test]
fn the_top_level_is_as_agreed() {
    for entry in fs::read_dir(root()).expect("the root").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = !name.starts_with('.') && name != "target" && !name.starts_with("history.db");
        assert!(
            !is_ours || TOP_LEVEL.contains(&&*name),
            "{name} is new at the top level: move it into a folder, or add it to TOP_LEVEL in tests/layout/table.rs"
        );
    }
}
