//! The language held against a second evaluator that knows nothing of steps, and texts that are none.

use proptest::prelude::*;

use super::*;
use crate::model::arbitrary::fixed;
use crate::model::{Candidates, FACTS, RequestView, RequiredFacts, TEXT_FACTS};

const NAMES: [&str; 4] = ["rtt_ms", "queued_tokens", "inflight", "report_age_ms"];

/// An expression as a tree, evaluated the plain way.
#[derive(Debug, Clone)]
enum ExprTree {
    Number(f64),
    Name(usize),
    Prefix(char, Box<ExprTree>),
    Infix(&'static str, Box<ExprTree>, Box<ExprTree>),
    Choice(Box<ExprTree>, Box<ExprTree>, Box<ExprTree>),
    Call(&'static str, Vec<ExprTree>),
}

/// `Err`: an unknown value was needed.
type KnownValue = Result<f64, ()>;

impl ExprTree {
    fn value(&self, values: &[f64]) -> KnownValue {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Name(slot) if values[*slot].is_nan() => return Err(()),
            Self::Name(slot) => values[*slot],
            Self::Prefix(sign, of) => {
                let of = of.value(values)?;
                match sign {
                    '-' => -of,
                    _ if of.is_nan() => of,
                    _ => f64::from(of == 0.0),
                }
            }
            Self::Infix("&&", a, b) => match a.value(values)? {
                a if a.is_nan() => a,
                0.0 => 0.0,
                _ => truth(b.value(values)?),
            },
            Self::Infix("||", a, b) => match a.value(values)? {
                0.0 => truth(b.value(values)?),
                a => truth(a),
            },
            Self::Infix(operator, a, b) => {
                let (a, b) = (a.value(values)?, b.value(values)?);
                match *operator {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "/" => a / b,
                    _ if a.is_nan() || b.is_nan() => f64::NAN,
                    "<" => f64::from(a < b),
                    "<=" => f64::from(a <= b),
                    ">" => f64::from(a > b),
                    ">=" => f64::from(a >= b),
                    "==" => f64::from(a == b),
                    _ => f64::from(a != b),
                }
            }
            Self::Choice(condition, then, otherwise) => match condition.value(values)? {
                c if c.is_nan() => c,
                0.0 => otherwise.value(values)?,
                _ => then.value(values)?,
            },
            Self::Call(name, arguments) => {
                let of = arguments.iter().map(|argument| argument.value(values)).collect::<Result<Vec<_>, _>>()?;
                if of.iter().any(|argument| argument.is_nan()) {
                    return Ok(f64::NAN);
                }
                match *name {
                    "min" => of.into_iter().reduce(|a, b| if b < a { b } else { a }).unwrap(),
                    "max" => of.into_iter().reduce(|a, b| if b > a { b } else { a }).unwrap(),
                    "clamp" => {
                        let raised = if of[1] > of[0] { of[1] } else { of[0] };
                        if of[2] < raised { of[2] } else { raised }
                    }
                    "abs" => of[0].abs(),
                    "ln" => of[0].ln(),
                    "exp" => of[0].exp(),
                    _ => of[0].sqrt(),
                }
            }
        })
    }

