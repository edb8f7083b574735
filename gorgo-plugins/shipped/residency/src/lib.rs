//! Only replicas where data may go: allowed regions except denied ones. Never relaxed: refusing a request is better than
//! sending its data elsewhere.

use gorgo_plugins::{
    ConstraintPlugin, OptionDeclaration, OptionKind, PluginAnswer, PluginColumns, PluginDeclaration, PluginFacts,
    PluginRequest, PluginSetup,
};

struct Residency {
    /// True if data may go there, by replica id.
    allowed: Vec<bool>,
}

const fn regions(name: &'static str, help: &'static str) -> OptionDeclaration {
    OptionDeclaration { name, unit: "", help, kind: OptionKind::Texts }
}

impl PluginDeclaration for Residency {
    const NAME: &'static str = "residency";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "only replicas where data may go";
    const OPTIONS: &'static [OptionDeclaration] = &[
        regions("allow", "regions that may be used; if empty, all that are not denied"),
        regions("deny", "regions that may not be used"),
    ];
}

impl ConstraintPlugin for Residency {
    const NEEDS: PluginFacts = PluginFacts::NONE;
    const HARD: bool = true;

    fn create(setup: &PluginSetup<'_>) -> Result<Self, String> {
        let (allow, deny): (Vec<&str>, Vec<&str>) = (setup.texts("allow").collect(), setup.texts("deny").collect());
        // A mistyped region in `deny` would let data go there; one in `allow` would leave no replica.
        let mut known: Vec<&str> = setup.replicas().map(|replica| replica.region).collect();
        known.sort_unstable();
        known.dedup();
        if let Some(stranger) = allow.iter().chain(&deny).find(|region| !known.contains(region)) {
            return Err(format!("no replica is in region `{stranger}`; regions of the fleet: {}", known.join(", ")));
        }
        let mut allowed = Vec::new();
        for replica in setup.replicas() {
            let place = replica.id as usize;
            allowed.resize(allowed.len().max(place + 1), false);
            allowed[place] = (allow.is_empty() || allow.contains(&replica.region)) && !deny.contains(&replica.region);
        }
        Ok(Self { allowed })
    }

    fn judge(
        &self,
        _request: &PluginRequest,
        columns: &PluginColumns<'_>,
        out: &mut [f64],
    ) -> Result<PluginAnswer, String> {
        for (excess, replica) in out.iter_mut().zip(columns.replica()) {
            // The region of a replica that joined after this instance was made is unknown, so no data may go there.
            let allowed = self.allowed.get(*replica as usize).copied().unwrap_or(false);
            *excess = if allowed { 0.0 } else { f64::INFINITY };
        }
        Ok(PluginAnswer::Given)
    }
}

gorgo_plugins::export_constraint!(Residency);
