//! The window parameters that constraints on shares have in common, and the shares in such a window.

use super::ConstraintScope;
use crate::model::{ParamSpec, ParamType, ParamValues, ShareBasis, ShareWindow, WindowLength};

/// Quantity that a share is computed over.
pub(super) const fn basis_param(default: &'static str) -> ParamSpec {
    ParamSpec {
        name: "of",
        ty: ParamType::Text { default: Some(default), choices: &["uncached-tokens", "prompt-tokens", "requests"] },
        unit: "",
        help: "quantity that the share is computed over",
    }
}

/// The window's length in time.
pub(super) const SECONDS: ParamSpec = ParamSpec {
    name: "window_secs",
    ty: ParamType::Number { default: None, min: 1.0, max: 86_400.0 },
    unit: "s",
    help: "how far back the share looks; 60 where neither window is given",
};

/// The window's length in decisions.
pub(super) const DECISIONS: ParamSpec = ParamSpec {
    name: "window_decisions",
    ty: ParamType::Integer { default: None, min: 1, max: 1_000_000 },
    unit: "decisions",
    help: "how far back the share looks, instead of `window_secs`",
};

/// Number of decisions below which a share means nothing.
pub(super) const MIN_REQUESTS: ParamSpec = ParamSpec {
    name: "min_requests",
    ty: ParamType::Integer { default: Some(20), min: 0, max: 1_000_000 },
    unit: "requests",
    help: "no effect while fewer are in the window",
};

/// The window that the parameters ask for.
pub(super) fn read(params: &ParamValues) -> Result<ShareWindow, String> {
    let of = match params.text("of") {
        Some("prompt-tokens") => ShareBasis::PromptTokens,
        Some("requests") => ShareBasis::Requests,
        _ => ShareBasis::UncachedTokens,
    };
    let length = match (params.number("window_secs"), params.integer("window_decisions")) {
        (Some(_), Some(_)) => return Err("give `window_secs` or `window_decisions`, not both".to_owned()),
        (None, Some(decisions)) => WindowLength::Decisions(u32::try_from(decisions).unwrap_or(u32::MAX)),
        (seconds, None) => WindowLength::Seconds(seconds.unwrap_or(60.0)),
    };
    Ok(ShareWindow { basis: of, length })
}

/// The window's amounts and their sum over the fleet; `None` if too little was routed for a share to mean anything.
pub(super) fn amounts<'a>(scope: &ConstraintScope<'a>, min_requests: u64) -> Option<(&'a [f64], f64)> {
    let candidates = scope.candidates;
    let amounts = candidates.windows.get(scope.window)?;
    let decisions = *candidates.window_decisions.get(scope.window)?;
    let total = amounts.iter().sum::<f64>();
    // Shares are divided by the total, so a window without work has none.
    (decisions >= min_requests && decisions > 0 && total > 0.0).then_some((&**amounts, total))
}
