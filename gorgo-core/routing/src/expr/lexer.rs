//! Characters → tokens, each with the byte it begins at.

use super::ExprError;

/// One token of the language.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LexToken<'t> {
    /// A finite number.
    Number(f64),
    /// A name, known or not.
    Name(&'t str),
    /// A text in quotes, without them.
    Text(&'t str),
    /// An operator, a bracket or a comma.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

impl LexToken<'_> {
    /// Name of the token in messages.
    pub(super) fn describe(&self, text: &str) -> String {
        match self {
            Self::Number(_) => format!("the number {text}"),
            Self::Name(name) => format!("the name `{name}`"),
            Self::Text(text) => format!("the text \"{text}\""),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longest first, so that `<=` is not read as `<` and a stray `=`.
const SYMBOLS: [&str; 18] =
    ["<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "<", ">", "!", "?", ":", "(", ")", ","];

/// Symbols of other languages, and the advice to give.
const FOREIGN_SYMBOLS: [(&str, &str); 6] = [
    ("=", "`=` is not an operator; compare with `==`"),
    ("&", "`&` is not an operator; write `&&`"),
    ("|", "`|` is not an operator; write `||`"),
    ("%", "`%` is not an operator; known: + - * / < <= > >= == != && || ! ?:"),
    ("^", "`^` is not an operator; write a product, or exp and ln"),
    (".", "a number begins with a digit; write 0.5 for .5"),
];

/// Reads a text from left to right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    next: usize,
}

impl<'t> Lexer<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, next: 0 }
    }

    /// The next token and the byte it begins at.
    pub(super) fn next(&mut self) -> Result<(usize, LexToken<'t>), ExprError> {
        // Only ASCII blanks: an invisible Unicode blank is reported as an unknown character.
        let rest = self.text[self.next..].trim_start_matches([' ', '\t', '\r', '\n']);
        let at = self.text.len() - rest.len();
        let Some(first) = rest.bytes().next() else {
            self.next = at;
            return Ok((at, LexToken::End));
        };
        if first.is_ascii_digit() {
            return self.number(at);
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            let length = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
            self.next = at + length;
            return Ok((at, LexToken::Name(&rest[..length])));
        }
        if first == b'"' || first == b'\'' {
            return self.quoted(at, char::from(first));
        }
        // The order of `SYMBOLS` matters: the first match is the longest.
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            self.next = at + symbol.len();
            return Ok((at, LexToken::Symbol(symbol)));
        }
        let message = FOREIGN_SYMBOLS.iter().find(|(stranger, _)| rest.starts_with(stranger)).map_or_else(
            || format!("{:?} has no meaning here", rest.chars().next().unwrap_or_default()),
            |(_, advice)| (*advice).to_owned(),
        );
        Err(self.error(at, message))
    }

    /// `"eu"`, `'eu'`: everything up to the same quote, on one line. There are no escapes.
    fn quoted(&mut self, at: usize, quote: char) -> Result<(usize, LexToken<'t>), ExprError> {
        let inside = &self.text[at + 1..];
        let length = inside.find([quote, '\n']).filter(|end| inside[*end..].starts_with(quote));
        let Some(length) = length else {
            return Err(self.error(at, format!("this text is not terminated; a {quote} is missing")));
        };
        // Both quotes are single bytes, so the next token starts on a character boundary.
        self.next = at + length + 2;
        Ok((at, LexToken::Text(&inside[..length])))
    }

    /// `12`, `1_000`, `0.5`, `1e-3`: underscores between digits, as in TOML; digits must follow a point and an
    /// exponent.
    fn number(&mut self, at: usize) -> Result<(usize, LexToken<'t>), ExprError> {
        let mut end = self.digits(at)?;
        if self.byte(end) == Some(b'.') {
            end = self.digits(end + 1)?;
        }
        if matches!(self.byte(end), Some(b'e' | b'E')) {
            let signed = matches!(self.byte(end + 1), Some(b'+' | b'-'));
            end = self.digits(end + 1 + usize::from(signed))?;
        }
        // `12abc` and `1.2.3` are mistakes, not two tokens side by side.
        if self.byte(end).is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'.') {
            return Err(self.error(end, "a number ends here; an operator is missing, or its spelling is wrong"));
        }
        self.next = end;
        let digits: String = self.text[at..end].chars().filter(|char| *char != '_').collect();
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok((at, LexToken::Number(number))),
            _ => Err(self.error(at, format!("{digits} is too large"))),
        }
    }

    /// The end of a run of digits that begins at `from`.
    fn digits(&self, from: usize) -> Result<usize, ExprError> {
        let mut end = from;
        loop {
            if !self.byte(end).is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.error(end, "expected a digit"));
            }
            while self.byte(end).is_some_and(|byte| byte.is_ascii_digit()) {
                end += 1;
            }
            // An underscore must be followed by a digit, so the loop checks for one again.
            if self.byte(end) != Some(b'_') {
                return Ok(end);
            }
            end += 1;
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// The text from a byte to the end of the last token.
    pub(super) fn text_since(&self, at: usize) -> &'t str {
        self.text.get(at..self.next).unwrap_or_default()
    }

    pub(super) fn error(&self, at: usize, message: impl Into<String>) -> ExprError {
        ExprError::at(self.text, at, message)
    }
}