    /// As text, with no more brackets than precedence asks for; `level` is that of what stands around.
    fn print(&self, level: u8, into: &mut String) {
        let own = match self {
            Self::Number(_) | Self::Name(_) | Self::Call(..) => 9,
            Self::Prefix(..) => 8,
            Self::Infix(operator, ..) => precedence(operator),
            Self::Choice(..) => 1,
        };
        let bracketed = own < level;
        if bracketed {
            into.push('(');
        }
        match self {
            Self::Number(number) => into.push_str(&format!("{number:?}")),
            Self::Name(slot) => into.push_str(NAMES[*slot]),
            Self::Prefix(sign, of) => {
                into.push(*sign);
                of.print(8, into);
            }
            Self::Infix(operator, a, b) => {
                // Comparisons do not chain, so both of their operands bind tighter; the others lean to the left.
                a.print(if own == 4 || own == 5 { own + 1 } else { own }, into);
                into.push_str(&format!(" {operator} "));
                b.print(own + 1, into);
            }
            Self::Choice(condition, then, otherwise) => {
                condition.print(2, into);
                into.push_str(" ? ");
                then.print(1, into);
                into.push_str(" : ");
                otherwise.print(1, into);
            }
            Self::Call(name, arguments) => {
                into.push_str(name);
                for (place, argument) in arguments.iter().enumerate() {
                    into.push_str(if place == 0 { "(" } else { ", " });
                    argument.print(1, into);
                }
                into.push(')');
            }
        }
        if bracketed {
            into.push(')');
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.print(1, &mut text);
        text
    }

    /// The same with names' values written in.
    fn spelled_out(&self, values: &[f64]) -> Self {
        let inner = |of: &Self| Box::new(of.spelled_out(values));
        match self {
            Self::Number(number) => Self::Number(*number),
            Self::Name(slot) => Self::Number(values[*slot]),
            Self::Prefix(sign, of) => Self::Prefix(*sign, inner(of)),
            Self::Infix(operator, a, b) => Self::Infix(operator, inner(a), inner(b)),
            Self::Choice(a, b, c) => Self::Choice(inner(a), inner(b), inner(c)),
            Self::Call(name, of) => Self::Call(name, of.iter().map(|of| of.spelled_out(values)).collect()),
        }
    }
}

fn truth(value: f64) -> f64 {
    if value.is_nan() { value } else { f64::from(value != 0.0) }
}

fn precedence(operator: &str) -> u8 {
    match operator {
        "||" => 2,
        "&&" => 3,
        "==" | "!=" => 4,
        "<" | "<=" | ">" | ">=" => 5,
        "+" | "-" => 6,
        _ => 7,
    }
}

/// A number that is a literal: not negative, for `-` is a prefix.
fn literal() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..10.0, 0.0..1e6, Just(1e-7), Just(1e300)]
}

fn tree() -> impl Strategy<Value = ExprTree> {
    let leaf = prop_oneof![2 => literal().prop_map(ExprTree::Number), 3 => (0..NAMES.len()).prop_map(ExprTree::Name)];
    leaf.prop_recursive(6, 40, 3, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let operators = prop::sample::select(vec!["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&&", "||"]);
        let calls = prop_oneof![
            (prop::sample::select(vec!["min", "max"]), prop::collection::vec(inner.clone(), 2..5)),
            (Just("clamp"), prop::collection::vec(inner.clone(), 3)),
            (prop::sample::select(vec!["abs", "ln", "exp", "sqrt"]), prop::collection::vec(inner.clone(), 1)),
        ];
        prop_oneof![
            1 => (prop_oneof![Just('-'), Just('!')], boxed()).prop_map(|(sign, of)| ExprTree::Prefix(sign, of)),
            5 => (operators, boxed(), boxed()).prop_map(|(operator, a, b)| ExprTree::Infix(operator, a, b)),
            2 => (boxed(), boxed(), boxed()).prop_map(|(a, b, c)| ExprTree::Choice(a, b, c)),
            2 => calls.prop_map(|(name, of)| ExprTree::Call(name, of)),
        ]
    })
}

/// A value of a name; NaN is one that is unknown.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..1e5_f64, 2 => Just(0.0), 1 => Just(1.0), 1 => -10.0..0.0_f64, 1 => Just(f64::NAN)]
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a == 0.0 && b == 0.0 || a.is_nan() && b.is_nan()
}

/// Errors that folding makes of parts that every evaluation of the plain sort gives a result.
fn of_a_constant(error: &ExprError) -> bool {
    ["this is infinite", "this has no value", "the lower bound of `clamp`"].iter().any(|it| error.message.contains(it))
}

