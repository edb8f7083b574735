//! Modules that a source file names: every path that starts at a crate's root or climbs towards it, wherever it is written.
//!
//! Reads tokens, not a syntax tree: so a path counts the same in a `use` with groups, in an expression, a type, an
//! attribute, the arguments of a macro or the body of one. Items under `#[cfg(test)]` are skipped: tests put parts together.
//!
//! A relative path needs no reading. It can leave its module only through a name that some `use` bound to a crate's root,
//! and binding such a name is reported as [`Target::Hidden`], as is everything else that hides where a path leads.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// One source file of a crate.
pub(super) struct Source<'a> {
    /// The crate's name in paths, `gorgo_core`.
    pub krate: &'a str,
    /// The file's module, outermost first; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    pub text: &'a str,
}

/// A named module, or the reason why the path cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Module { krate: String, module: String },
    Hidden(&'static str),
}

/// One mention.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    pub line: usize,
    /// Top-level module that mentions; `lib` for the root file itself.
    pub from: String,
    pub target: Target,
}

/// All that a file mentions.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    pub arrows: Vec<Arrow>,
    /// Modules with their own files that exist in tests only.
    pub test_modules: Vec<Vec<String>>,
    /// The whole file is for tests: it says `#![cfg(test)]`.
    pub test_only: bool,
}

/// Reads a file. `crates` are the workspace's own, as named in paths.
///
/// # Panics
/// The text is no Rust.
pub(super) fn mentions(source: &Source<'_>, crates: &[&str]) -> Mentions {
    let tokens = tokens(source.text);
    let mut reader = Reader { krate: source.krate, crates, module: source.module.clone(), found: Mentions::default() };
    reader.found.test_only = tokens.windows(3).any(|three| {
        matches!(three, [first, bang, TokenTree::Group(group)] if is(first, '#') && is(bang, '!') && is_cfg_test(group))
    });
    reader.walk(&tokens);
    reader.found
}

/// The text as tokens.
///
/// # Panics
/// The text is no Rust.
pub(crate) fn tokens(text: &str) -> Vec<TokenTree> {
    let stream: TokenStream = text.parse().unwrap_or_else(|cause| panic!("no Rust: {cause}\n{text}"));
    stream.into_iter().collect()
}

/// Position of a path; none: a relative path.
type Place = Option<(String, Vec<String>)>;

struct Reader<'a> {
    krate: &'a str,
    crates: &'a [&'a str],
    module: Vec<String>,
    found: Mentions,
}

