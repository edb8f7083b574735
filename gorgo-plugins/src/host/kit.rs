//! The author's kit as text: what `gorgo plugin new` writes beside a new plugin, so that it builds without a network.

/// File in the crate `gorgo-plugins` → its text.
pub const KIT: &[(&str, &str)] = &[
    ("Cargo.toml", MANIFEST),
    ("src/lib.rs", include_str!("../lib.rs")),
    ("src/abi.rs", include_str!("../abi.rs")),
    ("src/shim.rs", include_str!("../shim.rs")),
    ("src/sdk.rs", include_str!("../sdk.rs")),
    ("include/gorgo_plugin.h", include_str!("../../include/gorgo_plugin.h")),
];

/// The kit's own manifest is the workspace's; this one stands alone. The features are named so that the compiler knows
/// them; they are not for plugins.
const MANIFEST: &str = r#"[package]
name = "gorgo-plugins"
description = "The plugin contract of gorgo and the author's kit."
version = "0.1.0"
edition = "2024"
license = "MIT OR Apache-2.0"
publish = false

[features]
host = []
conform = []
"#;

/// What a new plugin begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// What it is, as packages and libraries are named: `scorer`, `constraint`, `objective`.
    pub kind: &'static str,
    /// The text of its one file.
    pub text: &'static str,
    /// The type in it that gets the new name.
    pub type_name: &'static str,
    /// The plugin's name in it.
    pub name: &'static str,
}

/// The beginnings, each the text of a plugin that is compiled and tested here.
pub const TEMPLATES: [Template; 3] = [
    Template {
        kind: "scorer",
        text: include_str!("../../examples/scorer_rust/src/lib.rs"),
        type_name: "Prefer",
        name: "prefer",
    },
    Template {
        kind: "constraint",
        text: include_str!("../../shipped/residency/src/lib.rs"),
        type_name: "Residency",
        name: "residency",
    },
    Template {
        kind: "objective",
        text: include_str!("../../shipped/slo-misses/src/lib.rs"),
        type_name: "SloMisses",
        name: "slo-misses",
    },
];
