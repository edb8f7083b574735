//! A library's descriptor, read without trusting it: sizes first, then text, bits and functions, all copied into owned
//! values.
#![expect(unsafe_code, reason = "the descriptor is memory of the library")]

use std::mem::{self, MaybeUninit};
use std::path::Path;
use std::{ptr, slice, str};

use gorgo_routing::model::{FACT_NAMES, FACTS, RequiredFacts, Unit};

use super::error::PluginError;
use crate::abi::{self, AbiOption, AbiText, DescriptorHead, JudgeDescriptor, option_flag};

/// Most options of a plugin: a larger number is garbage.
const MOST_OPTIONS: usize = 256;
/// Most facts that a plugin may name: a larger number is garbage.
const MOST_FACTS: usize = 256;
/// Longest text in a descriptor, bytes: a larger length is garbage.
const LONGEST_TEXT: usize = 4096;

/// An option as declared.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredOption {
    /// The key.
    pub name: String,
    /// Unit as shown to users.
    pub unit: String,
    /// Effect of the option.
    pub help: String,
    /// One of [`abi::kind`].
    pub kind: u32,
    /// Bits of [`option_flag`].
    pub flags: u32,
    /// Value if the option is not set; NaN: no default.
    pub default: f64,
    /// Smallest allowed value.
    pub min: f64,
    /// Largest allowed value.
    pub max: f64,
}

impl DeclaredOption {
    /// Returns whether the option must be set.
    #[must_use]
    pub const fn required(&self) -> bool {
        self.flags & option_flag::REQUIRED != 0
    }

    /// Returns whether an optimizer may move it.
    #[must_use]
    pub const fn tunable(&self) -> bool {
        self.flags & option_flag::TUNABLE != 0
    }
}

/// Facts that a plugin requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AskedFacts {
    /// Groups whose columns have their own field.
    pub groups: RequiredFacts,
    /// Indices in [`FACTS`] of the facts that it names, in its order.
    pub named: Vec<usize>,
}

impl AskedFacts {
    /// Returns the groups of all of them.
    #[must_use]
    pub fn needs(&self) -> RequiredFacts {
        self.named.iter().fold(self.groups, |needs, place| needs.union(FACTS[*place].needs))
    }
}

/// Description that a plugin has in its descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginInfo {
    /// Name of the plugin.
    pub name: String,
    /// Version as shown to users.
    pub version: String,
    /// Description in one line.
    pub summary: String,
    /// Unit of its number.
    pub unit: Unit,
    /// Facts that it receives.
    pub asks: AskedFacts,
    /// Bits of [`abi::flag`].
    pub flags: u32,
    /// Declared options.
    pub options: Vec<DeclaredOption>,
}

/// The three functions of a scorer or a constraint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PluginFunctions<F> {
    pub(crate) create: abi::CreateFn,
    pub(crate) destroy: abi::DestroyFn,
    pub(crate) call: F,
}

/// Reads the descriptor of a scorer or a constraint.
///
/// # Safety
/// `at` is the pointer that the library's symbol returned; the library stays loaded forever.
pub(crate) unsafe fn judge(
    at: *const JudgeDescriptor,
    path: &Path,
) -> Result<(PluginInfo, PluginFunctions<abi::CallFn>), PluginError> {
    // `facts` was appended to the contract later: a descriptor that ends before it is valid.
    // SAFETY: guaranteed by this function's caller.
    let (mut about, judge) =
        unsafe { read(at, path, mem::offset_of!(JudgeDescriptor, facts), |judge: &JudgeDescriptor| judge.head) }?;
    // SAFETY: the same; fields that a shorter descriptor lacks are zero, which is no fact.
    about.asks.named = unsafe { named(&judge) }.map_err(|what| wrong(path, what))?;
    let functions = match (judge.create, judge.destroy, judge.call) {
        (Some(create), Some(destroy), Some(call)) => PluginFunctions { create, destroy, call },
        _ => return Err(wrong(path, "one of `create`, `destroy`, `call` is null")),
    };
    Ok((about, functions))
}

