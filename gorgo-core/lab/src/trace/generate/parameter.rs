//! Parameters of a workload by name: one line each declares the field, its unit, its range and its help text.

/// One parameter of a workload `W`.
#[derive(Debug)]
pub struct WorkloadParameter<W> {
    /// Name on the command line.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Smallest value allowed.
    pub least: f64,
    /// Largest value allowed.
    pub most: f64,
    /// Help text.
    pub help: &'static str,
    /// Reads the value.
    pub get: fn(&W) -> f64,
    /// Writes the value.
    pub set: fn(&mut W, f64),
}

/// A parameter with its current value in a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterValue {
    /// Name on the command line.
    pub name: &'static str,
    /// Current value.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Help text.
    pub help: &'static str,
}

/// Reason why a parameter could not be set.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// There is no such parameter.
    #[error("unknown parameter {name:?}; known: {}", known.join(", "))]
    Unknown {
        /// Name as the user wrote it.
        name: String,
        /// Names of all parameters.
        known: Vec<&'static str>,
    },
    /// The value is out of range or not a number.
    #[error("{name} is {value}; must be from {least} to {most}")]
    Range {
        /// Name of the parameter.
        name: &'static str,
        /// Value as the user gave it.
        value: f64,
        /// Smallest value allowed.
        least: f64,
        /// Largest value allowed.
        most: f64,
    },
}

pub(super) fn parameter_values<W>(numbers: &W, parameters: &'static [WorkloadParameter<W>]) -> Vec<ParameterValue> {
    let one = |parameter: &'static WorkloadParameter<W>| ParameterValue {
        name: parameter.name,
        value: (parameter.get)(numbers),
        unit: parameter.unit,
        help: parameter.help,
    };
    parameters.iter().map(one).collect()
}

pub(super) fn set<W>(
    numbers: &mut W,
    parameters: &'static [WorkloadParameter<W>],
    name: &str,
    value: f64,
) -> Result<(), ParameterError> {
    let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
        let known = parameters.iter().map(|parameter| parameter.name).collect();
        return Err(ParameterError::Unknown { name: name.to_owned(), known });
    };
    let WorkloadParameter { name, least, most, .. } = *parameter;
    // `contains` is false for NaN, so "nan" on the command line is refused as well.
    if (least..=most).contains(&value) {
        (parameter.set)(numbers, value);
        Ok(())
    } else {
        Err(ParameterError::Range { name, value, least, most })
    }
}

/// Declares a struct of parameters and the list of them: `field: unit, least, most, help;`.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($field:ident: $unit:literal, $least:expr, $most:expr, $help:literal;)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name {
            $(#[doc = concat!($help, " (", $unit, ")")] pub $field: f64,)+
        }

        impl $name {
            /// All parameters, by name.
            pub const PARAMETERS: &'static [$crate::trace::generate::WorkloadParameter<Self>] = &[
                $($crate::trace::generate::WorkloadParameter {
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
