//! `gorgo trace profiles`: lists the profiles to generate from.

use gorgo_lab::trace::generate::{GENERATED, GeneratedProfile};

use super::TraceCommandError;

/// Arguments of `gorgo trace profiles`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ProfilesArgs {
    /// Profile whose numbers to list, as --set accepts them
    name: Option<String>,
}

impl ProfilesArgs {
    pub(super) fn run(self) -> Result<String, TraceCommandError> {
        let Some(name) = self.name else {
            let one = |profile: &GeneratedProfile| {
                format!("{:14} {:5.2}/s  {}\n", profile.name, profile.rate(), profile.summary)
            };
            return Ok(GENERATED.iter().map(one).collect());
        };
        let profile = GeneratedProfile::find(&name).ok_or_else(|| {
            let known: Vec<&str> = GENERATED.iter().map(|profile| profile.name).collect();
            TraceCommandError::Profile { name: name.clone(), known: known.join(", ") }
        })?;
        let lines = profile.workload.parameter_values().into_iter().map(|stated| {
            let set = format!("{}={}", stated.name, stated.value);
            format!("{set:38} {:12} {}\n", stated.unit, stated.help)
        });
        Ok(lines.collect())
    }
}
