//! Compiled form of an expression and its evaluation: a flat list of steps over a small stack.
//!
//! Each step's arithmetic is defined only here: constants are folded with the very functions that evaluate.
//! If a part has no value (`0 / 0`, `ln(-1)`), nothing computed from it has one: comparisons, `min` and `max` pass NaN
//! on, where plain IEEE arithmetic would lose it.

/// Most numbers that an expression may hold at once. A power of two: indices are masked instead of checked.
pub(super) const MAX_STACK: usize = 32;

// The compiler refuses deeper expressions, so the mask never changes an index: it only replaces the bounds check.
const MASK: usize = MAX_STACK - 1;

/// Evaluation stack; it can be reused any number of times, by any expression.
#[derive(Debug, Clone, Copy)]
pub struct EvalStack([f64; MAX_STACK]);

impl Default for EvalStack {
    fn default() -> Self {
        Self([0.0; MAX_STACK])
    }
}

/// Operator of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Negate,
    Not,
    /// 1 for anything but 0.
    Truth,
    Abs,
    Ln,
    Exp,
    Sqrt,
}

/// Operator of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Min,
    Max,
}

impl UnaryOp {
    #[inline]
    pub(super) fn apply(self, x: f64) -> f64 {
        match self {
            Self::Negate => -x,
            Self::Not => truth(x == 0.0, x, x),
            Self::Truth => truth(x != 0.0, x, x),
            Self::Abs => x.abs(),
            Self::Ln => x.ln(),
            Self::Exp => x.exp(),
            Self::Sqrt => x.sqrt(),
        }
    }
}

impl BinaryOp {
    #[inline]
    #[expect(clippy::float_cmp, reason = "`==` in an expression is exact, as documented")]
    pub(super) fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
            Self::Less => truth(a < b, a, b),
            Self::LessOrEqual => truth(a <= b, a, b),
            Self::Greater => truth(a > b, a, b),
            Self::GreaterOrEqual => truth(a >= b, a, b),
            Self::Equal => truth(a == b, a, b),
            Self::NotEqual => truth(a != b, a, b),
            // Not `f64::min` and `f64::max`, which would drop a NaN.
            Self::Min => select_operand(b < a, a, b),
            Self::Max => select_operand(b > a, a, b),
        }
    }
}

/// 1 or 0; NaN if either operand is NaN.
#[inline]
fn truth(is: bool, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { f64::from(u8::from(is)) }
}

/// The second if it is preferred or NaN, else the first.
#[inline]
fn select_operand(second: bool, a: f64, b: f64) -> f64 {
    if second || b.is_nan() { b } else { a }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StackInstruction {
    /// Puts a number on the stack.
    Number(f64),
    /// Puts the value in that slot on the stack; an unknown one ends the evaluation.
    Value(u16),
    /// Replaces the top.
    Unary(UnaryOp),
    /// Replaces the two on top.
    Binary(BinaryOp),
    /// The top with a number: two steps in one.
    WithNumber(BinaryOp, f64),
    /// The top with a value: two steps in one.
    WithValue(BinaryOp, u16),
    /// The left operand of `&&`: if it is 0 or NaN it is the result, else the right one follows.
    And { end: u16 },
    /// The left operand of `||`: anything but 0 makes 1 the result, else the right one follows.
    Or { end: u16 },
    /// The condition of `?:`.
    Branch { otherwise: u16, end: u16 },
    /// Continues at another step.
    Jump { end: u16 },
}

/// Runs the steps. `None`: a value that was needed is unknown.
#[inline]
pub(super) fn run(
    steps: &[StackInstruction],
    EvalStack(stack): &mut EvalStack,
    mut value: impl FnMut(u16) -> Option<f64>,
) -> Option<f64> {
    // The top is kept in a register; `below` is the number of values under it on the stack. The first push saves a top
    // that was never pushed, which no step reads again.
    let (mut top, mut below) = (0.0, 0_usize);
    let mut next = 0;
    while let Some(step) = steps.get(next) {
        next += 1;
        match *step {
            StackInstruction::Number(number) => {
                stack[below & MASK] = top;
                below = below.wrapping_add(1);
                top = number;
            }
            StackInstruction::Value(slot) => {
                stack[below & MASK] = top;
                below = below.wrapping_add(1);
                top = value(slot)?;
            }
            StackInstruction::Unary(unary) => top = unary.apply(top),
            StackInstruction::Binary(binary) => {
                below = below.wrapping_sub(1);
                top = binary.apply(stack[below & MASK], top);
            }
            StackInstruction::WithNumber(binary, number) => top = binary.apply(top, number),
            StackInstruction::WithValue(binary, slot) => top = binary.apply(top, value(slot)?),
            StackInstruction::And { end } => {
                if top == 0.0 || top.is_nan() {
                    // −0 and 0 are the same truth, and give the same result.
                    top += 0.0;
                    next = usize::from(end);
                } else {
                    below = below.wrapping_sub(1);
                    top = stack[below & MASK];
                }
            }
            StackInstruction::Or { end } => {
                if top == 0.0 {
                    below = below.wrapping_sub(1);
                    top = stack[below & MASK];
                } else {
                    // NaN is not 0 either: it gets here, and `Truth` passes it on.
                    top = UnaryOp::Truth.apply(top);
                    next = usize::from(end);
                }
            }
            StackInstruction::Branch { otherwise, end } => {
                // A condition without a value makes the whole choice NaN: the condition itself is left as the result.
                if top.is_nan() {
                    next = usize::from(end);
                } else {
                    let holds = top != 0.0;
                    below = below.wrapping_sub(1);
                    top = stack[below & MASK];
                    if !holds {
                        next = usize::from(otherwise);
                    }
                }
            }
            StackInstruction::Jump { end } => next = usize::from(end),
        }
    }
    Some(top)
}
