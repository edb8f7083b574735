//! Ways around the import guard, each fed to it as a source: all are reported.

use super::imports::verdict;
use super::paths::{Mentions, Source, mentions};
use super::table::CrateRules;

const CRATES: &[&str] = &["gorgo_core", "gorgo_routing"];

/// `edge` may name `model` and the routing crate's `model`; `run` may name all.
const RULES: CrateRules = CrateRules {
    package: "gorgo-core",
    folder: "gorgo-core",
    crates: &["gorgo-routing"],
    modules: &[
        ("model", &[]),
        ("edge", &["model", "gorgo_routing::model"]),
        ("run", &["edge", "model", "gorgo_routing"]),
    ],
    root_names: &["Listener"],
};

fn read(module: &str, text: &str) -> Mentions {
    let module = module.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    mentions(&Source { krate: "gorgo_core", module, text }, CRATES)
}

/// Findings of the guard for a source in that module, as `line: fault`.
fn faults(module: &str, text: &str) -> Vec<String> {
    let read = read(module, text);
    let said = |arrow: &super::paths::Arrow| Some(format!("{}: {}", arrow.line, verdict(&RULES, arrow)?));
    read.arrows.iter().filter_map(said).collect()
}

#[track_caller]
fn forbidden(module: &str, text: &str, fault: &str) {
    let found = faults(module, text);
    assert!(found.iter().any(|found| found.contains(fault)), "passed: {text}\nreported: {found:?}");
}

#[track_caller]
fn allowed(module: &str, text: &str) {
    assert_eq!(faults(module, text), [""; 0], "{text}");
}

#[test]
fn a_plain_import() {
    forbidden("edge", "use crate::run;", "1: edge → run");
    forbidden("edge/accept", "\nuse crate::run::serve;", "2: edge → run");
    allowed("edge/accept", "use crate::model::Clock; use crate::edge::pool; use crate::Listener;");
    allowed("run", "use crate::edge::accept;");
}

#[test]
fn run_is_a_module_like_others() {
    forbidden("model", "use crate::run::serve;", "model → run");
    forbidden("run", "use crate::nowhere::x;", "run → nowhere, which is no module with a row");
}

#[test]
fn a_group_at_the_crates_root() {
    forbidden("edge", "use crate::{model::Clock, run::serve};", "edge → run");
    forbidden("edge", "use crate::{\n    model,\n    run,\n};", "3: edge → run");
    allowed("edge", "use crate::{model::{self, Clock}, edge::pool};");
}

#[test]
fn groups_in_groups() {
    forbidden("edge", "use {crate::{model::{Clock, Weights}, {run::{serve, Serve}}}};", "edge → run");
    forbidden("edge", "use ::{gorgo_routing::{policy::Router, model}};", "edge → gorgo_routing::policy");
}

#[test]
fn climbing_with_super() {
    forbidden("edge", "use super::run::serve;", "edge → run");
    forbidden("edge/accept", "use super::super::run;", "edge → run");
    forbidden("edge/accept", "fn f() { super::super::run::serve() }", "edge → run");
    forbidden("edge/accept", "use super::{pool, super::run};", "edge → run");
    forbidden("edge", "use self::super::run;", "edge → run");
    forbidden("edge", "mod inner { mod deeper { use super::super::super::run; } }", "edge → run");
    allowed("edge/accept", "use super::pool; use super::super::model; use super::super::edge::pool;");
    allowed("edge", "mod inner { use super::run; use self::run::x; }");
}

#[test]
fn the_root_by_another_name() {
    let name = "a name for a crate's root hides its modules";
    forbidden("edge", "use crate as c; use c::run;", name);
    forbidden("edge", "use crate::{self as c, model};", name);
    forbidden("edge", "use super as c;", name);
    forbidden("edge/accept", "use super::super::{self as c};", name);
    forbidden("edge", "use gorgo_routing as r; use r::policy;", name);
    forbidden("edge", "fn f() { use crate as c; c::run::serve() }", name);
    allowed("edge/accept", "use super as edge; use gorgo_routing::model as m; use crate::model as n;");
}