proptest! {
    #![proptest_config(fixed(4_000))]

    #[test]
    fn printed_trees_evaluate_as_the_trees_do(tree in tree(), values in prop::collection::vec(value(), NAMES.len())) {
        let text = tree.text();
        let expression = match Expression::compile(&text, &NAMES) {
            Ok(expression) => expression,
            Err(error) => {
                prop_assert!(of_a_constant(&error), "{text}: {error}");
                return Ok(());
            }
        };
        let mut stack = EvalStack::default();
        let known = |slot: u16| Some(values[usize::from(slot)]).filter(|value| !value.is_nan());
        let ours = expression.eval_with(&mut stack, known);
        match tree.value(&values) {
            Ok(plain) => prop_assert!(ours.is_some_and(|ours| same(ours, plain)), "{text}: {ours:?}, not {plain}"),
            Err(()) => prop_assert_eq!(ours, None, "{}", text),
        }
        prop_assert!(same(expression.eval(&values, &mut stack), ours.unwrap_or(f64::NAN)), "{text}");
        // What is asked for was announced.
        let mut asked = Vec::new();
        let _ = expression.eval_with(&mut stack, |slot| {
            asked.push(usize::from(slot));
            Some(values[usize::from(slot)])
        });
        let slots = expression.slots();
        prop_assert!(asked.iter().all(|slot| slots.contains(slot)), "{text}: {asked:?} {slots:?}");
    }

    #[test]
    fn what_is_folded_is_what_would_be_evaluated(
        tree in tree(), values in prop::collection::vec(0.0..1e4_f64, NAMES.len()),
    ) {
        let Ok(expression) = Expression::compile(&tree.text(), &NAMES) else { return Ok(()) };
        let Ok(folded) = Expression::compile(&tree.spelled_out(&values).text(), &[]) else { return Ok(()) };
        prop_assert!(folded.constant().is_some(), "{folded:?}");
        let mut stack = EvalStack::default();
        let (late, early) = (expression.eval(&values, &mut stack), folded.eval(&[], &mut stack));
        prop_assert!(same(late, early), "{}: {late} {early}", tree.text());
    }

    #[test]
    fn no_text_at_all_makes_it_panic(text in "\\PC{0,80}") {
        if let Err(error) = Expression::compile(&text, &NAMES) {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
            prop_assert!(!error.message.is_empty());
        }
    }

    /// Words of the language in any order, so that most mistakes are past the lexer.
    #[test]
    fn no_jumble_of_words_makes_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "rtt_ms", "inflight", "1", "0", "2.5", "1e9", "+", "-", "*", "/", "<", "<=", "==", "!=", "&&", "||", "!", "?",
            ":", "(", ")", ",", "min", "max", "abs", "clamp", "ln", "exp", "sqrt", "é", "0x", "1_", "_", "=", " ", "\n",
        ]), 0..60),
    ) {
        let text = words.concat();
        if let Ok(expression) = Expression::compile(&text, &NAMES) {
            let _ = expression.eval(&[1.0, 0.0, 3.0, 4.0], &mut EvalStack::default());
        }
    }

    /// Sound texts with a few bytes changed, taken out, doubled: what a slip or a merge leaves behind.
    #[test]
    fn mutated_expressions_are_refused_or_evaluate(
        tree in tree(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, "[ -~é\n]"), 1..6),
    ) {
        let mut text: Vec<char> = tree.text().chars().collect();
        for (place, change, letter) in changes {
            let at = place.index(text.len() + 1);
            let letter = letter.chars().next().unwrap();
            match change {
                0 => text.insert(at, letter),
                1 if at < text.len() => text[at] = letter,
                2 if at < text.len() => drop(text.remove(at)),
                _ => {
                    let tail: Vec<char> = text[at..].iter().take(8).copied().collect();
                    text.extend(tail);
                }
            }
        }
        let text: String = text.into_iter().collect();
        match Expression::compile(&text, &NAMES) {
            Ok(expression) => {
                let value = expression.eval(&[1.0, 2.0, 0.0, 4.0], &mut EvalStack::default());
                let again = expression.eval(&[1.0, 2.0, 0.0, 4.0], &mut EvalStack::default());
                prop_assert!(same(value, again));
            }
            Err(error) => prop_assert!(error.to_string().contains("column ")),
        }
    }
}

fn of(text: &str) -> f64 {
    Expression::compile(text, &NAMES).unwrap().eval(&[20.0, 5_000.0, 3.0, f64::NAN], &mut EvalStack::default())
}

