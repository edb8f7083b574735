//! Text → steps, in one pass: a precedence parser that emits the steps of each part as soon as it has read it.
//!
//! ```text
//! choice     = or [ "?" choice ":" choice ]
//! or         = and { "||" and }
//! and        = equality { "&&" equality }
//! equality   = comparison [ ("==" | "!=") comparison ] | name ("==" | "!=") text
//! comparison = sum [ ("<" | "<=" | ">" | ">=") sum ]
//! sum        = product { ("+" | "-") product }
//! product    = prefix { ("*" | "/") prefix }
//! prefix     = ("-" | "!") prefix | primary
//! primary    = number | name | function "(" choice { "," choice } ")" | "(" choice ")"
//! ```
//!
//! Long sums are loops here and short programs; nested parts are bounded by [`MAX_NESTING`], so that no text can
//! exhaust the stack of the thread that compiles it. Parts without names are replaced by their value at once, and a
//! choice with such a condition by the branch that is taken; both branches are checked all the same.

use super::dimension::UnitDimension;
use super::error::suggestion;
use super::lexer::{LexToken, Lexer};
use super::program::{BinaryOp, MAX_STACK, StackInstruction, UnaryOp};
use super::{ExprError, MAX_NESTING, MAX_TEXT_BYTES, TextComparison};

/// Functions, with the least and the largest number of their arguments.
pub(super) const FUNCTIONS: [(&str, usize, usize); 7] = [
    ("min", 2, usize::MAX),
    ("max", 2, usize::MAX),
    ("abs", 1, 1),
    ("clamp", 3, 3),
    ("ln", 1, 1),
    ("exp", 1, 1),
    ("sqrt", 1, 1),
];

/// Words of other languages, and the advice to give.
const FOREIGN_OPERATORS: [(&str, &str); 7] = [
    ("and", "`and` is written `&&`"),
    ("or", "`or` is written `||`"),
    ("not", "`not` is written `!`"),
    ("if", "`if` is written `condition ? then : else`"),
    ("true", "`true` is written 1"),
    ("false", "`false` is written 0"),
    ("pow", "there is no `pow`; write a product, or exp and ln"),
];

/// A part that was read and emitted.
#[derive(Debug, Clone, Copy)]
struct Subexpression {
    /// The step it begins at.
    start: usize,
    /// The byte it begins at.
    at: usize,
    dimension: UnitDimension,
}

/// State of a compilation.
pub(super) struct ExpressionCompiler<'t> {
    lexer: Lexer<'t>,
    at: usize,
    token: LexToken<'t>,
    names: &'t [&'t str],
    /// Units of the names; if there are fewer, the units of the remaining names are unknown.
    units: &'t [&'t str],
    /// Names with text values.
    texts: &'t [&'t str],
    steps: Vec<StackInstruction>,
    comparisons: Vec<TextComparison>,
    /// Numbers on the stack once the steps so far have run.
    depth: usize,
    nesting: usize,
    /// The last step that a jump leads to: the steps before it are not the only way to get there.
    last_jump_target: usize,
}