/// Reads the descriptor of an objective.
///
/// # Safety
/// As of [`judge`].
pub(crate) unsafe fn objective(
    at: *const abi::ObjectiveDescriptor,
    path: &Path,
) -> Result<(PluginInfo, PluginFunctions<abi::MeasureFn>), PluginError> {
    // SAFETY: guaranteed by this function's caller.
    let (about, objective) = unsafe {
        read(at, path, mem::size_of::<abi::ObjectiveDescriptor>(), |objective: &abi::ObjectiveDescriptor| {
            objective.head
        })
    }?;
    let functions = match (objective.create, objective.destroy, objective.measure) {
        (Some(create), Some(destroy), Some(call)) => PluginFunctions { create, destroy, call },
        _ => return Err(wrong(path, "one of `create`, `destroy`, `measure` is null")),
    };
    Ok((about, functions))
}

fn wrong(path: &Path, what: impl Into<String>) -> PluginError {
    PluginError::Descriptor { path: path.to_owned(), what: what.into() }
}

/// Reads version and size, then everything else. `least`: size of the descriptor's first version, bytes; fields that were
/// appended later and are absent read as zero.
///
/// # Safety
/// As of [`judge`]; `D` begins with a [`DescriptorHead`], and zero is a value of all its later fields.
unsafe fn read<D: Copy>(
    at: *const D,
    path: &Path,
    least: usize,
    head: impl FnOnce(&D) -> DescriptorHead,
) -> Result<(PluginInfo, D), PluginError> {
    if at.is_null() || !at.is_aligned() {
        return Err(wrong(path, "the pointer is null or not aligned to 8 bytes"));
    }
    // SAFETY: every version of the contract begins with these two numbers.
    let [abi_major, struct_size] = unsafe { *at.cast::<[u32; 2]>() };
    // Before anything else: of another version not even the layout is known.
    if abi_major != abi::ABI_MAJOR {
        return Err(PluginError::Version { path: path.to_owned(), found: abi_major });
    }
    let size = usize::try_from(struct_size).unwrap_or(usize::MAX);
    if size < least || !size.is_multiple_of(mem::align_of::<D>()) {
        let what = format!("`struct_size` is {size}; expected a multiple of 8 of at least {least} bytes");
        return Err(wrong(path, what));
    }
    let mut descriptor = MaybeUninit::<D>::zeroed();
    // SAFETY: the descriptor is of this version and `struct_size` bytes long; no more is copied than there is room for.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), descriptor.as_mut_ptr().cast(), size.min(mem::size_of::<D>())) };
    // SAFETY: bytes that were not copied are zero, which is a valid value, as this function's caller guarantees.
    let descriptor = unsafe { descriptor.assume_init() };
    // SAFETY: the same.
    let about = unsafe { about(&head(&descriptor)) }.map_err(|what| wrong(path, what))?;
    Ok((about, descriptor))
}

/// # Safety
/// The pointers of `head` are valid by the contract.
unsafe fn about(head: &DescriptorHead) -> Result<PluginInfo, String> {
    // SAFETY: guaranteed by this function's caller.
    let [name, version, summary] =
        unsafe { [text(head.name, "name")?, text(head.version, "version")?, text(head.summary, "summary")?] };
    // The name becomes a label of metrics and a part of the history, so its letters are limited.
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(format!("its name is {name:?}; a name is 1 to 64 of a-z, 0-9 and -"));
    }
    let unit = usize::try_from(head.unit).ok().and_then(|code| Unit::ALL.get(code).copied());
    let unit = unit.ok_or_else(|| format!("unit {} is unknown", head.unit))?;
    let groups =
        RequiredFacts::from_bits(head.needs).filter(|_| head.needs & !abi::need::ALL == 0).ok_or_else(|| {
            let unknown = head.needs & !abi::need::ALL;
            format!("`needs` has bits that this gorgo does not know ({unknown:#x}); it may be built for a newer gorgo")
        })?;
    // Rows may be longer than this version's: a later kit may have appended fields to an option.
    let stride = usize::try_from(head.option_size).unwrap_or(usize::MAX);
    let whole = stride >= mem::size_of::<AbiOption>() && stride.is_multiple_of(mem::align_of::<AbiOption>());
    if head.option_count > 0 && (head.options.is_null() || !head.options.is_aligned() || !whole) {
        return Err("`options` is null, not aligned, or `option_size` is too small".to_owned());
    }
    if head.option_count > MOST_OPTIONS {
        return Err(format!("it declares {} options; at most {MOST_OPTIONS} are allowed", head.option_count));
    }
    let mut options = Vec::with_capacity(head.option_count);
    for place in 0..head.option_count {
        // SAFETY: there are `option_count` rows of `stride` bytes, each beginning with the fields of this version.
        let spec = unsafe { &*head.options.cast::<u8>().add(place * stride).cast::<AbiOption>() };
        // SAFETY: guaranteed by this function's caller.
        options.push(unsafe { option(spec) }?);
    }
    let asks = AskedFacts { groups, named: Vec::new() };
    Ok(PluginInfo { name, version, summary, unit, asks, flags: head.flags, options })
}