#[test]
fn operators_bind_as_in_c() {
    for (text, value) in [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("10 - 2 - 3", 5.0),
        ("2 * 6 / 3 / 2", 2.0),
        ("-2 * -3", 6.0),
        ("--2", 2.0),
        ("!0 + 1", 2.0),
        ("!rtt_ms", 0.0),
        ("1 < 2 == 3 > 2", 1.0),
        ("1 || 0 && 0", 1.0),
        ("0 && 1 || 1", 1.0),
        ("0 ? 1 : 0 ? 2 : 3", 3.0),
        ("queued_tokens > 4000 ? 50 : 0", 50.0),
        ("5 && 7", 1.0),
        ("inflight || 0", 1.0),
        ("max(0, queued_tokens - 512) * 0.5 + (rtt_ms > 10 ? 50 : 0)", 2_294.0),
        ("min(rtt_ms, 3, inflight + 1)", 3.0),
        ("clamp(rtt_ms, 1, 10) + clamp(rtt_ms, 30, 40) + clamp(rtt_ms, 1, 40)", 60.0),
        ("clamp(rtt_ms, inflight, 2)", 2.0),
        ("abs(inflight - 10)", 7.0),
        ("exp(ln(rtt_ms))", 20.0_f64.ln().exp()),
        ("sqrt(16) + ln(1) + exp(0)", 5.0),
        ("1_000.5e-1", 100.05),
        ("rtt_ms\n\t+ 1", 21.0),
    ] {
        assert_eq!(of(text), value, "{text}");
    }
}

#[test]
fn only_what_is_needed_must_be_known() {
    assert!(of("report_age_ms").is_nan());
    assert!(of("0 * report_age_ms").is_nan());
    assert!(of("min(1, report_age_ms)").is_nan());
    assert!(of("report_age_ms > 5 ? 1 : 2").is_nan());
    assert_eq!(of("inflight > 5 ? report_age_ms : rtt_ms"), 20.0);
    assert_eq!(of("inflight && 1 || report_age_ms"), 1.0);
    assert_eq!(of("inflight > 5 && report_age_ms > 1"), 0.0);
}

#[test]
fn what_has_no_value_does_not_hide_in_comparisons() {
    for text in [
        "(inflight - 3) / (inflight - 3) > 1",
        "ln(-rtt_ms) < 1 ? 1 : 2",
        "max(sqrt(-rtt_ms), 1)",
        "min(1, sqrt(-rtt_ms))",
        "!sqrt(-rtt_ms)",
        "sqrt(-rtt_ms) || 1",
        "1 && sqrt(-rtt_ms)",
        "sqrt(-rtt_ms) == sqrt(-rtt_ms)",
    ] {
        assert!(of(text).is_nan(), "{text}");
    }
    assert_eq!(of("rtt_ms / (inflight - 3)"), f64::INFINITY);
}

#[test]
fn parts_without_names_become_numbers() {
    let steps = |text| Expression::compile(text, &NAMES).unwrap();
    assert_eq!(steps("2 * (3 + 4) - sqrt(16)").constant(), Some(10.0));
    assert_eq!(steps("rtt_ms + 2 * 3"), steps("rtt_ms + 6"));
    assert_eq!(steps("1 ? rtt_ms : inflight"), steps("rtt_ms"));
    assert_eq!(steps("0 ? rtt_ms : inflight"), steps("inflight"));
    assert_eq!(steps("0 && rtt_ms").constant(), Some(0.0));
    assert_eq!(steps("1 || rtt_ms").constant(), Some(1.0));
    assert_eq!(steps("1 ? rtt_ms : inflight").slots(), [0]);
    assert_eq!(steps("inflight + rtt_ms * inflight").slots(), [0, 2]);
}