impl<'t> ExpressionCompiler<'t> {
    /// The steps of a whole text. `result`: the unit that it must be in.
    pub(super) fn compile(
        text: &'t str,
        names: &'t [&'t str],
        units: &'t [&'t str],
        texts: &'t [&'t str],
        result: Option<&str>,
    ) -> Result<(Vec<StackInstruction>, Vec<TextComparison>), ExprError> {
        let lexer = Lexer::new(text);
        // Bounds the number of steps too, so that positions fit 16 bits.
        if text.len() > MAX_TEXT_BYTES {
            return Err(lexer.error(0, format!("{} bytes; at most {MAX_TEXT_BYTES} are allowed", text.len())));
        }
        let mut it = Self {
            lexer,
            at: 0,
            token: LexToken::End,
            names,
            units,
            texts,
            steps: Vec::new(),
            comparisons: Vec::new(),
            depth: 0,
            nesting: 0,
            last_jump_target: 0,
        };
        it.advance()?;
        let whole = it.choice()?;
        if it.token != LexToken::End {
            return Err(it.unexpected("an operator or the end"));
        }
        // A free number fits any unit; only a plain contradiction is an error.
        if let Some(unit) = result
            && whole.dimension.unify(UnitDimension::parse(unit)).is_none()
        {
            let message = format!("the result is in {}, not in {unit}", whole.dimension);
            return Err(it.lexer.error(whole.at, message));
        }
        Ok((it.steps, it.comparisons))
    }

    fn choice(&mut self) -> Result<Subexpression, ExprError> {
        self.nest()?;
        let condition = self.or()?;
        let whole = if self.token == LexToken::Symbol("?") { self.conditional(condition)? } else { condition };
        // Not reached on an error, but an error ends the whole compilation.
        self.nesting -= 1;
        Ok(whole)
    }

    /// The two branches after a condition. If the condition is a constant, the branch that is not taken is parsed, checked
    /// and dropped.
    fn conditional(&mut self, condition: Subexpression) -> Result<Subexpression, ExprError> {
        self.advance()?;
        let known = self.constant(condition).map(|value| value != 0.0);
        // A constant condition leaves no step; otherwise a placeholder is emitted, patched once both ends are known.
        let branch = self.steps.len();
        match known {
            Some(_) => self.steps.truncate(condition.start),
            None => self.steps.push(StackInstruction::Branch { otherwise: 0, end: 0 }),
        }
        // At run time the branch step takes the condition off the stack.
        self.depth -= 1;
        let before = self.depth;
        let then = self.choice()?;
        match known {
            Some(true) => {}
            Some(false) => self.steps.truncate(condition.start),
            None => self.steps.push(StackInstruction::Jump { end: 0 }),
        }
        // Each branch starts from the same depth, because only one of them runs.
        self.depth = before;
        let otherwise = self.next_step_index();
        self.expect(":")?;
        let alternative = self.choice()?;
        // The branch that is not taken has been checked; now its steps can go.
        match known {
            Some(true) => self.steps.truncate(usize::from(otherwise)),
            Some(false) => {}
            None => {
                let end = self.next_step_index();
                self.steps[branch] = StackInstruction::Branch { otherwise, end };
                self.steps[usize::from(otherwise) - 1] = StackInstruction::Jump { end };
            }
        }
        self.depth = before + 1;
        // Checked even if one branch was dropped: a mistake must not hide behind a constant.
        let dimension = self.common_unit(then, alternative, "chooses between")?;
        Ok(Subexpression { dimension, ..condition })
    }

    fn or(&mut self) -> Result<Subexpression, ExprError> {
        let mut left = self.and()?;
        while self.token == LexToken::Symbol("||") {
            left = self.logical(left, Self::and, true)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Subexpression, ExprError> {
        let mut left = self.equality()?;
        while self.token == LexToken::Symbol("&&") {
            left = self.logical(left, Self::equality, false)?;
        }
        Ok(left)
    }

    /// `left && right`, or `left || right` if `decides`: the truth value of the left operand that settles the result alone.
    fn logical(
        &mut self,
        left: Subexpression,
        operand: fn(&mut Self) -> Result<Subexpression, ExprError>,
        decides: bool,
    ) -> Result<Subexpression, ExprError> {
        self.advance()?;
        let known = self.constant(left).map(|value| value != 0.0);
        let jump = self.steps.len();
        // As in `conditional`: the jump is a placeholder until the end of the right operand is known.
        match known {
            Some(_) => self.steps.truncate(left.start),
            None => self.steps.push(StackInstruction::Jump { end: 0 }),
        }
        self.depth -= 1;
        let before = self.depth;
        let right = operand(self)?;
        // The result must be 1 or 0 even if the right operand is another number.
        self.unary(right, UnaryOp::Truth, right.at)?;
        match known {
            Some(known) if known == decides => {
                self.steps.truncate(left.start);
                self.steps.push(StackInstruction::Number(f64::from(u8::from(decides))));
            }
            Some(_) => {}
            None => {
                let end = self.next_step_index();
                self.steps[jump] = if decides { StackInstruction::Or { end } } else { StackInstruction::And { end } };
            }
        }
        self.depth = before + 1;
        Ok(Subexpression { dimension: UnitDimension::Truth, ..left })
    }

    fn equality(&mut self) -> Result<Subexpression, ExprError> {
        let equality = |symbol: &str| match symbol {
            "==" => Some(BinaryOp::Equal),
            "!=" => Some(BinaryOp::NotEqual),
            _ => None,
        };
        if let LexToken::Name(name) = self.token
            && let Some(place) = self.texts.iter().position(|known| *known == name)
        {
            return self.text_comparison(place, name, equality);
        }
        self.comparison_chain(Self::comparison, equality)
    }

    /// `region == "eu"`: gets its own slot, because for a replica it is 1 or 0 in every decision.
    fn text_comparison(
        &mut self,
        place: usize,
        name: &str,
        equality: fn(&str) -> Option<BinaryOp>,
    ) -> Result<Subexpression, ExprError> {
        let (at, start) = (self.at, self.steps.len());
        self.advance()?;
        // Only a comparison can follow: the language has no other use for a text.
        let Some(operator) = self.operator(equality) else { return Err(self.bare_text(at, name)) };
        self.advance()?;
        let LexToken::Text(text) = self.token else {
            return Err(self.unexpected(&format!("a text, such as {name} == \"…\"")));
        };
        self.advance()?;
        // The result is 1 or 0, so a further comparison or arithmetic is almost certainly a mistake.
        if let LexToken::Symbol("==" | "!=" | "<" | "<=" | ">" | ">=" | "+" | "-" | "*" | "/") = self.token {
            let message = format!("put the comparison of texts in brackets: ({name} == \"…\")");
            return Err(self.lexer.error(self.at, message));
        }
        // Equal comparisons share a slot.
        let known = self.comparisons.iter().position(|known| known.name == place && known.text == text);
        let comparison = known.unwrap_or_else(|| {
            self.comparisons.push(TextComparison { name: place, text: text.to_owned() });
            self.comparisons.len() - 1
        });
        // Slots of comparisons follow those of the names, so both are read by the same kind of step.
        self.push(StackInstruction::Value(to_u16(self.names.len() + comparison)))?;
        if operator == BinaryOp::NotEqual {
            self.steps.push(StackInstruction::Unary(UnaryOp::Not));
        }
        Ok(Subexpression { start, at, dimension: UnitDimension::Truth })
    }

    fn bare_text(&self, at: usize, name: &str) -> ExprError {
        let message =
            format!("`{name}` is a text; compare it: {name} == \"…\" or {name} != \"…\", alone or in brackets");
        self.lexer.error(at, message)
    }

    fn comparison(&mut self) -> Result<Subexpression, ExprError> {
        self.comparison_chain(Self::sum, |symbol| match symbol {
            "<" => Some(BinaryOp::Less),
            "<=" => Some(BinaryOp::LessOrEqual),
            ">" => Some(BinaryOp::Greater),
            ">=" => Some(BinaryOp::GreaterOrEqual),
            _ => None,
        })
    }

    fn comparison_chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Subexpression, ExprError>,
        operator: fn(&str) -> Option<BinaryOp>,
    ) -> Result<Subexpression, ExprError> {
        let left = operand(self)?;
        let Some(binary) = self.operator(operator) else { return Ok(left) };
        let at = self.at;
        self.advance()?;
        let right = operand(self)?;
        // `a < b < c` would compare 1 or 0 with c, which is never what was meant.
        if self.operator(operator).is_some() {
            let message = "comparisons do not chain; write a < b && b < c";
            return Err(self.lexer.error(self.at, message));
        }
        // Only checked: the result is a truth value whatever the unit of the operands.
        self.common_unit(left, right, "compares")?;
        self.binary(left, right, binary, at)?;
        Ok(Subexpression { dimension: UnitDimension::Truth, ..left })
    }

    fn sum(&mut self) -> Result<Subexpression, ExprError> {
        let operator = |symbol: &str| match symbol {
            "+" => Some(BinaryOp::Add),
            "-" => Some(BinaryOp::Subtract),
            _ => None,
        };
        let mut left = self.product()?;
        while let Some(binary) = self.operator(operator) {
            let at = self.at;
            self.advance()?;
            let right = self.product()?;
            let does = if binary == BinaryOp::Add { "adds" } else { "takes the difference of" };
            let dimension = self.common_unit(left, right, does)?;
            self.binary(left, right, binary, at)?;
            left.dimension = dimension;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Subexpression, ExprError> {
        let operator = |symbol: &str| match symbol {
            "*" => Some(BinaryOp::Multiply),
            "/" => Some(BinaryOp::Divide),
            _ => None,
        };
        let mut left = self.prefix()?;
        while let Some(binary) = self.operator(operator) {
            let at = self.at;
            self.advance()?;
            let right = self.prefix()?;
            // A division subtracts the exponents of the units.
            let sign = if binary == BinaryOp::Multiply { 1 } else { -1 };
            self.binary(left, right, binary, at)?;
            left.dimension = left.dimension.times(right.dimension, sign);
        }
        Ok(left)
    }

    fn prefix(&mut self) -> Result<Subexpression, ExprError> {
        let (unary, at) = match self.token {
            LexToken::Symbol("-") => (UnaryOp::Negate, self.at),
            LexToken::Symbol("!") => (UnaryOp::Not, self.at),
            _ => return self.primary(),
        };
        // A row of prefix operators recurses like brackets do, so it counts as nesting.
        self.nest()?;
        self.advance()?;
        let part = Subexpression { at, ..self.prefix()? };
        self.nesting -= 1;
        self.unary(part, unary, at)?;
        Ok(if unary == UnaryOp::Not { Subexpression { dimension: UnitDimension::Truth, ..part } } else { part })
    }

    fn primary(&mut self) -> Result<Subexpression, ExprError> {
        let (at, start) = (self.at, self.steps.len());
        let token = self.token;
        match token {
            LexToken::Number(number) => {
                self.advance()?;
                self.push(StackInstruction::Number(number))?;
                Ok(Subexpression { start, at, dimension: UnitDimension::Any })
            }
            LexToken::Name(name) => {
                self.advance()?;
                if self.token == LexToken::Symbol("(") { self.call(name, at) } else { self.value(name, at) }
            }
            LexToken::Symbol("(") => {
                self.advance()?;
                let inner = self.choice()?;
                self.expect(")")?;
                Ok(Subexpression { at, ..inner })
            }
            _ => Err(self.unexpected("a number, a name, a function or `(`")),
        }
    }

    fn value(&mut self, name: &str, at: usize) -> Result<Subexpression, ExprError> {
        let start = self.steps.len();
        let Some(slot) = self.names.iter().position(|known| *known == name) else {
            let message = if FUNCTIONS.iter().any(|(function, ..)| *function == name) {
                format!("`{name}` is a function; write {name}(…)")
            } else if let Some((_, advice)) = FOREIGN_OPERATORS.iter().find(|(stranger, _)| *stranger == name) {
                (*advice).to_owned()
            } else if self.texts.contains(&name) {
                return Err(self.bare_text(at, name));
            } else {
                let known: Vec<&str> = self.names.iter().chain(self.texts).copied().collect();
                format!("unknown name `{name}`; {}", suggestion(name, &known))
            };
            return Err(self.lexer.error(at, message));
        };
        self.push(StackInstruction::Value(to_u16(slot)))?;
        let dimension = self.units.get(slot).map_or(UnitDimension::Any, |unit| UnitDimension::parse(unit));
        Ok(Subexpression { start, at, dimension })
    }

    fn call(&mut self, name: &str, at: usize) -> Result<Subexpression, ExprError> {
        let Some((_, least, most)) = FUNCTIONS.iter().find(|(function, ..)| *function == name).copied() else {
            let message = if self.names.contains(&name) {
                format!("`{name}` is a number, not a function")
            } else if let Some((_, advice)) = FOREIGN_OPERATORS.iter().find(|(stranger, _)| *stranger == name) {
                (*advice).to_owned()
            } else {
                let known = FUNCTIONS.map(|(function, ..)| function);
                format!("unknown function `{name}`; {}", suggestion(name, &known))
            };
            return Err(self.lexer.error(at, message));
        };
        self.advance()?;
        let (mut whole, mut given, mut bounds) = (None, 0, [None; 2]);
        while given == 0 || self.token == LexToken::Symbol(",") {
            if given > 0 {
                self.advance()?;
            } else if self.token == LexToken::Symbol(")") {
                break;
            }
            let argument = self.choice()?;
            given += 1;
            // Arguments are combined as they are read, so that a call needs no argument count at run time.
            let Some(first) = whole else {
                // A mistake in the result is shown at the function's name, not at its first argument.
                whole = Some(Subexpression { at, ..argument });
                continue;
            };
            let binary = match (name, given) {
                ("clamp", 2) | ("max", _) => BinaryOp::Max,
                ("clamp", 3) | ("min", _) => BinaryOp::Min,
                // One argument too many: the error below reports it.
                _ => continue,
            };
            if name == "clamp" {
                // Remembered to compare both bounds once they are known.
                bounds[given - 2] = self.constant(argument);
            }
            let dimension = self.common_unit(first, argument, "compares")?;
            self.binary(first, argument, binary, at)?;
            whole = Some(Subexpression { dimension, ..first });
        }
        let Some(whole) = whole.filter(|_| given >= least && given <= most) else {
            let count = match (least, most) {
                (1, 1) => "one argument".to_owned(),
                (least, most) if least == most => format!("{least} arguments"),
                (least, _) => format!("at least {least} arguments"),
            };
            return Err(self.lexer.error(at, format!("`{name}` takes {count}, found {given}")));
        };
        // With constant bounds the wrong way round the result would always be the upper one.
        if let [Some(low), Some(high)] = bounds
            && low > high
        {
            return Err(self.lexer.error(at, format!("the lower bound of `clamp`, {low}, is above the upper, {high}")));
        }
        self.expect(")")?;
        let unary = match name {
            "abs" => UnaryOp::Abs,
            "ln" => UnaryOp::Ln,
            "exp" => UnaryOp::Exp,
            "sqrt" => UnaryOp::Sqrt,
            _ => return Ok(whole),
        };
        self.unary(whole, unary, at)?;
        // `ln`, `exp` and `sqrt` have no unit that could be checked.
        Ok(if unary == UnaryOp::Abs { whole } else { Subexpression { dimension: UnitDimension::Any, ..whole } })
    }

    /// Applies an operator to the last part. `at`: the byte at which an error is reported.
    fn unary(&mut self, part: Subexpression, unary: UnaryOp, at: usize) -> Result<(), ExprError> {
        if let Some(value) = self.constant(part) {
            return self.fold_constant(part, unary.apply(value), at);
        }
        // A comparison already leaves 1 or 0, so the conversion can be saved, unless a jump lands here with another number.
        let done = unary == UnaryOp::Truth
            && self.last_jump_target != self.steps.len()
            && self.steps.last().is_some_and(is_truth);
        if !done {
            self.steps.push(StackInstruction::Unary(unary));
        }
        Ok(())
    }

    /// Applies an operator to the last two parts.
    fn binary(
        &mut self,
        left: Subexpression,
        right: Subexpression,
        binary: BinaryOp,
        at: usize,
    ) -> Result<(), ExprError> {
        self.depth -= 1;
        // The most common operands, a literal or a name on the right, are merged into one step: half the dispatches.
        let single = self.steps.len() == right.start + 1;
        // Only a left part of a single step can be a literal; of a longer one this would be no more than its
        // beginning.
        let first = if right.start == left.start + 1 { self.steps.get(left.start).copied() } else { None };
        let last = if single { self.steps.last().copied() } else { None };
        let step = match (first, last) {
            (Some(StackInstruction::Number(a)), Some(StackInstruction::Number(b))) => {
                return self.fold_constant(left, binary.apply(a, b), at);
            }
            (_, Some(StackInstruction::Number(number))) => StackInstruction::WithNumber(binary, number),
            (_, Some(StackInstruction::Value(slot))) => StackInstruction::WithValue(binary, slot),
            _ => StackInstruction::Binary(binary),
        };
        if !matches!(step, StackInstruction::Binary(_)) {
            self.steps.truncate(right.start);
        }
        self.steps.push(step);
        Ok(())
    }

    /// Replaces a constant part by its value.
    fn fold_constant(&mut self, part: Subexpression, value: f64, at: usize) -> Result<(), ExprError> {
        if !value.is_finite() {
            let what = if value.is_nan() { "this has no value" } else { "this is infinite" };
            return Err(self.lexer.error(at, what));
        }
        self.steps.truncate(part.start);
        self.steps.push(StackInstruction::Number(value));
        Ok(())
    }

    /// The value of the last part, if it is a constant.
    fn constant(&self, part: Subexpression) -> Option<f64> {
        match self.steps.get(part.start..) {
            Some([StackInstruction::Number(number)]) => Some(*number),
            _ => None,
        }
    }

    fn push(&mut self, step: StackInstruction) -> Result<(), ExprError> {
        if self.depth == MAX_STACK {
            let message =
                format!("this needs more than {MAX_STACK} intermediate results at once; compute some of them earlier");
            return Err(self.lexer.error(self.at, message));
        }
        self.steps.push(step);
        self.depth += 1;
        Ok(())
    }

    /// The position of the next step, as the target of a jump.
    fn next_step_index(&mut self) -> u16 {
        // A jump that lands here forbids merging this step with the one before.
        self.last_jump_target = self.steps.len();
        to_u16(self.last_jump_target)
    }

    fn nest(&mut self) -> Result<(), ExprError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(self.lexer.error(self.at, format!("nested more than {MAX_NESTING} deep")));
        }
        Ok(())
    }

    /// The common unit of two parts, which must have the same.
    fn common_unit(&self, left: Subexpression, right: Subexpression, does: &str) -> Result<UnitDimension, ExprError> {
        left.dimension.unify(right.dimension).ok_or_else(|| {
            let message = format!(
                "{does} {} and {}; multiply one of them by a rate, or by a number that converts it",
                left.dimension, right.dimension
            );
            self.lexer.error(right.at, message)
        })
    }

    /// The operator at the current token, if it is one of these.
    fn operator(&self, known: fn(&str) -> Option<BinaryOp>) -> Option<BinaryOp> {
        match self.token {
            LexToken::Symbol(symbol) => known(symbol),
            _ => None,
        }
    }

    fn advance(&mut self) -> Result<(), ExprError> {
        (self.at, self.token) = self.lexer.next()?;
        Ok(())
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), ExprError> {
        if self.token != LexToken::Symbol(symbol) {
            return Err(self.unexpected(&format!("`{symbol}`")));
        }
        self.advance()
    }

    fn unexpected(&self, expected: &str) -> ExprError {
        if let LexToken::Name(name) = self.token
            && let Some((_, advice)) = FOREIGN_OPERATORS.iter().find(|(stranger, _)| *stranger == name)
        {
            return self.lexer.error(self.at, *advice);
        }
        // Otherwise the text itself is shown, as it was written.
        let found = self.token.describe(self.lexer.text_since(self.at));
        self.lexer.error(self.at, format!("expected {expected}, found {found}"))
    }
}

/// Returns true if a step leaves 1 or 0.
const fn is_truth(step: &StackInstruction) -> bool {
    match step {
        StackInstruction::Unary(unary) => matches!(unary, UnaryOp::Not | UnaryOp::Truth),
        StackInstruction::Binary(binary)
        | StackInstruction::WithNumber(binary, _)
        | StackInstruction::WithValue(binary, _) => matches!(
            binary,
            BinaryOp::Less
                | BinaryOp::LessOrEqual
                | BinaryOp::Greater
                | BinaryOp::GreaterOrEqual
                | BinaryOp::Equal
                | BinaryOp::NotEqual
        ),
        _ => false,
    }
}

/// Steps are fewer than the bytes of the text ([`MAX_TEXT_BYTES`]), and lists of names are far shorter than that.
fn to_u16(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}
