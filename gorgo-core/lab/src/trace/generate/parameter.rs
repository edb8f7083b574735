//! Numbers of a workload by name: one line each gives the field, its unit, its range and its help.

/// One number of a workload `W`.
#[derive(Debug)]
pub struct Parameter<W> {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Least value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
    /// What it is.
    pub help: &'static str,
    /// Reads it.
    pub get: fn(&W) -> f64,
    /// Writes it.
    pub set: fn(&mut W, f64),
}

/// A number as it stands in a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stated {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
}

/// Why a number could not be set.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// No such number.
    #[error("unknown parameter {name:?}; known: {}", known.join(", "))]
    Unknown {
        /// As it was written.
        name: String,
        /// All there are.
        known: Vec<&'static str>,
    },
    /// Out of its range, or not a number.
    #[error("{name} {value} is not from {least} to {most}")]
    Range {
        /// Which.
        name: &'static str,
        /// As it was given.
        value: f64,
        /// Least value.
        least: f64,
        /// Largest value.
        most: f64,
    },
}

pub(super) fn stated<W>(numbers: &W, parameters: &'static [Parameter<W>]) -> Vec<Stated> {
    let one = |parameter: &'static Parameter<W>| Stated {
        name: parameter.name,
        value: (parameter.get)(numbers),
        unit: parameter.unit,
        help: parameter.help,
    };
    parameters.iter().map(one).collect()
}

pub(super) fn set<W>(
    numbers: &mut W,
    parameters: &'static [Parameter<W>],
    name: &str,
    value: f64,
) -> Result<(), ParameterError> {
    let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
        let known = parameters.iter().map(|parameter| parameter.name).collect();
        return Err(ParameterError::Unknown { name: name.to_owned(), known });
    };
    let Parameter { name, least, most, .. } = *parameter;
    if (least..=most).contains(&value) {
        (parameter.set)(numbers, value);
        Ok(())
    } else {
        Err(ParameterError::Range { name, value, least, most })
    }
}

/// Declares a struct of numbers and the list of them: `field: unit, least, most, help;`.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($field:ident: $unit:literal, $least:expr, $most:expr, $help:literal;)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name {
            $(#[doc = concat!($help, " (", $unit, ")")] pub $field: f64,)+
        }

        impl $name {
            /// All its numbers, by name.
            pub const PARAMETERS: &'static [$crate::trace::generate::Parameter<Self>] = &[
                $($crate::trace::generate::Parameter {
                    name: stringify!($field),
                    unit: $unit,
                    least: $least,
                    most: $most,
                    help: $help,
                    get: |numbers| numbers.$field,
                    set: |numbers, value| numbers.$field = value,
                },)+
            ];
        }
    };
}
pub(super) use parameters;