#[test]
fn the_crate_as_an_extern_crate() {
    let name = "a crate by another name";
    forbidden("edge", "extern crate self as me; use me::run;", name);
    forbidden("edge", "extern crate gorgo_routing as r;", name);
    forbidden("edge", "use gorgo_core::run;", "edge → run");
    allowed("edge", "extern crate alloc as a;");
}

#[test]
fn everything_of_the_root() {
    let glob = "everything of a crate's root";
    forbidden("edge", "use crate::*;", glob);
    forbidden("edge", "use super::*;", glob);
    forbidden("edge/accept", "use super::super::{*};", glob);
    forbidden("edge", "use gorgo_routing::*;", glob);
    forbidden("edge", "use crate::run::*;", "edge → run");
    allowed("edge/accept", "use super::*; use crate::model::*;");
}

#[test]
fn paths_in_bodies() {
    forbidden("edge", "fn f() {\n    crate::run::serve();\n}", "2: edge → run");
    forbidden("edge", "fn f() { let x = a.b(|y| crate::run::X { y }); }", "edge → run");
    forbidden("edge", "fn f() { ::gorgo_routing::policy::decide() }", "edge → gorgo_routing::policy");
    forbidden("edge", "fn f() { match x { crate::run::A => 1, _ => 2 } }", "edge → run");
    forbidden("edge", "fn f() { x + gorgo_routing::policy::N }", "edge → gorgo_routing::policy");
    allowed("edge", "fn f() { self.run(); x.gorgo_routing; local::gorgo_routing::policy() }");
}

#[test]
fn paths_in_types() {
    forbidden("edge", "struct A { b: Vec<crate::run::B> }", "edge → run");
    forbidden("edge", "impl crate::run::A for B {}", "edge → run");
    forbidden("edge", "fn f<T: crate::run::A>() -> impl Fn(crate::model::B) -> u8 {}", "edge → run");
    forbidden("edge", "type A = <B as super::run::C>::D;", "edge → run");
}

#[test]
fn paths_in_macros() {
    forbidden("edge", "fn f() { vec![1, format!(\"{}\", crate::run::x())]; }", "edge → run");
    forbidden("edge", "macro_rules! m { () => { $crate::run::x() }; }", "edge → run");
    forbidden("edge", "macro_rules! m { () => { use crate::{model, run}; }; }", "edge → run");
    forbidden("edge", "m! { use crate as c; }", "a name for a crate's root");
    forbidden("edge", "macro_rules! m { ($m:ident) => { $crate::$m::x() }; }", "a macro's variable as a module");
    forbidden("edge", "m!(crate, run);", "a crate's root as a word alone");
    forbidden("edge", "m! { super }", "a crate's root as a word alone");
    allowed("edge", "m! { pub(crate) a: u8, pub(super) b: u8, pub(self) c: u8 }");
    forbidden("edge", "tokio::select! { x = crate::run::wait() => {} }", "edge → run");
}

#[test]
fn macros_that_reach_without_a_path() {
    forbidden("", "macro_rules! m { () => {}; }", "a macro of the crate's root");
    forbidden("", "#[macro_use] mod run;", "#[macro_use]");
}

#[test]
fn names_that_the_root_hands_on() {
    forbidden("edge", "use crate::serve;", "edge → serve, which is no module with a row");
    forbidden("", "mod bridge { pub use super::run::*; }", "module bridge has no row");
    allowed("", "pub mod run; pub use run::serve;");
}

#[test]
fn paths_in_attributes() {
    forbidden("edge", "#[derive(crate::run::Derive)] struct A;", "edge → run");
    forbidden("edge", "struct A {\n    #[serde(with = \"crate::run::hex\")] b: u8,\n}", "2: edge → run");
    forbidden("edge/accept", "#[serde(default = \"super::super::run::x\")] struct A;", "edge → run");
    allowed("edge", "/// See crate::run::serve.\n#[doc = \"crate::run\"] struct A;");
}

