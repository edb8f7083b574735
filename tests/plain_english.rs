//! Texts for users are plain English: errors, help, logs, READMEs and comments of shipped TOML have none of these
//! idioms.
//!
//! The test reads string literals of shipped sources (of attributes too, `#[error("…")]`), comments that clap prints as
//! help, descriptions in the schema, all Markdown outside code, comments of `policies.toml` and of presets. It does not
//! read tests or comments of the code. Cure a false hit by a narrower pattern and an example in `fine`, not by an
//! exception for a file.

mod idioms;
mod texts;

use idioms::{IDIOMS, Idiom};
use regex::Regex;
use texts::{Text, all};

/// Sentences about a text: `file:line`, the words, what to write.
fn hits(text: &Text, idiom: &Idiom, pattern: &Regex) -> Vec<String> {
    if idiom.help_only && !text.is_help {
        return Vec::new();
    }
    let mut found = Vec::new();
    for hit in pattern.find_iter(&text.text) {
        let after = &text.text[hit.start()..];
        let is_fine = |fine: &&str| after.get(..fine.len()).is_some_and(|start| start.eq_ignore_ascii_case(fine));
        if idiom.except.iter().any(is_fine) || idiom.after.iter().any(|fine| text.text[..hit.start()].ends_with(fine)) {
            continue;
        }
        let line = text.line + text.text[..hit.start()].matches('\n').count();
        let from = text.text[..hit.start()].char_indices().rev().nth(30).map_or(0, |(at, _)| at);
        let to = text.text[hit.end()..].char_indices().nth(30).map_or(text.text.len(), |(at, _)| hit.end() + at);
        found.push(format!("{}:{line}: …{}…", text.file, text.text[from..to].replace('\n', " ")));
    }
    found
}

fn pattern(idiom: &Idiom) -> Regex {
    Regex::new(&format!("(?i){}", idiom.pattern)).unwrap_or_else(|cause| panic!("{}: {cause}", idiom.pattern))
}

#[test]
fn users_read_plain_english() {
    let texts = all();
    assert!(texts.len() > 1000, "the texts were not found");
    let mut told = Vec::new();
    let mut count = 0;
    for idiom in IDIOMS {
        let pattern = pattern(idiom);
        let found: Vec<String> = texts.iter().flat_map(|text| hits(text, idiom, &pattern)).collect();
        if !found.is_empty() {
            count += found.len();
            told.push(format!(
                "{} ({} times): {}\n    {}",
                idiom.name,
                found.len(),
                idiom.instead,
                found.join("\n    ")
            ));
        }
    }
    assert!(told.is_empty(), "{count} idioms that no native speaker writes:\n{}", told.join("\n"));
}

#[test]
fn each_idiom_is_found_and_its_neighbours_are_not() {
    for idiom in IDIOMS {
        let pattern = pattern(idiom);
        let found = |text: &str| {
            let text = Text { file: "a.rs".to_owned(), line: 7, text: text.to_owned(), is_help: true };
            hits(&text, idiom, &pattern)
        };
        assert!(!idiom.wrong.is_empty(), "{}: no example", idiom.name);
        for text in idiom.wrong {
            assert!(
                found(text).first().is_some_and(|hit| hit.starts_with("a.rs:7: …")),
                "{}: passed: {text}",
                idiom.name
            );
        }
        for text in idiom.fine {
            assert_eq!(found(text), [""; 0], "{}", idiom.name);
        }
    }
}

#[test]
fn wordings_of_the_first_version_are_found_and_better_ones_are_not() {
    let found = |text: &str| {
        let text = Text { file: String::new(), line: 1, text: text.to_owned(), is_help: true };
        IDIOMS.iter().map(|idiom| hits(&text, idiom, &pattern(idiom)).len()).sum::<usize>()
    };
    for (today, better) in idioms::TODAY_AND_BETTER {
        assert!(found(today) > 0, "passed: {today}");
        assert_eq!(found(better), 0, "{better}");
    }
}

#[test]
fn texts_are_found_where_they_are() {
    let source = r###"//! A head that stands.
        /// Not what a user reads: it stands here.
        fn f() {
            // It stands here.
            log("the first \
                 stands");
            let x = format!("{stands} of all {}", "stands");
            let x = r#"second
                stands"#;
        }
        #[derive(Debug, thiserror::Error)]
        #[error("the third stands")]
        struct A;
        /// The fourth stands.
        #[derive(clap::Args)]
        struct B {
            /// The fifth stands.
            #[arg(long, help = "the sixth stands")]
            c: u8,
        }
        #[cfg(test)]
        mod tests { const A: &str = "it stands"; }
        #[expect(dead_code, reason = "it stands")]
        const D: u8 = b's';
    "###;
    let found = texts::of_source("a.rs", source);
    let shown: Vec<(usize, &str, bool)> =
        found.iter().map(|text| (text.line, text.text.trim(), text.is_help)).collect();
    assert_eq!(
        shown,
        [
            (5, "the first                   stands", false),
            (7, "{______} of all {}", false),
            (8, "second\n                stands", false),
            (12, "the third stands", false),
            (14, "The fourth stands.", true),
            (17, "The fifth stands.", true),
            (18, "the sixth stands", false),
        ]
    );
    let found = texts::of_markdown("a.md", "It `stands` here.\n```\nstands\n```\nstands\n");
    assert_eq!((found.len(), &*found[0].text), (1, "It … here.\n\n\n\nstands\n"));
    let found = texts::of_comments("a.toml", "a = 1 # one\n# two\nb = \"c # d\"\n");
    assert_eq!((found.len(), &*found[0].text), (1, "one\ntwo\n\n"));
}