/// Indices in [`FACTS`] of the facts that the descriptor names.
///
/// # Safety
/// `facts` points to `fact_count` texts, by the contract.
unsafe fn named(judge: &JudgeDescriptor) -> Result<Vec<usize>, String> {
    if judge.fact_count == 0 {
        return Ok(Vec::new());
    }
    if judge.facts.is_null() || !judge.facts.is_aligned() || judge.fact_count > MOST_FACTS {
        return Err(format!(
            "`facts` is null or not aligned, or `fact_count` is over {MOST_FACTS}: {}",
            judge.fact_count
        ));
    }
    // SAFETY: guaranteed by this function's caller.
    let names = unsafe { slice::from_raw_parts(judge.facts, judge.fact_count) };
    let place = |name: &AbiText| {
        // SAFETY: the same.
        let name = unsafe { text(*name, "a fact's name") }?;
        let place = FACT_NAMES.iter().position(|known| **known == *name);
        place.ok_or_else(|| format!("the fact `{name}` is unknown; known: {}", FACT_NAMES.join(", ")))
    };
    names.iter().map(place).collect()
}

/// # Safety
/// The pointers of `spec` are valid by the contract.
unsafe fn option(spec: &AbiOption) -> Result<DeclaredOption, String> {
    // SAFETY: guaranteed by this function's caller.
    let [name, unit, help] = unsafe {
        [
            text(spec.name, "an option's name")?,
            text(spec.unit, "an option's unit")?,
            text(spec.help, "an option's help")?,
        ]
    };
    if name.is_empty() || spec.kind > abi::kind::TEXTS {
        return Err(format!("option {name:?} has an empty name, or the unknown kind {}", spec.kind));
    }
    let number = matches!(spec.kind, abi::kind::NUMBER | abi::kind::NUMBERS);
    if number && (spec.min.is_nan() || spec.max.is_nan() || spec.min > spec.max) {
        return Err(format!("option {name}: its range from {} to {} is empty or not a number", spec.min, spec.max));
    }
    if spec.kind == abi::kind::NUMBER && !spec.default.is_nan() && !(spec.min..=spec.max).contains(&spec.default) {
        return Err(format!("option {name}: its default {} is outside its range", spec.default));
    }
    // An optimizer searches between the bounds, so both must be finite.
    if spec.flags & option_flag::TUNABLE != 0 && !(number && spec.min.is_finite() && spec.max.is_finite()) {
        return Err(format!("option {name}: only numbers within finite bounds can be tuned"));
    }
    Ok(DeclaredOption {
        name,
        unit,
        help,
        kind: spec.kind,
        flags: spec.flags,
        default: spec.default,
        min: spec.min,
        max: spec.max,
    })
}

/// # Safety
/// `text` points to `len` readable bytes.
unsafe fn text(text: AbiText, what: &str) -> Result<String, String> {
    if text.len == 0 {
        return Ok(String::new());
    }
    if text.ptr.is_null() || text.len > LONGEST_TEXT {
        return Err(format!("{what} is null or longer than {LONGEST_TEXT} bytes"));
    }
    // SAFETY: guaranteed by this function's caller; not null, and of a plausible length.
    let bytes = unsafe { slice::from_raw_parts(text.ptr.cast::<u8>(), text.len) };
    str::from_utf8(bytes).map(ToOwned::to_owned).map_err(|_| format!("{what} is not UTF-8"))
}