#[test]
fn files_that_are_other_modules() {
    forbidden("model", "#[path = \"../run/serve.rs\"] mod serve;", "#[path]");
    forbidden("model", "#[cfg_attr(all(), path = \"../run/serve.rs\")] mod serve;", "#[path]");
    forbidden("model", "include!(\"../run/serve.rs\");", "include!");
    allowed("model", "const A: &str = include_str!(\"../run/serve.rs\");");
}

#[test]
fn raw_words_and_odd_spaces() {
    forbidden("edge", "use crate::r#run::serve;", "edge → run");
    forbidden("edge", "use crate\n  :: /* a comment */ run;", "edge → run");
    forbidden("edge", "use ::gorgo_core::run;", "edge → run");
}

#[test]
fn other_crates_by_module() {
    forbidden("edge", "use gorgo_routing::policy::Router;", "edge → gorgo_routing::policy");
    forbidden("model", "use gorgo_routing::model::Clock;", "model → gorgo_routing::model");
    allowed("edge", "use gorgo_routing::model::Clock;");
    allowed("run", "use gorgo_routing::policy::Router;");
}

#[test]
fn a_module_without_a_row() {
    forbidden("other", "use crate::model;", "module other has no row");
}

#[test]
fn one_row_for_a_crate_of_one_part() {
    let rules = CrateRules { modules: &[("*", &["gorgo_routing::model"])], ..RULES };
    for (text, passes) in [
        ("use crate::anything; use gorgo_routing::model::Clock;", true),
        ("use gorgo_routing::policy::Router;", false),
        ("use crate as c;", false),
    ] {
        for module in ["edge", ""] {
            let passed = read(module, text).arrows.iter().all(|arrow| verdict(&rules, arrow).is_none());
            assert_eq!(passed, passes, "{module}: {text}");
        }
    }
}

#[test]
fn only_tests_reach_further() {
    allowed("edge", "#[cfg(test)]\nmod tests { use crate::run; }");
    allowed("edge", "#[cfg(all(test, unix))] use crate::run;");
    allowed("edge", "#[cfg(test)] #[inline] pub(crate) fn f() -> [u8; 3] { crate::run::x() }");
    allowed("edge", "enum E { #[cfg(test)] A(crate::run::A), B }");
    forbidden("edge", "#[cfg(not(test))] use crate::run;", "edge → run");
    forbidden("edge", "#[cfg(any(test, feature = \"x\"))] use crate::run;", "edge → run");
    // What follows a test item is shipped.
    forbidden("edge", "#[cfg(test)] mod tests; use crate::run;", "edge → run");
    forbidden("edge", "#[cfg(test)] const A: u8 = { 1 }; use crate::run;", "edge → run");
    forbidden("edge", "#[cfg(test)] fn f() {} fn g() { crate::run::x() }", "edge → run");
    forbidden("edge", "struct S { #[cfg(test)] a: u8, b: crate::run::B }", "edge → run");
    forbidden(
        "edge",
        "fn f() { #[cfg(test)] if let Some(x) = y() { return x } else { z() } crate::run::x() }",
        "edge → run",
    );
    forbidden("edge", "fn f() { match x { #[cfg(test)] 1 => {} 2 => crate::run::x(), } }", "edge → run");
    forbidden("edge", "// #[cfg(test)]\nmod tests { use crate::run; }", "edge → run");
}

#[test]
fn files_of_tests_are_those_declared_so() {
    assert_eq!(read("edge", "#[cfg(test)] pub(crate) mod mock; mod tests;").test_modules, [["edge", "mock"]]);
    assert!(read("edge", "#![cfg(test)] use crate::run;").test_only);
    assert!(!read("edge", "#[cfg(test)] mod tests;").test_only);
}
