//! Allowed dependencies of crates and modules: change this when the layout changes, nothing else.
//!
//! An arrow without any source is reported too, so that the table stays true.

/// One crate of the workspace.
pub(super) struct CrateRules {
    pub package: &'static str,
    /// From the workspace's root; sources are in its `src`.
    pub folder: &'static str,
    /// Crates of the workspace that it may depend on (not those of its tests alone).
    pub crates: &'static [&'static str],
    /// Each top-level module and what it may name: modules of its own crate, and `other_crate::module` or a whole
    /// `other_crate`. `lib` is the root file; without a row it may name all, for it assembles. A row `*` is for all modules of a crate of
    /// one part, which may name each other; no rows: it may name all.
    pub modules: &'static [(&'static str, &'static [&'static str])],
    /// Names that the root file has beside modules, and that every module may use.
    pub root_names: &'static [&'static str],
}

pub(super) const CRATES: &[CrateRules] = &[
    CrateRules {
        package: "gorgo-routing",
        folder: "gorgo-core/routing",
        crates: &[],
        modules: &[
            ("model", &[]),
            ("expr", &[]),
            ("config", &["model"]),
            ("parse", &["model"]),
            ("feature", &["model"]),
            ("pick", &["model"]),
            ("score", &["model", "expr"]),
            ("constrain", &["model", "expr"]),
            ("tune", &["model", "expr"]),
            ("policy", &["model", "config", "parse", "feature", "score", "constrain", "pick", "tune"]),
        ],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-lab",
        folder: "gorgo-core/lab",
        crates: &["gorgo-routing"],
        modules: &[
            ("records", &[]),
            ("trace", &["records", "gorgo_routing::model"]),
            ("calibrate", &["records", "gorgo_routing::model"]),
            ("sim", &["trace", "gorgo_routing::config", "gorgo_routing::model", "gorgo_routing::policy"]),
        ],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-observe",
        folder: "gorgo-core/observe",
        crates: &["gorgo-routing"],
        modules: &[("*", &["gorgo_routing::config", "gorgo_routing::model"])],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-store",
        folder: "gorgo-core/store",
        crates: &["gorgo-observe", "gorgo-routing"],
        modules: &[("*", &["gorgo_observe", "gorgo_routing::config", "gorgo_routing::model"])],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-simulated",
        folder: "gorgo-core/simulated",
        crates: &["gorgo-lab", "gorgo-routing"],
        modules: &[("*", &["gorgo_lab::sim", "gorgo_routing::model"])],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-wire",
        folder: "gorgo-core/wire",
        crates: &["gorgo-observe", "gorgo-routing"],
        modules: &[
            ("engine", &["gorgo_observe", "gorgo_routing::config", "gorgo_routing::model", "gorgo_routing::parse"]),
            (
                "edge",
                &["engine", "gorgo_observe", "gorgo_routing::config", "gorgo_routing::model", "gorgo_routing::policy"],
            ),
        ],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-core",
        folder: "gorgo-core",
        crates: &["gorgo-lab", "gorgo-observe", "gorgo-routing", "gorgo-simulated", "gorgo-store", "gorgo-wire"],
        modules: &[],
        root_names: &[],
    },
    CrateRules {
        package: "gorgo-plugins",
        folder: "gorgo-plugins",
        crates: &["gorgo-routing"],
        modules: &[
            ("abi", &[]),
            ("sdk", &["abi", "shim"]),
            ("shim", &["abi", "sdk"]),
            ("host", &["abi", "gorgo_routing"]),
            ("conform", &["abi", "host", "gorgo_routing"]),
        ],
        root_names: &["ConstraintPlugin", "PluginDeclaration", "ScorerPlugin"],
    },
    CrateRules {
        package: "gorgo-cli",
        folder: "gorgo-cli",
        crates: &[
            "gorgo-core",
            "gorgo-lab",
            "gorgo-observe",
            "gorgo-plugins",
            "gorgo-routing",
            "gorgo-simulated",
            "gorgo-store",
            "gorgo-wire",
        ],
        modules: &[
            ("exit", &[]),
            ("args", &["gorgo_routing"]),
            ("engine_settings", &["gorgo_lab", "gorgo_routing"]),
            ("plugins", &["gorgo_plugins", "gorgo_routing"]),
            ("load", &["gorgo_lab", "gorgo_routing"]),
            ("policy_table", &["gorgo_routing"]),
            ("report", &["gorgo_lab"]),
            ("runtime", &["exit", "gorgo_core", "gorgo_routing"]),
            (
                "cmd",
                &[
                    "args",
                    "engine_settings",
                    "exit",
                    "load",
                    "plugins",
                    "policy_table",
                    "report",
                    "runtime",
                    "gorgo_core",
                    "gorgo_lab",
                    "gorgo_observe",
                    "gorgo_plugins",
                    "gorgo_routing",
                    "gorgo_simulated",
                    "gorgo_store",
                    "gorgo_wire",
                ],
            ),
        ],
        root_names: &[],
    },
];

/// Modules that do name each other: the shim calls the traits of the kit, whose arguments are the shim's columns.
pub(super) const CIRCLES: &[(&str, &[&str])] = &[("gorgo-plugins", &["sdk", "shim"])];

/// Members that are plugins: they depend on `gorgo-plugins` without features, and on nothing else of the workspace.
pub(super) const PLUGIN_FOLDERS: &[&str] =
    &["gorgo-plugins/shipped/", "gorgo-plugins/examples/", "gorgo-plugins/tests/"];
/// Allowed dependencies of a plugin.
pub(super) const PLUGIN_KIT: &str = "gorgo-plugins";

/// Crates, their features, and what they never depend on, not even by way of others.
pub(super) const PURE: &[(&str, &str, &[&str])] = &[
    ("gorgo-routing", "", RUNTIME_WIRE_STORE),
    ("gorgo-lab", "", RUNTIME_WIRE_STORE),
    ("gorgo-plugins", "host,conform", RUNTIME_WIRE_STORE),
];
const RUNTIME_WIRE_STORE: &[&str] = &["tokio", "hyper", "hyper-util", "sqlx"];

/// Files that may say `unsafe`, and folders of such files.
pub(super) const UNSAFE: &[&str] = &[
    "gorgo-plugins/src/abi.rs",
    "gorgo-plugins/src/shim.rs",
    // `#[unsafe(no_mangle)]` in the macros that export a plugin.
    "gorgo-plugins/src/sdk.rs",
    "gorgo-plugins/src/host/",
    "gorgo-core/wire/src/edge/upstream/tcp_info.rs",
];

/// Lines of a file, tests too: above this it holds more than one idea.
pub(super) const MAX_LINES: usize = 800;

/// Parameters of a function, `self` included: above this some of them belong together.
pub(super) const MAX_PARAMETERS: usize = 6;

/// Allowed files at the top level, beside hidden ones and those that the build or the router creates.
pub(super) const TOP_LEVEL: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "clippy.toml",
    "deny.toml",
    "docs",
    "gorgo-cli",
    "gorgo-core",
    "gorgo-plugins",
    "migrations",
    "policies.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "tests",
];

/// Folders that have their own README.
pub(super) const README_FOLDERS: &[&str] = &["", "gorgo-core", "gorgo-plugins", "gorgo-cli", "migrations", "tests"];
