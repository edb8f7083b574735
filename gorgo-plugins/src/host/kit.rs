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

/// The example whose text a new plugin begins with.
pub const TEMPLATE: &str = include_str!("../../examples/scorer_rust/src/lib.rs");