impl Reader<'_> {
    fn walk(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => self.attribute(tokens, at),
                TokenTree::Group(group) => {
                    self.walk(&inside(group));
                    at + 1
                }
                TokenTree::Ident(_) => self.word(tokens, at),
                _ => at + 1,
            };
        }
    }

    /// An attribute, or a `#` of a macro's pattern.
    fn attribute(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let bang = usize::from(tokens.get(at + 1).is_some_and(|token| is(token, '!')));
        let Some(TokenTree::Group(group)) = tokens.get(at + 1 + bang) else { return at + 1 };
        if bang == 0 && is_cfg_test(group) {
            return self.test_item(tokens, at);
        }
        let words = inside(group);
        let head = words.first().map(word_of).unwrap_or_default();
        let line = group.span_open().start().line;
        if head == "macro_use" {
            self.hidden(line, "#[macro_use] brings names that no path shows: import macros by path");
        }
        if matches!(head.as_str(), "path" | "cfg_attr") && names_a_file(&words) {
            self.hidden(line, "#[path] hides which module a file is: put the file where its module says");
        }
        if head != "doc" {
            self.quoted_paths(&words);
            self.walk(&words);
        }
        at + 2 + bang
    }

    /// Paths inside strings of attributes: `#[serde(with = "crate::hex")]`.
    fn quoted_paths(&mut self, tokens: &[TokenTree]) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.quoted_paths(&inside(group)),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let Some(text) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { continue };
                    let Ok(stream) = text.parse::<TokenStream>() else { continue };
                    let quoted: Vec<TokenTree> = stream.into_iter().collect();
                    if quoted.len() > 2 && self.starts_path(&quoted, 0) && is_join(&quoted, 1) {
                        let before = self.found.arrows.len();
                        self.path(&quoted, 0, None, true, false);
                        for arrow in &mut self.found.arrows[before..] {
                            arrow.line = literal.span().start().line;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Skips an item under `#[cfg(test)]`, and remembers the module whose file it declares.
    fn test_item(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let end = item_end(tokens, at);
        let words: Vec<String> = tokens[at..end].iter().map(word_of).collect();
        if let Some(module) = words.iter().position(|word| word == "mod")
            && tokens[end - 1..end].iter().all(|last| is(last, ';'))
        {
            self.found.test_modules.push([&*self.module, &words[module + 1..=module + 1]].concat());
        }
        end
    }

    /// A word: the start of a path, of a `use`, of a module, or nothing.
    fn word(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let word = word_of(&tokens[at]);
        let line = tokens[at].span().start().line;
        let next = tokens.get(at + 1);
        match word.as_str() {
            "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (next, tokens.get(at + 2)) {
                    self.module.push(plain(&name.to_string()));
                    self.walk(&inside(body));
                    self.module.pop();
                    return at + 3;
                }
                at + 1
            }
            "pub" => match next {
                // `pub(crate)`, but `pub(in crate::edge)` names a module.
                Some(TokenTree::Group(group)) if inside(group).len() == 1 => at + 2,
                _ => at + 1,
            },
            "crate" | "super" if !is_join(tokens, at + 1) => {
                self.hidden(line, "a crate's root as a word alone: write the path where the macro is called");
                at + 1
            }
            // `use<'a>` among bounds names lifetimes.
            "use" if next.is_some_and(|token| !is(token, '<')) => self.path(tokens, at + 1, None, true, true),
            "extern" if next.is_some_and(|token| word_of(token) == "crate") => {
                let named = tokens.get(at + 2).map(word_of).unwrap_or_default();
                let renamed = tokens.get(at + 3).is_some_and(|token| word_of(token) == "as");
                if renamed && (named == "self" || self.crates.contains(&&*named)) {
                    self.hidden(line, "a crate by another name hides its modules: use its own name");
                }
                at + 3
            }
            "include" if next.is_some_and(|token| is(token, '!')) => {
                self.hidden(line, "include! hides which module a text belongs to: make it a module");
                at + 1
            }
            "macro_rules" if self.module.is_empty() => {
                self.hidden(
                    line,
                    "a macro of the crate's root reaches all modules without a path: define it in its module",
                );
                at + 1
            }
            _ if self.starts_path(tokens, at) => self.path(tokens, at, None, true, false),
            _ => at + 1,
        }
    }

    /// True if a path from a crate's root, or up towards it, starts here.
    fn starts_path(&self, tokens: &[TokenTree], at: usize) -> bool {
        let word = word_of(&tokens[at]);
        if matches!(word.as_str(), "crate" | "self" | "super") {
            return true;
        }
        // `a::gorgo_core` and `a.gorgo_core` are other things; `::gorgo_core` is the crate.
        let after_dot = at > 0 && is(&tokens[at - 1], '.');
        let after_segment = at > 2
            && is_join(tokens, at - 2)
            && (matches!(tokens[at - 3], TokenTree::Ident(_)) && !is_keyword(&tokens[at - 3])
                || is(&tokens[at - 3], '>'));
        self.crates.contains(&&*word) && is_join(tokens, at + 1) && !after_dot && !after_segment
    }

    /// Follows a path, or the tree of a `use`, from `place`; returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, mut place: Place, mut first: bool, in_use: bool) -> usize {
        if first && in_use && is_join(tokens, at) {
            at += 2;
        }
        while let Some(token) = tokens.get(at) {
            let line = token.span().start().line;
            match token {
                TokenTree::Ident(_) => {
                    place = self.step(place, first, &word_of(token));
                    first = false;
                    at += 1;
                    if is_join(tokens, at) {
                        at += 2;
                        continue;
                    }
                    let alias = tokens.get(at).filter(|next| in_use && word_of(next) == "as").and(tokens.get(at + 1));
                    self.arrive(line, place, in_use, alias.map(word_of));
                    break;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && (in_use || !first) => {
                    for piece in inside(group).split(|token| is(token, ',')).filter(|piece| !piece.is_empty()) {
                        self.path(piece, 0, place.clone(), first, true);
                    }
                    at += 1;
                    break;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' && !first => {
                    match &place {
                        Some((_, modules)) if modules.is_empty() => {
                            self.hidden(line, "everything of a crate's root hides its modules: name the module");
                        }
                        _ => self.arrive(line, place, in_use, None),
                    }
                    at += 1;
                    break;
                }
                TokenTree::Punct(punct) if punct.as_char() == '$' && !first => {
                    match &place {
                        Some((_, modules)) if modules.is_empty() => {
                            self.hidden(line, "a macro's variable as a module: name the module");
                        }
                        _ => self.arrive(line, place, in_use, None),
                    }
                    at += 1;
                    break;
                }
                // `a::<T>`, `a::{` of an expression.
                _ => {
                    self.arrive(line, place, in_use, None);
                    break;
                }
            }
        }
        at
    }

    fn step(&self, place: Place, first: bool, word: &str) -> Place {
        match (place, word) {
            (None, "crate") if first => Some((self.krate.to_owned(), Vec::new())),
            (None, "self") if first => Some((self.krate.to_owned(), self.module.clone())),
            (None, "super") if first => Some((self.krate.to_owned(), up(self.module.clone()))),
            (None, word) if first && self.crates.contains(&word) => Some((word.to_owned(), Vec::new())),
            (None, _) => None,
            (Some(place), "self") => Some(place),
            (Some((krate, modules)), "super") => Some((krate, up(modules))),
            (Some((krate, mut modules)), word) => {
                modules.push(word.to_owned());
                Some((krate, modules))
            }
        }
    }

    /// The end of a path.
    fn arrive(&mut self, line: usize, place: Place, in_use: bool, alias: Option<String>) {
        let Some((krate, modules)) = place else { return };
        match modules.into_iter().next() {
            Some(module) => self.arrow(line, Target::Module { krate, module }),
            None if in_use && (krate == self.krate || alias.is_some_and(|alias| alias != krate)) => {
                self.hidden(line, "a name for a crate's root hides its modules: name the module");
            }
            None => {}
        }
    }

    fn hidden(&mut self, line: usize, why: &'static str) {
        self.arrow(line, Target::Hidden(why));
    }

    fn arrow(&mut self, line: usize, target: Target) {
        let from = self.module.first().map_or("lib", String::as_str).to_owned();
        self.found.arrows.push(Arrow { line, from, target });
    }
}