#[test]
fn mistakes_say_where_and_what_was_expected() {
    let texts = [
        "",
        "rtt",
        "rtt_sm + 1",
        "1 + RTT_MS",
        "temperature",
        "rtt_ms +",
        "rtt_ms inflight",
        "(rtt_ms + 1",
        "rtt_ms + 1)",
        "rtt_ms = 3",
        "rtt_ms & 1",
        "rtt_ms ? 1",
        "rtt_ms and 1",
        "1 < rtt_ms < 3",
        "min(rtt_ms)",
        "min()",
        "abs(1, 2)",
        "clamp(rtt_ms, 1)",
        "clamp(rtt_ms, 5, 1)",
        "mim(rtt_ms, 1)",
        "min + 1",
        "rtt_ms(3)",
        "if (rtt_ms) 1",
        "0.5ms",
        ".5",
        "1.",
        "1__0",
        "1e999",
        "1 / 0 + rtt_ms",
        "ln(-1)",
        "rtt_ms ^ 2",
        "rtt_ms % 2",
        "\"fast\"",
        "rtt_ms × 2",
        "rtt_ms +\n  infligth",
    ];
    let report: Vec<String> =
        texts.iter().map(|text| format!("{text:24?} {}", Expression::compile(text, &NAMES).unwrap_err())).collect();
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn units_that_contradict_each_other_are_refused() {
    let units = ["ms", "tokens", "requests", "ms"];
    let checked = |text: &str, result: &str| match Expression::compile_in(text, &NAMES, &units, Some(result)) {
        Ok(_) => "fits".to_owned(),
        Err(error) => error.to_string(),
    };
    for (text, unit) in [
        ("rtt_ms", "ms"),
        ("0.07 * queued_tokens + rtt_ms", "ms"),
        ("queued_tokens > 4000 ? 50 : 0", "ms"),
        ("rtt_ms * (inflight > 3)", "ms"),
        ("max(0, queued_tokens - 512)", "tokens"),
        ("rtt_ms / report_age_ms", "share"),
        ("ln(queued_tokens) + rtt_ms", "ms"),
        ("rtt_ms > 3", "1"),
        ("queued_tokens", "furlongs"),
    ] {
        assert_eq!(checked(text, unit), "fits", "{text}");
    }
    let report: Vec<String> = [
        ("queued_tokens", "ms"),
        ("rtt_ms + queued_tokens", "ms"),
        ("rtt_ms - inflight * rtt_ms", "ms"),
        ("queued_tokens > rtt_ms", "1"),
        ("min(1, rtt_ms, inflight)", "ms"),
        ("inflight ? rtt_ms : queued_tokens", "ms"),
        ("queued_tokens / inflight", "tokens"),
        ("1 + (rtt_ms == inflight)", "1"),
    ]
    .iter()
    .map(|(text, unit)| format!("{text:36} {}", checked(text, unit)))
    .collect();
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn texts_are_bounded() {
    let compile = |text: &str| Expression::compile(text, &NAMES).map(|_| ()).map_err(|error| error.to_string());
    let sum = |parts| vec!["rtt_ms"; parts].join("+");
    assert_eq!(compile(&sum(585)), Ok(()), "long, and flat");
    assert_eq!(compile(&sum(586)), Err("column 1: 4101 bytes; at most 4096 are allowed".to_owned()));
    let deep = |levels| format!("{}1{}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(compile(&deep(MAX_NESTING - 1)), Ok(()));
    assert_eq!(compile(&deep(2_000)), Err("column 65: nested more than 64 deep".to_owned()));
    assert_eq!(compile(&"-".repeat(4_000)), Err("column 64: nested more than 64 deep".to_owned()));
    assert_eq!(compile(&"1?".repeat(2_000)), Err("column 129: nested more than 64 deep".to_owned()));
    let held = |levels| format!("{}1{}", "rtt_ms-(".repeat(levels), ")".repeat(levels));
    assert_eq!(compile(&held(31)), Ok(()));
    assert!(compile(&held(33)).unwrap_err().contains("more than 32 intermediate results at once"));
    // At the bound the value is still right, for the stack holds all of it: 20 − (20 − (… − (20 − 1))).
    assert_eq!(of(&held(31)), 19.0);
}

#[test]
fn objectives_have_names_of_their_own() {
    let mut names = OBJECTIVE_NAMES.to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), OBJECTIVE_NAMES.len());
    let text = "0.3 * ttft_p95 / ttft_p95_ref + 4 * max(0, e2e_p99 / e2e_p99_ref - 1.1) + 10 * error_share + hhi";
    assert!(Expression::compile(text, OBJECTIVE_NAMES).is_ok());
}

const GUIDE: &str = include_str!("README.md");

/// The cells of a table's rows in the guide, below the heading of that name.
fn guide(heading: &str) -> Vec<Vec<&'static str>> {
    let section = GUIDE.split("\n## ").find(|section| section.starts_with(heading)).expect(heading);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Writes the guide's table of facts where it is not as the code has it, and fails so that somebody looks at it.
#[test]
fn the_guide_lists_the_facts_as_they_are() {
    let numbers =
        FACTS.iter().map(|fact| (fact.name, fact.unit, format!("{:?}", fact.scope).to_lowercase(), fact.help));
    let texts = TEXT_FACTS.iter().map(|fact| (fact.name, "text", "candidate".to_owned(), fact.help));
    let table: Vec<String> =
        numbers.chain(texts).map(|(name, unit, of, help)| format!("| `{name}` | {unit} | {of} | {help} |")).collect();
    let lines: Vec<&str> = GUIDE.lines().collect();
    let heading = lines.iter().position(|line| *line == "## Facts").expect("the heading");
    let first = heading + lines[heading..].iter().position(|line| line.starts_with("| `")).expect("a fact");
    let count = lines[first..].iter().take_while(|line| line.starts_with("| `")).count();
    if lines[first..first + count] != table {
        let written = [&lines[..first], &table.iter().map(String::as_str).collect::<Vec<_>>(), &lines[first + count..]];
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/expr/README.md");
        std::fs::write(&file, written.concat().join("\n") + "\n").unwrap();
        panic!(
            "the guide's table of facts was written anew: look at the difference in {} and commit it",
            file.display()
        );
    }
}

#[test]
fn the_guide_lists_what_objectives_may_name() {
    let rows = guide("Objectives");
    let names: Vec<&str> = rows.iter().flat_map(|row| row[0].split(' ')).map(|name| name.trim_matches('`')).collect();
    assert_eq!(names, OBJECTIVE_NAMES);
}

#[test]
fn the_guide_speaks_of_every_function_and_of_the_bounds() {
    for (name, ..) in compile::FUNCTIONS {
        assert!(GUIDE.contains(&format!("`{name}(")), "{name}");
    }
    let stack = program::MAX_STACK;
    assert!(GUIDE.contains(&format!("4,096 bytes, {MAX_NESTING} levels of nesting, {stack} numbers held at once")));
    assert_eq!(MAX_TEXT_BYTES, 4_096);
}

#[test]
fn every_fact_is_read_from_its_own_column() {
    let request = RequestView {
        prompt_tokens: 100,
        max_tokens: Some(2),
        body_bytes: 3,
        session_hash: 0,
        head_hash: 0,
        slo_ttft_ms: Some(3.5),
        decision_number: 4,
    };
    let mut all = Candidates::default();
    all.reset(2, 0);
    // Columns of their own: each is given another number, and reads as that number alone.
    let mut columns = Vec::new();
    for (fact, number) in FACTS.iter().zip(1_u8..) {
        if all.invent(fact.name, 1, Some(f64::from(number))) {
            columns.push((fact, f64::from(number)));
        }
    }
    assert!(columns.len() >= 28, "columns were not found");
    for (fact, number) in &columns {
        assert_eq!((fact.read)(&request, &all, 1), Some(*number), "{}", fact.name);
        if let Some(plain) = (fact.plain)(&all) {
            assert_eq!(plain, [0.0, *number], "{}", fact.name);
        }
    }
    // The others, by what they are made of.
    (all.network_trips[1], all.capacity_tokens[1]) = (Some(3.0), 77);
    (all.available[1], all.answer_tokens, all.tail_start_ms) = (false, 55.0, Some(66.0));
    all.cached_tokens[1] = 60;
    let read = |name: &str, row| {
        let fact = FACTS.iter().find(|fact| fact.name == name).expect(name);
        (fact.read)(&request, &all, row)
    };
    let of = |name: &str| read(name, 1).unwrap();
    let predicted = of("rtt_ms")
        + of("intercept_ms")
        + of("prefill_ms_per_token") * 40.0
        + of("queue_ms_per_token") * of("queued_uncached_tokens")
        + of("decode_ms_per_request") * of("decoding");
    let others = [
        ("prompt_tokens", 100.0),
        ("max_tokens", 2.0),
        ("body_bytes", 3.0),
        ("slo_ttft_ms", 3.5),
        ("turn", 4.0),
        ("uncached_tokens", 40.0),
        ("predicted_ttft_ms", predicted),
        ("network_trips", 3.0),
        ("kv_capacity_tokens", 77.0),
        ("available", 0.0),
        // Of row 0 alone, which is the only one available and has nothing in flight.
        ("mean_inflight", 0.0),
        ("answer_tokens", 55.0),
        ("tail_start_ms", 66.0),
    ];
    for (name, expected) in others {
        assert_eq!(read(name, 1), Some(expected), "{name}");
    }
    let known = |name: &str| {
        columns.iter().any(|(column, _)| column.name == name) || others.iter().any(|(other, _)| *other == name)
    };
    let untested: Vec<&str> = FACTS.iter().map(|fact| fact.name).filter(|name| !known(name)).collect();
    assert!(untested.is_empty(), "add these facts and their values at row 1 to `others` above: {untested:?}");
    assert_eq!(read("network_trips", 0), Some(1.0), "nobody tells");
    // What was never measured is unknown; what is counted is 0.
    let fresh: Vec<&str> =
        FACTS.iter().filter(|fact| (fact.read)(&request, &all, 0).is_none()).map(|fact| fact.name).collect();
    assert_eq!(
        fresh,
        [
            "rtt_ms",
            "rtt_p95_ms",
            "engine_running",
            "engine_waiting",
            "kv_used_tokens",
            "kv_used_share",
            "engine_throughput",
            "report_age_ms",
            "latency_ms",
            "prefill_ms_per_token",
            "queue_ms_per_token",
            "decode_ms_per_request",
            "intercept_ms",
            "predicted_ttft_ms",
            "kv_capacity_tokens"
        ]
    );
}

#[test]
fn every_fact_and_every_text_has_a_name_of_its_own_and_a_unit_that_is_known() {
    let mut names: Vec<&str> =
        FACTS.iter().map(|fact| fact.name).chain(TEXT_FACTS.iter().map(|fact| fact.name)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for fact in FACTS {
        assert_ne!(dimension::UnitDimension::parse(fact.unit), dimension::UnitDimension::Any, "{}", fact.name);
        assert!(RequiredFacts::ALL.contains(fact.needs), "{}", fact.name);
    }
}

#[test]
fn texts_are_compared_and_nothing_else_is_done_with_them() {
    let compiled = |text: &str| Expression::compile_with_texts(text, &NAMES, &[], &["region", "name"], None);
    let held = compiled("region == \"eu\" || name != 'a' && (region == 'eu') * 2 > 1").unwrap();
    let texts: Vec<(usize, &str)> = held.comparisons().iter().map(|of| (of.name, &*of.text)).collect();
    assert_eq!(texts, [(0, "eu"), (1, "a")], "the same comparison is one slot");
    assert_eq!(held.slots(), [NAMES.len(), NAMES.len() + 1]);
    let mut stack = EvalStack::default();
    let mut of = |eu: f64, a: f64| held.eval_with(&mut stack, |slot| Some([eu, a][usize::from(slot) - NAMES.len()]));
    assert_eq!((of(1.0, 1.0), of(0.0, 0.0), of(0.0, 1.0)), (Some(1.0), Some(0.0), Some(0.0)));
    for (text, expected) in [
        ("region", "column 1: `region` is a text; compare it"),
        ("2 * region", "column 5: `region` is a text; compare it"),
        ("region < 'eu'", "column 1: `region` is a text; compare it"),
        ("region == eu", "column 11: expected a text, such as region == \"…\", found the name `eu`"),
        ("region == 1", "column 11: expected a text"),
        ("region == 'eu", "column 11: this text is not terminated; a ' is missing"),
        ("region == 'eu' == 1", "column 16: put the comparison of texts in brackets"),
        ("region == 'eu' * 2", "column 16: put the comparison of texts in brackets"),
        ("rtt_ms == 'eu'", "column 11: expected a number, a name, a function or `(`, found the text \"eu\""),
        ("'eu' == region", "column 1: expected a number"),
    ] {
        let error = compiled(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}
