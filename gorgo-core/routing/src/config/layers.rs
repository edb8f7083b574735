//! Layers of a configuration, which figment merges: defaults, the file, the environment, flags.
//!
//! figment's own TOML reader is not used: it knows no line numbers and adds a second parser. Its environment reader is
//! not used either: it cannot tell `_` from `-` and turns a string `0123` into a number. Each variable and each flag is
//! a separate layer, so that figment's tags show the origin of every value. figment keeps no order within tables; it is
//! restored from the positions of the keys in the file.

use std::collections::HashMap;

use figment::value::{Dict, Map, Num, Tag, Value as Merged};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::origin::ValueOrigin;
use super::path::{self, PathStep};
use super::source::ConfigSource;
use crate::model::ConfigValue;

/// All layers added so far.
#[derive(Debug)]
pub(super) struct ConfigLayers {
    figment: Figment,
    /// Origins by the name that a layer has in figment.
    origins: HashMap<String, ValueOrigin>,
}

/// One layer: its name and its top-level members.
struct ConfigLayer {
    name: String,
    members: Dict,
}

impl Provider for ConfigLayer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.members.clone()))
    }
}

impl ConfigLayers {
    /// Creates the lowest layer: the values that apply unless another layer sets them.
    pub(super) fn defaults(defaults: &impl serde::Serialize) -> Result<Self, Box<Error>> {
        let members = Merged::serialize(defaults)?.into_dict().unwrap_or_default();
        let layer = ConfigLayer { name: ValueOrigin::Default.to_string(), members };
        Ok(Self { figment: Figment::from(layer), origins: HashMap::new() })
    }

    /// Merges the file's values.
    pub(super) fn file(&mut self, root: &ConfigValue) {
        let members = to_merged(root).into_dict().unwrap_or_default();
        self.merge(&ValueOrigin::File, members);
    }

    /// Sets one value. The previous value is replaced, even if both are tables: a variable gives its complete value.
    pub(super) fn set(&mut self, origin: &ValueOrigin, steps: &[PathStep], value: &ConfigValue) -> Result<(), String> {
        let Some((PathStep::Key(top), below)) = steps.split_first() else {
            return Err("no key".to_owned());
        };
        // Only the top-level member is patched and merged again; figment has no way to set a nested value.
        let now = self.members();
        let patched = patched(now.get(top), below, to_merged(value))?;
        // figment would merge two tables; an empty value between them makes the second replace the first.
        self.merge(origin, Dict::from([(top.clone(), Merged::from(figment::value::Empty::Unit))]));
        self.merge(origin, Dict::from([(top.clone(), patched)]));
        Ok(())
    }

    fn merge(&mut self, origin: &ValueOrigin, members: Dict) {
        let name = origin.to_string();
        self.origins.insert(name.clone(), origin.clone());
        self.figment = std::mem::take(&mut self.figment).merge(ConfigLayer { name, members });
    }

    fn members(&self) -> Dict {
        self.figment.data().ok().and_then(|mut profiles| profiles.remove(&Profile::Default)).unwrap_or_default()
    }

    /// Deserializes all values.
    pub(super) fn extract<'de, T: serde::Deserialize<'de>>(&self) -> Result<T, Box<Error>> {
        self.figment.extract().map_err(Box::new)
    }

    /// All values in the order of the file, followed by those that it does not have, and the origin of each by plain
    /// path.
    pub(super) fn merged(&self, source: &ConfigSource) -> (ConfigValue, HashMap<String, ValueOrigin>) {
        let mut nodes = HashMap::new();
        let members = Merged::Dict(Tag::Default, self.members());
        let root = self.ordered(&members, "", source, &mut nodes);
        (root.unwrap_or_else(|| ConfigValue::Table(Vec::new())), nodes)
    }

    fn ordered(
        &self,
        value: &Merged,
        path: &str,
        source: &ConfigSource,
        nodes: &mut HashMap<String, ValueOrigin>,
    ) -> Option<ConfigValue> {
        let origin = self.figment.get_metadata(value.tag()).and_then(|layer| self.origins.get(layer.name.as_ref()));
        nodes.insert(path::plain(path), origin.cloned().unwrap_or(ValueOrigin::Default));
        Some(match value {
            Merged::String(_, text) => ConfigValue::Text(text.clone()),
            Merged::Char(_, char) => ConfigValue::Text(char.to_string()),
            Merged::Bool(_, truth) => ConfigValue::Bool(*truth),
            Merged::Num(_, Num::F64(number)) => ConfigValue::Float(*number),
            Merged::Num(_, Num::F32(number)) => ConfigValue::Float(f64::from(*number)),
            Merged::Num(_, number) => {
                // TOML integers are signed 64-bit; figment keeps whichever width the value came in.
                let unsigned = number.to_u128().and_then(|whole| i64::try_from(whole).ok());
                ConfigValue::Integer(number.to_i128().and_then(|whole| i64::try_from(whole).ok()).or(unsigned)?)
            }
            // An optional key that is not set.
            Merged::Empty(_, _) => return None,
            Merged::Array(_, list) => ConfigValue::List(
                list.iter()
                    .enumerate()
                    .filter_map(|(index, item)| self.ordered(item, &path::element(path, index), source, nodes))
                    .collect(),
            ),
            Merged::Dict(_, members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, member)| {
                        let path = path::child(path, key);
                        // Keys that are not in the file sort last; the sort is stable.
                        let place = source.span_of_key(&path::plain(&path)).map_or(usize::MAX, |place| place.key.start);
                        (place, key, path, member)
                    })
                    .collect();
                members.sort_by_key(|(place, ..)| *place);
                ConfigValue::Table(
                    members
                        .into_iter()
                        .filter_map(|(_, key, path, member)| {
                            Some((key.clone(), self.ordered(member, &path, source, nodes)?))
                        })
                        .collect(),
                )
            }
        })
    }
}

/// `base` with `value` at `steps` below it. Copied parts keep their tags, and with them their origins.
fn patched(base: Option<&Merged>, steps: &[PathStep], value: Merged) -> Result<Merged, String> {
    match (steps.split_first(), base) {
        (None, _) => Ok(value),
        (Some((PathStep::Key(key), below)), base) => {
            let (tag, mut members) = match base {
                Some(Merged::Dict(tag, members)) => (*tag, members.clone()),
                _ => (Tag::Default, Dict::new()),
            };
            let member = patched(members.get(key), below, value)?;
            members.insert(key.clone(), member);
            Ok(Merged::Dict(tag, members))
        }
        (Some((PathStep::Index(index), below)), Some(Merged::Array(tag, list))) => {
            let mut list = list.clone();
            let count = list.len();
            let item = list
                .get_mut(*index)
                .ok_or_else(|| format!("there is no element {index}; the array has {count}, counted from 0"))?;
            *item = patched(Some(item), below, value)?;
            Ok(Merged::Array(*tag, list))
        }
        (Some((PathStep::Index(index), _)), _) => {
            Err(format!("there is no element {index}: the value is not an array"))
        }
    }
}

fn to_merged(value: &ConfigValue) -> Merged {
    match value {
        ConfigValue::Bool(truth) => Merged::from(*truth),
        ConfigValue::Integer(whole) => Merged::from(*whole),
        ConfigValue::Float(number) => Merged::from(*number),
        ConfigValue::Text(text) => Merged::from(text.as_str()),
        ConfigValue::List(list) => Merged::from(list.iter().map(to_merged).collect::<Vec<_>>()),
        ConfigValue::Table(members) => {
            Merged::from(members.iter().map(|(key, value)| (key.clone(), to_merged(value))).collect::<Dict>())
        }
    }
}
