//! The code in the guide is taken from the examples.

use std::fs;

use crate::bench::root;

/// The code blocks of the guide in this language.
fn blocks(language: &str) -> Vec<String> {
    let guide = fs::read_to_string(root().join("gorgo-plugins/README.md")).unwrap();
    let fence = format!("```{language}\n");
    guide.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_guide_shows_what_is_compiled_and_tested() {
    let rust = &["examples/scorer_rust/src/lib.rs", "examples/predicted_latency/src/lib.rs"][..];
    for (language, files) in [("rust", rust), ("c", &["examples/scorer_c/queue.c"][..])] {
        let sources = files.iter().map(|file| fs::read_to_string(root().join("gorgo-plugins").join(file)).unwrap());
        let sources: Vec<String> = sources.collect();
        let blocks = blocks(language);
        assert!(!blocks.is_empty(), "no {language} in the guide");
        for block in blocks {
            let compiled = sources.iter().any(|source| source.contains(block.trim_end()));
            assert!(compiled, "in none of {files:?}:\n{block}");
        }
    }
}