fn up(mut modules: Vec<String>) -> Vec<String> {
    modules.pop();
    modules
}

/// A word without the `r#` of a raw one; empty for anything else.
pub(crate) fn word_of(token: &TokenTree) -> String {
    match token {
        TokenTree::Ident(ident) => plain(&ident.to_string()),
        _ => String::new(),
    }
}

fn plain(word: &str) -> String {
    word.strip_prefix("r#").unwrap_or(word).to_owned()
}

pub(crate) fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_join(tokens: &[TokenTree], at: usize) -> bool {
    matches!(
        tokens.get(at..at + 2),
        Some([TokenTree::Punct(first), TokenTree::Punct(second)])
            if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':'
    )
}

/// Words after which `::name` begins a path.
fn is_keyword(token: &TokenTree) -> bool {
    ["as", "dyn", "else", "for", "if", "impl", "in", "match", "mut", "ref", "return", "use", "where", "while"]
        .contains(&&*word_of(token))
}

pub(crate) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// `path = …` at any depth.
fn names_a_file(tokens: &[TokenTree]) -> bool {
    tokens.windows(2).any(|two| word_of(&two[0]) == "path" && is(&two[1], '='))
        || tokens.iter().any(|token| matches!(token, TokenTree::Group(group) if names_a_file(&inside(group))))
}

/// `[cfg(test)]` or `[cfg(all(test, …))]`: in no build that ships.
pub(crate) fn is_cfg_test(attribute: &Group) -> bool {
    let words = inside(attribute);
    let [head, TokenTree::Group(condition)] = &*words else { return false };
    word_of(head) == "cfg" && needs_test(&inside(condition))
}

fn needs_test(condition: &[TokenTree]) -> bool {
    match condition {
        [only] => word_of(only) == "test",
        [all, TokenTree::Group(each)] if word_of(all) == "all" => {
            inside(each).split(|token| is(token, ',')).any(needs_test)
        }
        _ => false,
    }
}

/// The end of the item, statement, field or arm that starts at `at` with its attributes.
pub(crate) fn item_end(tokens: &[TokenTree], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| is(token, '#')) {
        at += 2;
    }
    if tokens.get(at).is_some_and(|token| word_of(token) == "pub") {
        at += 1;
        let restricted =
            matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        at += usize::from(restricted);
    }
    let head: Vec<String> = tokens[at..].iter().take(2).map(word_of).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let brace = |at: usize| matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let ends_at: &dyn Fn(usize) -> bool = match &*head {
        ["let" | "use" | "static" | "type", ..] => &|at| is(&tokens[at], ';'),
        ["const", next] if !matches!(*next, "fn" | "unsafe" | "async" | "extern") => &|at| is(&tokens[at], ';'),
        [
            "fn" | "struct" | "enum" | "union" | "trait" | "impl" | "mod" | "unsafe" | "async" | "const" | "extern"
            | "macro_rules",
            ..,
        ] => &|at| is(&tokens[at], ';') || brace(at),
        ["if" | "match" | "for" | "while" | "loop", ..] => {
            &|at| brace(at) && tokens.get(at + 1).is_none_or(|next| word_of(next) != "else")
        }
        // A field, a variant, an arm, an expression.
        _ => &|at| {
            let after_arrow = at > 1 && is(&tokens[at - 1], '>') && is(&tokens[at - 2], '=');
            is(&tokens[at], ',') || is(&tokens[at], ';') || (brace(at) && after_arrow)
        },
    };
    (at..tokens.len()).find(|&at| ends_at(at)).map_or(tokens.len(), |at| at + 1)
}
