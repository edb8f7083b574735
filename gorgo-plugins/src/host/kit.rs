//! The author's kit as text: files that `gorgo plugin new` writes beside a new plugin, so that it builds offline.

/// Files of the crate `gorgo-plugins`: path → text.
pub const KIT: &[(&str, &str)] = &[
    ("Cargo.toml", MANIFEST),
    ("src/lib.rs", include_str!("../lib.rs")),
    ("src/abi.rs", include_str!("../abi.rs")),
    ("src/shim.rs", include_str!("../shim.rs")),
    ("src/sdk.rs", include_str!("../sdk.rs")),
    ("include/gorgo_plugin.h", include_str!("../../include/gorgo_plugin.h")),
];

/// Manifest that needs no workspace, unlike the crate's own. The features are listed so that the compiler does not warn
/// of unknown ones; plugins do not use them.
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

/// Source that a new plugin starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginTemplate {
    /// Kind, as used in names of packages and libraries: `scorer`, `constraint`, `objective`.
    pub kind: &'static str,
    /// Text of its only file.
    pub text: &'static str,
    /// Type in it that gets the new name.
    pub type_name: &'static str,
    /// Plugin's name in it.
    pub name: &'static str,
}

/// Templates of new plugins, each the text of a plugin that is compiled and tested here.
pub const TEMPLATES: [PluginTemplate; 3] = [
    PluginTemplate {
        kind: "scorer",
        text: include_str!("../../examples/scorer_rust/src/lib.rs"),
        type_name: "Prefer",
        name: "prefer",
    },
    PluginTemplate {
        kind: "constraint",
        text: include_str!("../../shipped/residency/src/lib.rs"),
        type_name: "Residency",
        name: "residency",
    },
    PluginTemplate {
        kind: "objective",
        text: include_str!("../../shipped/slo-misses/src/lib.rs"),
        type_name: "SloMisses",
        name: "slo-misses",
    },
];
